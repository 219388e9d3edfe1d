"""What a container leaves behind when its main process ends: descendants, found by their mount namespace.

Here: finding and killing them. Not here: the main process itself (linux/processes.py).
Invariant: the namespace is held open until then: the kernel gives the number of a freed one to the next container.
"""

import os
import signal
from contextlib import suppress
from types import TracebackType
from typing import Self

from podgate.linux.proc import pids


class Remains:
    """The processes of one container. A context manager: leaving it lets go of the namespace."""

    def __init__(self, pid: int) -> None:
        self._held = -1
        with suppress(OSError):  # It has ended already, and with it whatever it could have started.
            self._held = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held >= 0:
            os.close(self._held)

    def kill(self) -> None:
        """Kill all that are left."""
        if self._held < 0:
            return
        own = os.fstat(self._held)
        for pid in pids():
            with suppress(OSError):  # It ended meanwhile.
                if os.path.samestat(os.stat(f"/proc/{pid}/ns/mnt"), own):
                    os.kill(pid, signal.SIGKILL)
