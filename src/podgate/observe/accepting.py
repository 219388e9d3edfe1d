"""accepting: one listening socket, each of whose connections becomes a protocol.

Here: taking connections, and what happens while this process has no descriptor free. Not here: binding a socket, what
is spoken (pages.py, targets/listeners).
Invariant: while the kernel gives no descriptor nothing spins: clients wait in the kernel's queue, and one line tells of
the trouble whatever the number of clients and sockets.

asyncio's own server asks the kernel again for each place in its queue when there is no descriptor, logs each time, and
plants as many retries, each of which does the same (Python 3.11): one client was thousands of lines a second.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

PAUSE: Final = 0.25
"""Seconds until the kernel is asked again after it gave no descriptor."""

CALM: Final = 5.0
"""Seconds without such a failure after which it is over: while connections come and go there is one now and then."""

_AT_ONCE: Final = 32
"""Connections that one socket takes before others have their turn."""

_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER (socket(7)) of 0 seconds: closing resets the connection."""

Factory = Callable[[], asyncio.BaseProtocol | None]
"""Makes the protocol of a connection; None where it cannot be served, so that it is reset."""


class Shortage:
    """Tells once when connections cannot be taken for want of descriptors, and once when that is over.

    Args:
        tell: told why, and an empty text when it is over.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._met = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def meet(self, error: OSError) -> None:
        """Note a failure."""
        loop = asyncio.get_running_loop()
        self._met = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(CALM, self._look, loop)
            self._tell(f"new connections wait: {os.strerror(error.errno or 0)}")

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        wait = self._met + CALM - loop.time()
        self._timer = loop.call_later(wait, self._look, loop) if wait > 0 else None
        if self._timer is None:
            self._tell("")

    def forget(self) -> None:
        """Tell nothing more of what was met so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Accepting:
    """Takes the connections of a socket that listens, until ``close``, which closes the socket.

    Args:
        listening: the socket.
        make: called for each connection.
        shortage: told when the kernel gives no descriptor.
    """

    def __init__(self, listening: socket.socket, make: Factory, shortage: Shortage) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._make = make
        self._shortage = shortage
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._making: set[asyncio.Task[Any]] = set()
        self._resume()

    @property
    def port(self) -> int:
        """The port that it listens on: what the kernel chose where 0 was asked for."""
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        """Listen no more; what was taken is served all the same."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    async def settled(self) -> None:
        """Wait until each connection that was taken is in its protocol's hands."""
        while self._making:
            await asyncio.wait(self._making)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._take)

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                # What else there is belongs to the network or to a connection that has broken already: accept(2).
                if error.errno in _SHORT:
                    self._shortage.meet(error)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(PAUSE, self._resume)
                return
            self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        protocol = self._make()
        if protocol is None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
            return
        connection.setblocking(False)
        making = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, connection))
        self._making.add(making)
        making.add_done_callback(self._making.discard)
