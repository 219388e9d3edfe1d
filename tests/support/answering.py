"""Servers of tests: sockets of any network namespaces, answered by one thread in this process.

Here: the thread, taking sockets in and out, the end. Not here: what is answered (packet_lab.py, service_lab.py).
Invariant: after ``close`` the thread has ended and each socket that was taken in is closed.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any


class Answering:
    """Calls ``answer`` with each socket that can be read, and what was given with it; an OSError there is no matter."""

    def __init__(self, answer: Callable[[socket.socket, Any], None]) -> None:
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        self._wake, self._stop = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def add(self, ready: socket.socket, data: Any = None) -> None:
        """Take a socket in, also while it answers."""
        self._selector.register(ready, selectors.EVENT_READ, data)
        self._stop.send(b".")  # so that the thread looks at it

    def drop(self, ready: socket.socket) -> None:
        """Close a socket that was taken in; for ``answer``."""
        self._selector.unregister(ready)
        ready.close()

    def close(self) -> None:
        """End, and close all sockets."""
        self._stop.close()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._wake:
                    if not ready.recv(100):
                        return
                    continue
                with contextlib.suppress(OSError):
                    self._answer(ready, key.data)
