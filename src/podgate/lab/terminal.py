"""A terminal for a command in the lab: this terminal in raw mode, relayed to one of its own.

Here: the pseudo terminal, its size, and the relay. Not here: the request that starts the command (lab/client.py).
Invariant: the terminal's modes are as before when the relay ends, however it ends.
"""

import fcntl
import os
import select
import signal
import socket
import termios
import tty
from contextlib import suppress
from types import FrameType
from typing import Any

_IN, _OUT = 0, 1


def is_interactive() -> bool:
    """Whether people type here: standard input and output are a terminal."""
    return os.isatty(_IN) and os.isatty(_OUT)


class Terminal:
    """A pseudo terminal that a command gets.

    Attributes:
        inner: the command's end; give it away, then call ``relay``.
    """

    def __init__(self) -> None:
        self._outer, self.inner = os.openpty()
        self._resize(0, None)

    def _resize(self, _number: int, _frame: FrameType | None) -> None:
        size = fcntl.ioctl(_OUT, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, size)

    def relay(self, until: socket.socket) -> None:
        """Relay both ways until ``until`` has something to read and the command's last output is shown."""
        os.close(self.inner)
        before = termios.tcgetattr(_IN)
        resized = signal.signal(signal.SIGWINCH, self._resize)
        tty.setraw(_IN)
        try:
            while True:
                watched: list[Any] = [_IN, self._outer, until]
                readable, _, _ = select.select(watched, [], [])
                if self._outer in readable and not self._show():
                    return
                if _IN in readable:
                    os.write(self._outer, os.read(_IN, 4096))
                if until in readable and self._outer not in readable:
                    return
        finally:
            termios.tcsetattr(_IN, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, resized)
            os.close(self._outer)

    def _show(self) -> bool:
        """Show what the command wrote; False when its end was closed, which the kernel tells as EIO."""
        with suppress(OSError):
            data = os.read(self._outer, 65536)
            os.write(_OUT, data)
            return bool(data)
        return False
