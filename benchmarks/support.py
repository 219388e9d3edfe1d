"""What benchmarks share: numbers as rows, pinning, and a real agent in a network namespace of its own.

Here: the table, percentiles, an agent pinned to a CPU, what /proc says of a process. Not here: figures (one module per
feature), the agent's process itself (tests/support/agent.py), a judgement: a row shows the wanted value and does not
fail.
Invariant: what is started here is ended here, by its process id, also when a measurement fails.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.agent import Agent
from tests.support.netns import NetNamespace

BYTECODE: Final = Path(__file__).resolve().parents[1] / ".cache" / "bytecode"
"""Where agents under measurement keep compiled modules, as an installed package does."""

_PAUSE: Final = threading.Event()
_HEADINGS: Final = ("figure", "wanted", "measured", "min - max", "reference")


class Row(NamedTuple):
    """One line of the table; all texts, units included."""

    figure: str
    wanted: str
    measured: str
    spread: str = ""
    reference: str = ""


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in columns."""
    lines = [_HEADINGS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join((shown[0], "-" * len(shown[0]), *shown[1:]))


def say(text: str) -> None:
    """Show progress at once, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Give the smallest value that at least ``share`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def milliseconds(seconds: float) -> str:
    """Show a duration with three figures."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def spread(values: Sequence[float]) -> str:
    """Show the smallest and the largest duration: the noise of this machine."""
    return f"{milliseconds(min(values))} - {milliseconds(max(values))}"


def timed(work: Callable[[], object]) -> float:
    """Give the seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(runs: int, **contestants: Callable[[], float]) -> dict[str, list[float]]:
    """Measure contestants in turns, so that a slow moment of the machine hits them alike; each gives its seconds.

    The first turn is not counted: it fills caches.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(runs + 1):
        for name, measure in contestants.items():
            seconds = measure()
            if turn:
                found[name].append(seconds)
    return found


def versus(figure: str, wanted: str, ours: Sequence[float], theirs: Sequence[float], what: str) -> Row:
    """Give the row of a duration beside its reference, as a ratio of medians."""
    mine, other = statistics.median(ours), statistics.median(theirs)
    reference = f"{what} {milliseconds(other)}: ratio {mine / other:.2f}"
    return Row(figure, wanted, milliseconds(mine), spread(ours), reference)


def cpus() -> tuple[int, int]:
    """Give a CPU for the measuring process and one for what is measured; the same where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Stay on one CPU, and let processes that are started meanwhile stay there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def rest(seconds: float) -> None:
    """Do nothing for a while, as in measuring what an idle process does meanwhile."""
    _PAUSE.wait(seconds)


def installed() -> dict[str, str]:
    """Give the environment of a program whose modules are compiled, as after an ordinary installation."""
    left = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**left, "PYTHONPYCACHEPREFIX": str(BYTECODE)}


def launch(namespace: NetNamespace, command: Sequence[str], log: Path, cpu: int | None = None) -> Agent:
    """Start ``podgate`` with the words of a command, as a user does, in a network namespace; the caller ends it.

    Args:
        namespace: where it works.
        command: what follows ``podgate``.
        log: the file to whose end its log goes.
        cpu: where it stays, or None for anywhere.
    """
    program = str(Path(sys.executable).with_name("podgate"))
    with contextlib.ExitStack() as stack:
        if cpu is not None:
            stack.enter_context(pinned(cpu))
        return Agent.start(namespace, [program, *command], log, installed())


@contextmanager
def running(namespace: NetNamespace, command: Sequence[str], log: Path, cpu: int | None = None) -> Iterator[Agent]:
    """Have an agent for the body."""
    agent = launch(namespace, command, log, cpu)
    try:
        yield agent
    finally:
        agent.end()


class Counters(NamedTuple):
    """What a process has done since it began.

    Attributes:
        wakeups: times that one of its threads went to sleep by itself, and so was woken (voluntary context switches).
        running: seconds on a CPU.
        written: bytes given to write(2) and the like (``wchar``), sockets included.
        writes: calls of write(2) and the like (``syscw``).
        disk: bytes that went to storage (``write_bytes``).
        children: page faults of children that have ended: 0 as long as none was forked and reaped.
    """

    wakeups: int
    running: float
    written: int
    writes: int
    disk: int
    children: int

    def since(self, before: "Counters") -> "Counters":
        """Give the difference."""
        return Counters(
            wakeups=self.wakeups - before.wakeups,
            running=self.running - before.running,
            written=self.written - before.written,
            writes=self.writes - before.writes,
            disk=self.disk - before.disk,
            children=self.children - before.children,
        )


def counters(pid: int) -> Counters:
    """Read the counters of a process, all threads together."""
    base = Path(f"/proc/{pid}")
    tasks = sorted((base / "task").iterdir())
    io = dict(line.split(": ") for line in (base / "io").read_text().splitlines())
    stat = (base / "stat").read_text().rpartition(") ")[2].split()
    return Counters(
        wakeups=sum(_field(task / "status", "voluntary_ctxt_switches") for task in tasks),
        running=sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9,
        written=int(io["wchar"]),
        writes=int(io["syscw"]),
        disk=int(io["write_bytes"]),
        children=int(stat[8]) + int(stat[10]),
    )


def memory_kb(pid: int) -> tuple[int, int]:
    """Give the resident and the proportional set size of a process, in KiB."""
    return _field(Path(f"/proc/{pid}/status"), "VmRSS"), _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def peak_kb(pid: int) -> int:
    """Give the largest resident set size that a process ever had since it was executed, in KiB."""
    return _field(Path(f"/proc/{pid}/status"), "VmHWM")


def descriptors(pid: int) -> int:
    """Count the open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _field(path: Path, name: str) -> int:
    values = (line.split() for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(next(values)[1])


def syscalls(pid: int, seconds: float) -> dict[str, int]:
    """Count a process's system calls with strace for a while; strace itself slows it down, so time nothing meanwhile.

    Raises:
        RuntimeError: strace could not attach.
    """
    tracer = subprocess.Popen(
        ["strace", "-c", "-f", "-U", "calls,name", "-p", str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    rest(seconds)
    tracer.send_signal(signal.SIGINT)
    said = tracer.communicate(timeout=20)[1]
    if "attached" not in said:
        raise RuntimeError(f"strace cannot attach to process {pid}: {said.strip()}")
    rows = (line.split() for line in said.splitlines())
    return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdecimal() and row[1] != "total"}


def machine() -> str:
    """Say on what this ran, for the head of the table."""
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"Linux {os.uname().release}, Python {python}, {len(os.sched_getaffinity(0))} CPUs, "
        f"load {os.getloadavg()[0]:.1f}"
    )
