"""A cgroup for a measurement: a limit on memory, a share of a CPU, and what is used of it.

Here: cgroup v1 and v2, made below this process's own one or at the root. Not here: what runs in it.
Invariant: a cgroup is gone with its block; where none can be made, that is said, and the measurement goes without.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.support import say
from tests.support.poll import happens

MEMORY: Final = 25 << 20
"""Bytes: what metadata-proxy's manifest allows."""

MILLIS: Final = 30
"""Thousandths of a CPU: the same."""

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD: Final = 100_000
"""Microseconds: the kubelet's, in which a container may use its part of the CPU."""


class Used(NamedTuple):
    """Bytes in use, and processes that were killed for want of memory."""

    anonymous: int
    sockets: int
    kernel: int
    peak: int
    killed: int


class Cgroup:
    """A group with limits, over one folder for each hierarchy."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(dict.fromkeys(folders))

    def wrapped(self, command: Sequence[str]) -> tuple[str, ...]:
        """Give the words that start a command inside."""
        joins = "".join(f"echo $$ > {folder}/cgroup.procs && " for folder in self._folders)
        return ("sh", "-c", f'{joins}exec "$@"', "sh", *command)

    def used(self) -> Used:
        """Read what is in use; 0 for what this kernel does not tell."""
        stat, events = self._table("memory.stat"), self._table("memory.events", "memory.oom_control")
        return Used(
            anonymous=stat.get("total_rss", stat.get("anon", 0)),
            sockets=stat.get("sock", self._number("memory.kmem.tcp.usage_in_bytes")),
            kernel=stat.get("kernel", self._number("memory.kmem.usage_in_bytes")),
            peak=self._number("memory.peak", "memory.max_usage_in_bytes"),
            killed=events.get("oom_kill", 0),
        )

    def _text(self, *names: str) -> str:
        paths = (folder / name for folder in self._folders for name in names)
        return next((path.read_text() for path in paths if path.exists()), "")

    def _number(self, *names: str) -> int:
        return int(self._text(*names) or 0)

    def _table(self, *names: str) -> dict[str, int]:
        rows = (line.split() for line in self._text(*names).splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2}


@contextmanager
def cgroup(*, memory: int | None = None, millis: int | None = None) -> Iterator[Cgroup | None]:
    """Make a group with a limit on memory in bytes, on the CPU in thousandths, or both; None where that cannot be."""
    made: list[Path] = []
    try:
        try:
            for controller, limits in _limits(memory, millis).items():
                made.append(_made(controller, limits))
        except OSError as error:
            say(f"no cgroup: {error}")
            yield None
            return
        yield Cgroup(made)
    finally:
        for folder in dict.fromkeys(made):
            happens(lambda folder=folder: not (folder / "cgroup.procs").read_text(), 5.0)  # type: ignore[misc]
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


def _limits(memory: int | None, millis: int | None) -> dict[str, tuple[tuple[str, str], ...]]:
    """Give what is written to which file, by controller, in both versions' words."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    if memory is not None:
        # Version 1 counts sockets only where their memory has a limit, which is not to be reached.
        found["memory"] = (
            ("memory.limit_in_bytes", str(memory)),
            ("memory.max", str(memory)),
            ("memory.kmem.tcp.limit_in_bytes", str(memory * 8)),
        )
    if millis is not None:
        quota = _PERIOD * millis // 1000
        found["cpu"] = (("cpu.cfs_quota_us", str(quota)), ("cpu.max", f"{quota} {_PERIOD}"))
    return found


def _made(controller: str, limits: Sequence[tuple[str, str]]) -> Path:
    """Make a folder where the controller works, and write its limits. Raises OSError."""
    reasons: list[str] = []
    for parent in _parents(controller):
        folder = parent / f"podgate-bench-{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            written = [(folder / name).write_text(value) for name, value in limits if (folder / name).exists()]
        except OSError as error:
            reasons.append(str(error))
            continue
        if written:
            return folder
        folder.rmdir()
        reasons.append(f"{parent} does not have the controller {controller}")
    raise OSError("; ".join(reasons))


def _parents(controller: str) -> Iterator[Path]:
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    for _, controllers, path in sorted(lines, key=lambda line: line[1] == ""):
        if controller in controllers.split(","):
            yield _ROOT / controller / path.strip("/")
        elif not controllers:
            yield _ROOT / path.strip("/")
            yield _ROOT
