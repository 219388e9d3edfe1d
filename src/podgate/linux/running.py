"""Running a short-lived program: text in, text and an exit code out.

Here: starting it inside a network namespace, waiting with a limit, the lines around one that it complained about.
Not here: what its messages mean (the caller's), processes that stay (linux/processes.py).
Invariant: the program has ended when the call does, also when the call is cancelled; it never waits for a reader, since
it writes into memory, of which it gets a limited amount.
"""

import asyncio
import contextlib
import fcntl
import mmap
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from podgate.linux.namespaces import inside_network
from podgate.linux.processes import Child

OUTPUT_BYTES: Final = 64 << 20
"""What a program may write by default: iptables-save shows 40,000 rules in 6 MB."""

_AROUND: Final = 2
_LINE_WIDTH: Final = 160


class Ended(NamedTuple):
    """How a program ended; ``is_cut`` says that it had more to say than it may."""

    code: int
    output: str
    errors: str
    is_cut: bool


def find_program(*names: str) -> str | None:
    """Give the path of the first of these programs that is installed, in $PATH or where system programs are."""
    # Not shutil.which: shutil loads three libraries of compression.
    places = (*os.get_exec_path(), "/usr/sbin", "/sbin")
    paths = (path for name in names for path in ((name,) if "/" in name else (f"{place}/{name}" for place in places)))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


async def run(
    command: Sequence[str],
    text: str = "",
    *,
    namespace: int | None = None,
    seconds: float = 60.0,
    output_bytes: int = OUTPUT_BYTES,
    keep: Sequence[str] = (),
    started: Callable[[int], None] = lambda _pid: None,
) -> Ended:
    """Run a program to its end.

    Args:
        command: the program's path, and its arguments.
        text: what it reads.
        namespace: an open network namespace to start it in, or None for this process's own.
        seconds: how long it may take.
        output_bytes: how much it may write to each of its two outputs, rounded up to whole pages of memory.
        keep: environment variables to hand on, beside a plain PATH.
        started: called with its process id before it can have done anything that is noticed.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it did not end in time and was killed.
    """
    environment = {"PATH": os.defpath, **{name: os.environ[name] for name in keep if name in os.environ}}
    with contextlib.ExitStack() as stack:
        source = _memory_file(stack, text.encode())
        outputs = [_empty_file(stack, output_bytes) for _ in range(2)]
        actions = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate((source, *outputs))]
        pid = _spawn(list(command), environment, actions, namespace)
        started(pid)
        code = await _ended(Child(pid), seconds)
        sizes = [os.lseek(file, 0, os.SEEK_CUR) for file in outputs]
        said = [os.pread(file, size, 0).decode(errors="replace") for file, size in zip(outputs, sizes, strict=True)]
        return Ended(code, said[0], said[1], max(sizes) >= _whole_pages(output_bytes))


def _spawn(
    command: list[str], environment: dict[str, str], actions: list[tuple[int, int, int]], namespace: int | None
) -> int:
    with inside_network(namespace):
        return os.posix_spawn(command[0], command, environment, file_actions=actions)


async def _ended(child: Child, seconds: float) -> int:
    try:
        async with asyncio.timeout(seconds):
            return await child.wait()
    finally:
        if child.exit_code is None:
            child.send(signal.SIGKILL)
            await child.wait()


def _memory_file(stack: contextlib.ExitStack, content: bytes) -> int:
    """Give an open file without a path."""
    descriptor = os.memfd_create("podgate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _empty_file(stack: contextlib.ExitStack, limit: int) -> int:
    """Give an open file that never grows beyond its limit; only what is written takes memory."""
    descriptor = _memory_file(stack, b"")
    # The kernel refuses a write beyond the end page by page, so a limit between two pages would not be reached.
    os.ftruncate(descriptor, _whole_pages(limit))
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return descriptor


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def excerpt(lines: Sequence[str], number: int) -> str:
    """Show the lines around the one with this number, which counts from 1, numbered."""
    shown = []
    for index in range(max(1, number - _AROUND), min(len(lines), number + _AROUND) + 1):
        line = lines[index - 1].expandtabs(4)
        if len(line) > _LINE_WIDTH:
            line = line[:_LINE_WIDTH] + "…"
        shown.append(f"{'>' if index == number else ' '}{index:5d}  {line}")
    return "\n".join(shown)
