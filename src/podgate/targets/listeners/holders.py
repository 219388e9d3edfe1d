"""holders: which process listens on a TCP port, as far as /proc tells.

Here: net/tcp and tcp6 of the calling thread, and the search through /proc/PID/fd. Not here: what to do about it.
Invariant: never raises: in another PID namespace, or without privileges, the answer is merely empty.
"""

import os
from collections.abc import Iterator

from podgate.linux import proc

_LISTEN = "0A"


def holders_of(port: int) -> list[str]:
    """Give the processes that listen on a port of any address, as ``process 17 (nginx)``, sorted by number."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    found = [pid for pid in _pids() if _holds(pid, sockets)] if sockets else []
    return [f"process {pid} ({_name(pid)})" for pid in found]


def _inodes(port: int) -> Iterator[str]:
    """Give the inodes of sockets in the state LISTEN (include/net/tcp_states.h)."""
    for table in ("tcp", "tcp6"):
        for line in _lines(f"/proc/thread-self/net/{table}")[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - one word of /proc
            return file.read().splitlines()
    except OSError:
        return []


def _pids() -> list[int]:
    try:
        return proc.pids()
    except OSError:
        return []


def _holds(pid: int, sockets: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208 - as above
    except OSError:
        return False  # ended, or another user's
    for descriptor in descriptors:
        try:
            if os.readlink(f"{folder}/{descriptor}") in sockets:  # noqa: PTH115 - as above
                return True
        except OSError:
            continue
    return False


def _name(pid: int) -> str:
    try:
        return proc.name_of(pid)
    except OSError:
        return "?"
