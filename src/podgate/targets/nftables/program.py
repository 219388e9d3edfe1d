"""Running nft: text in, success or an error with numbered lines out.

Here: the short-lived process, and what its messages mean. Not here: the text (render.py), elements alone (apply.py).
Invariant: nft ends before the call does, also when the call is cancelled; it either made one whole transaction or none.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable
from typing import Final

from podgate.joints import ApplyError
from podgate.linux.namespaces import inside_network
from podgate.linux.processes import Child

_SECONDS: Final = 60.0
_AROUND: Final = 2
_SHOWN_FAILURES: Final = 3
_LINE_WIDTH: Final = 160

_PLACE: Final = re.compile(r"^(?:/dev/stdin|<stdin>|stdin|-):(\d+):[\d:-]+: (?:Error: )?(.*)$", re.MULTILINE)

_LACKING: Final = ("No such file or directory", "not supported", "Protocol not available")

_FEATURES: Final = (
    (r"\bfib\b", "the fib expression (CONFIG_NFT_FIB_IPV4, CONFIG_NFT_FIB_IPV6)"),
    (r"\bmasquerade\b", "masquerading (CONFIG_NFT_MASQ)"),
    (r"\b(?:s|d)nat\b", "address translation (CONFIG_NFT_NAT)"),
    (r"type nat hook", "NAT chains (CONFIG_NF_NAT and CONFIG_NFT_NAT)"),
    (r"\bnumgen\b", "the numgen expression (CONFIG_NFT_NUMGEN)"),
    (r"\breject\b", "the reject statement (CONFIG_NFT_REJECT)"),
    (r"\bct\b", "connection tracking (CONFIG_NFT_CT)"),
)


async def load(program: str, text: str, namespace: int | None, started: Callable[[int], None]) -> None:
    """Have nft load ``text`` in one transaction.

    Args:
        program: ``nft``, or a path.
        text: what to load; it must end with a line break.
        namespace: an open network namespace, or None for this process's own.
        started: called with nft's process id before nft can have done anything that is noticed.

    Raises:
        ApplyError: nft is missing, not permitted, refused the text, or did not end in 60 s.
    """
    path = _find(program)
    with contextlib.ExitStack() as stack:
        source = _memory_file(stack, text.encode())
        output = _memory_file(stack, b"")
        actions = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
        pid = _spawn(path, actions, namespace)
        started(pid)
        code = await _ended(Child(pid), path)
        if code != 0:
            said = os.pread(output, 1 << 20, 0).decode(errors="replace")
            raise failure(text, said, code)


def _spawn(path: str, actions: list[tuple[int, int, int]], namespace: int | None) -> int:
    with inside_network(namespace) if namespace is not None else contextlib.nullcontext():
        try:
            return os.posix_spawn(path, [path, "-f", "-"], {"PATH": os.defpath}, file_actions=actions)
        except OSError as problem:
            raise ApplyError(f"{path} cannot be started: {problem.strerror}", "NftMissing") from problem


async def _ended(child: Child, path: str) -> int:
    try:
        async with asyncio.timeout(_SECONDS):
            return await child.wait()
    except TimeoutError as problem:
        raise ApplyError(f"{path} did not end in {_SECONDS:.0f} s and was killed", "NftStuck") from problem
    finally:
        if child.exit_code is None:
            child.send(signal.SIGKILL)
            await child.wait()


def _find(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if path is None:
        raise ApplyError(
            f"{program} is not installed: install the package nftables (Debian, Ubuntu, Fedora, Alpine)", "NftMissing"
        )
    return path


def _memory_file(stack: contextlib.ExitStack, content: bytes) -> int:
    """Give an open file without a path: nft reads and writes it without a pipe that could fill up."""
    descriptor = os.memfd_create("podgate-nft", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def failure(text: str, said: str, code: int) -> ApplyError:
    """Turn nft's message into an error that shows the lines around each failing one."""
    if "Operation not permitted" in said:
        return ApplyError("nft is not permitted: podgate needs CAP_NET_ADMIN in this network namespace", "NotPermitted")
    lines = text.splitlines()
    places = [(int(number), message) for number, message in _PLACE.findall(said) if 0 < int(number) <= len(lines)]
    if not places:
        return ApplyError(f"nft ended with {code}: {said.strip() or 'no message'}", "NftRejected")
    parts, reason = [], "NftRejected"
    for number, message in places[:_SHOWN_FAILURES]:
        parts.append(f"nft refused line {number}: {message}\n{_excerpt(lines, number)}")
        feature = _feature(lines[number - 1]) if any(words in message for words in _LACKING) else ""
        if feature:
            reason = "KernelLacksFeature"
            parts.append(f"If what the line names exists, the kernel lacks {feature}.")
    if len(places) > _SHOWN_FAILURES:
        parts.append(f"and {len(places) - _SHOWN_FAILURES} more")
    return ApplyError("\n".join(parts), reason)


def _excerpt(lines: list[str], number: int) -> str:
    shown = []
    for index in range(max(1, number - _AROUND), min(len(lines), number + _AROUND) + 1):
        line = lines[index - 1].expandtabs(4)
        if len(line) > _LINE_WIDTH:
            line = line[:_LINE_WIDTH] + "…"
        shown.append(f"{'>' if index == number else ' '}{index:5d}  {line}")
    return "\n".join(shown)


def _feature(line: str) -> str:
    return next((feature for pattern, feature in _FEATURES if re.search(pattern, line)), "")
