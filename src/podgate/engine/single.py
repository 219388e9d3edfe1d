"""One agent per feature and network namespace.

Here: an abstract unix socket as the claim, which the kernel frees when its holder ends. Not here: who may claim.
Invariant: whoever holds the claim is alive, so there is no stale lock to clean up.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class AlreadyRunningError(Exception):
    """Another agent holds the claim; the message names it."""


@contextmanager
def only_one(feature: str) -> Iterator[socket.socket]:
    r"""Hold the claim ``\0podgate-FEATURE`` of this network namespace (unix(7), abstract sockets).

    Gives a socket that is readable once somebody asked who holds it; a holder that stays takes them off the queue.

    Raises:
        AlreadyRunningError: another process holds it; its process id is in the message where it can be seen.
    """
    name = f"\0podgate-{feature}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim:
        try:
            claim.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            holder = _holder(name)
            if holder.is_trusted:
                raise AlreadyRunningError(
                    f"podgate {feature} is already running on this node ({holder}): stop it first"
                ) from error
            # Anybody on the node's network may bind a name: one who could not run podgate keeps nobody from running it.
            claim.bind("")
        claim.listen()
        claim.setblocking(False)
        yield claim


class Holder(NamedTuple):
    """Who holds a claim; ``pid`` 0: in another process namespace, None: not known."""

    pid: int | None
    uid: int | None

    @property
    def is_trusted(self) -> bool:
        """Whether it may be an agent: root's, this user's, or not known."""
        return self.uid is None or self.uid in (0, os.geteuid())

    def __str__(self) -> str:
        if self.pid is None:
            return "its process id is not known"
        return f"process {self.pid}" if self.pid else "in another process namespace"


def _holder(name: str) -> Holder:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(1.0)
        try:
            peer.connect(name)
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return Holder(None, None)
    pid, uid, _ = struct.unpack("3i", credentials)
    return Holder(pid, uid)
