"""Processes: pidfds, death signals and waiting for an end without SIGCHLD.

Here: PR_SET_PDEATHSIG, pidfds, and awaiting the end of a child of this process.
Not here: what is run and with which rights (lab/runner.py).
Invariant: a child is reaped exactly once, through its pidfd, so a recycled process id is never signalled.
"""

import asyncio
import ctypes
import os
import signal
from typing import Final

from podgate.linux.waiting import readable

_PR_SET_PDEATHSIG: Final = 1

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it ends. Survives exec."""
    if _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")


class Child:
    """A child process of this one, held by its pidfd.

    Attributes:
        pid: its process id, in this process's namespace.
        exit_code: the code once it was awaited; 128 + N when signal N ended it, as shells say it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def send(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self._descriptor >= 0:
            try:
                signal.pidfd_send_signal(self._descriptor, number)
            except ProcessLookupError:
                return

    async def wait(self) -> int:
        """Wait for the end, reap, and give the exit code. May be awaited by several tasks, and again afterwards."""
        while self.exit_code is None:
            await readable(self._descriptor)
            self._reap()
        return self.exit_code

    def _reap(self) -> None:
        if self.exit_code is not None:
            return
        result = os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOHANG)
        if result is None:
            return
        ended_itself = result.si_code == os.CLD_EXITED
        self.exit_code = result.si_status if ended_itself else 128 + result.si_status
        os.close(self._descriptor)
        self._descriptor = -1

    async def stop(self, grace: float, number: int = signal.SIGTERM) -> int:
        """Ask the process to end, kill it after ``grace`` seconds, and give the exit code."""
        self.send(number)
        try:
            async with asyncio.timeout(grace):
                return await self.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()
