"""process: this process's own figures, by the names that programs of every kind give them for Prometheus.

Here: processor time, memory, descriptors, when it began. Not here: what it does (each feature).
Invariant: reading them takes some files of /proc, and no lock.
"""

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podgate.observe.metrics import Measured

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_STARTED_AT: Final = 19
"""The place of the start time in /proc/PID/stat behind the name, in ticks since the kernel's own (proc(5))."""


def process_readings(proc: Path = Path("/proc")) -> Iterator[Measured]:
    """Give them; nothing where ``proc`` is not there, no beginning where it does not tell when the machine started."""
    try:
        pages = (proc / "self" / "statm").read_text().split()
        stat = (proc / "self" / "stat").read_text().rpartition(")")[2].split()
        lines = (proc / "stat").read_text().splitlines()
        descriptors = sum(1 for _ in (proc / "self" / "fd").iterdir())
    except OSError:
        return
    seconds = "Processor time of this process in seconds."
    yield Measured("process_cpu_seconds_total", time.process_time(), kind="counter", help=seconds)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, value, text in (
        ("open_fds", descriptors, "Descriptors that are open."),
        ("max_fds", limit, "Descriptors that may be open."),
        ("resident_memory_bytes", int(pages[1]) * _PAGE, "Memory in use."),
        ("virtual_memory_bytes", int(pages[0]) * _PAGE, "Address space in use."),
    ):
        yield Measured(f"process_{name}", float(value), help=text)
    for line in lines:
        if line.startswith("btime "):
            started = int(line.split()[1]) + int(stat[_STARTED_AT]) / _TICKS
            yield Measured("process_start_time_seconds", started, help="When this process began, since 1970.")
