"""proc: what /proc shows of the processes around this one.

Here: their numbers, names and network namespaces. Not here: children of this process (processes.py), its own use of the
machine (observe/process.py).
Invariant: reads only. Of a process that ended meanwhile every question raises OSError, of another user's some do.
"""

import os
from typing import Final

SELF = "thread-self"
"""The calling thread, in place of a process's number."""


def pids(proc: str = "/proc") -> list[int]:
    """Give the numbers of all processes that are shown, in order. Raises OSError."""
    return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())


def name_of(pid: int | str, proc: str = "/proc") -> str:
    """Give a process's name, of 15 bytes at most, as it may have set it itself. Raises OSError."""
    with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().removesuffix("\n")


def network_of(pid: int | str, proc: str = "/proc") -> str:
    """Give what names the network namespace of a process, as ``net:[4026531840]``.

    Raises:
        PermissionError: the process has more rights than this one (proc(5), ptrace(2)).
        OSError: it has ended.
    """
    return os.readlink(f"{proc}/{pid}/ns/net")


_SYS_RESOURCE: Final = 24
"""CAP_SYS_RESOURCE (linux/capability.h), which a lower oom_score_adj needs (proc(5))."""


def may_lower_oom(proc: str = "/proc") -> bool:
    """Say whether this process may ask to be ended less readily than it was started. Raises OSError."""
    with open(f"{proc}/self/status", encoding="utf-8", errors="replace") as file:
        rights = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    return bool(int(rights, 16) >> _SYS_RESOURCE & 1)
