"""What an agent costs that has nothing to do: at the start, and from then on.

Here: start to ready, memory, wake-ups, writes, forks, the cost of one drift check. Not here: changes (edits.py).
Invariant: nothing is asked of the agent while it is counted, so what is counted is its own doing.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.figures.configuration import bulk, mark, text_of
from benchmarks.support import (
    Counters,
    Row,
    counters,
    cpus,
    installed,
    interleaved,
    memory_kb,
    milliseconds,
    pinned,
    rest,
    running,
    syscalls,
    timed,
    versus,
)
from tests.support.agent import Agent
from tests.support.netns import netns
from tests.support.volume import MountedFile

_FORKS: Final = {"clone", "clone3", "fork", "vfork"}
_WRITES: Final = {"write", "writev", "pwrite64", "pwritev", "pwritev2"}


def _command(folder: Path, volume: MountedFile) -> list[str]:
    return ["masquerade", "run", "--config", str(volume.path), "--state-dir", str(folder / "state")]


def start(folder: Path, quick: bool) -> list[Row]:
    """Measure from exec to the first 200 of /readyz, beside a Python that does nothing."""
    volume = MountedFile(folder / "volume", text_of([mark(0)]))
    command = _command(folder, volume)

    def agent() -> float:
        with netns() as namespace, running(namespace, command, folder / "log", cpus()[1]) as started:
            return started.until_ready()

    def bare() -> float:
        with pinned(cpus()[1]):
            program = [sys.executable, "-c", "import asyncio"]
            return timed(lambda: subprocess.run(program, check=True, env=installed()))

    taken = interleaved(1 if quick else 10, ours=agent, theirs=bare)
    return [versus("start to ready", "<= 400 ms", taken["ours"], taken["theirs"], "python -c 'import asyncio'")]


def idle(folder: Path, quick: bool) -> list[Row]:
    """Count what an idle agent does, with the default drift check and with a frequent one."""
    seconds = 1.0 if quick else 20.0
    rows = _quiet(folder, seconds)
    for count in (1, 1_000 if quick else 10_000):
        rows += _checking(folder, count, 1 if quick else 5, seconds)
    return rows


def _quiet(folder: Path, seconds: float) -> list[Row]:
    volume = MountedFile(folder / "volume", text_of([mark(0)]))
    with netns() as namespace, running(namespace, _command(folder, volume), folder / "log", cpus()[1]) as agent:
        agent.until_ready()
        rest(seconds / 20)
        done = _counted(agent, seconds)
        calls = syscalls(agent.pid, seconds)
        resident, proportional = memory_kb(agent.pid)
    span = f"in {seconds:.0f} s"
    forks, writes = (sum(calls.get(name, 0) for name in names) for names in (_FORKS, _WRITES))
    shown = ", ".join(f"{count} {name}" for name, count in sorted(calls.items())) or "none"
    bare = _bare_memory()
    return [
        Row(f"idle: wake-ups {span}", "0", str(done.wakeups), reference="drift check every 60 s"),
        Row(f"idle: forks {span}", "0", str(forks), reference=f"system calls under strace: {shown}"),
        Row(f"idle: writes {span}", "0", f"{max(done.writes, writes)}, {done.written} bytes"),
        Row(f"idle: time on a CPU {span}", "", milliseconds(done.running)),
        Row("memory, RSS", "<= 40 MB", _mb(resident), reference=f"Python with asyncio {_mb(bare[0])}"),
        Row("memory, PSS", "", _mb(proportional), reference=f"Python with asyncio {_mb(bare[1])}"),
    ]


def _checking(folder: Path, count: int, every: int, seconds: float) -> list[Row]:
    """Give the cost of one drift check, of one ``every`` so many seconds."""
    volume = MountedFile(folder / f"volume-{count}", text_of(bulk(count), f"{every}s"))
    command = _command(folder, volume)
    with netns() as namespace, running(namespace, command, folder / "log", cpus()[1]) as agent:
        agent.until_ready()
        rest(seconds / 20)
        done = _counted(agent, seconds)
        resident, _ = memory_kb(agent.pid)
    checks = max(1.0, seconds // every)
    named = f"{count:,} {'entry' if count == 1 else 'entries'}"
    rows = [
        Row(
            f"drift check, {named}: time on a CPU",
            "",
            milliseconds(done.running / checks),
            reference=f"{done.wakeups / checks:.1f} wake-ups, {done.writes / checks:.1f} writes per check",
        )
    ]
    return rows if count == 1 else [*rows, Row(f"memory with {named}, RSS", "", _mb(resident))]


def _counted(agent: Agent, seconds: float) -> Counters:
    before = counters(agent.pid)
    rest(seconds)
    return counters(agent.pid).since(before)


def _bare_memory() -> tuple[int, int]:
    """Give the memory of a Python that has imported asyncio and waits."""
    program = "import asyncio, sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        found = memory_kb(process.pid)
        process.communicate()
    return found


def _mb(kibibytes: int) -> str:
    return f"{kibibytes * 1024 / 1e6:.1f} MB"
