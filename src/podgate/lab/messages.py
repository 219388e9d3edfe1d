"""What a lab's client and daemon say to each other.

Here: the requests and answers, the error that a client makes of a bad one, and sending and receiving them with
descriptors. Not here: what is done about them.
Invariant: one message is one packet of a SOCK_SEQPACKET socket, so no message is ever cut; one that does not fit, and
manifests, travel in a file whose descriptor goes along.
"""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from podgate.model.frozen import Frozen

_LONGEST = 64 * 1024
_IN_FILE = b"F"
"""Stands for a message that is in the file behind the last descriptor."""
_DESCRIPTORS = 4

M = TypeVar("M")


class LabError(Exception):
    """The lab could not do it; the message says what to do. ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Apply(Frozen, frozen=True, tag=True):
    """Apply the objects in the file that goes along (a JSON list)."""


class Delete(Frozen, frozen=True, tag=True):
    """Delete objects, each as (kind, namespace, name); with ``wait`` the answer comes when they are gone."""

    refs: tuple[tuple[str, str, str], ...]
    wait: bool = True


ObjectVersion = tuple[str, str, str, int]
"""An object in one state of it: kind, namespace, name, resource version."""


class Wait(Frozen, frozen=True, tag=True):
    """Answer with Progress until everything is ready, then with Done.

    ``versions``: objects that were just written to an API server; nothing is ready before they were seen.
    """

    versions: tuple[ObjectVersion, ...] = ()


class Execute(Frozen, frozen=True, tag=True):
    """Run a command; the three standard streams go along. Send Signal meanwhile; hanging up kills it."""

    kind: str
    namespace: str
    name: str
    words: tuple[str, ...]
    container: str = ""
    terminal: str = ""


class Signal(Frozen, frozen=True, tag=True):
    """Send a signal to the command that runs for this connection."""

    number: Annotated[int, msgspec.Meta(ge=1, le=64)]


class Connect(Frozen, frozen=True, tag=True):
    """Connect to ``address`` (a name as in Execute, or an IP address) by TCP; the answer brings the socket."""

    target: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Describe(Frozen, frozen=True, tag=True):
    """Say what runs."""


class Stop(Frozen, frozen=True, tag=True):
    """End the lab."""

    grace: float = 2.0


Request = Apply | Delete | Wait | Execute | Signal | Connect | Describe | Stop


class Done(Frozen, frozen=True, tag=True):
    """It was done; ``code`` is a command's exit code, ``text`` a line per thing done, ``value`` what was asked for."""

    code: int = 0
    text: tuple[str, ...] = ()
    value: Any = None


class Failed(Frozen, frozen=True, tag=True):
    """It was not done; ``code`` is the client's exit code."""

    message: str
    code: int = 1


class Progress(Frozen, frozen=True, tag=True):
    """What is not ready yet, and warnings that came up."""

    waiting: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


Answer = Done | Failed | Progress


def socket_address(path: Path) -> tuple[str, int]:
    """Give an address of at most 107 bytes for a socket's path, and the descriptor to close once it was used."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{folder}/{path.name}", folder


def send(connection: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a message, blocking or not as the socket is."""
    data = msgspec.json.encode(message)
    if len(data) <= _LONGEST:
        socket.send_fds(connection, [data], list(descriptors))
        return
    with os.fdopen(os.memfd_create("podgate-lab", os.MFD_CLOEXEC), "wb") as file:
        file.write(data)
        file.flush()
        socket.send_fds(connection, [_IN_FILE], [*descriptors, file.fileno()])


def taken(connection: socket.socket, kind: type[M]) -> tuple[M, list[int]] | None:
    """Take one message, blocking or not as the socket is; None when the other side hung up.

    Raises:
        msgspec.DecodeError: it is no such message.
    """
    data, descriptors, flags, _address = socket.recv_fds(connection, _LONGEST, _DESCRIPTORS)
    for descriptor in descriptors:
        # recv_fds of Python 3.11 drops its flags, so MSG_CMSG_CLOEXEC would not help: containers would inherit them.
        os.set_inheritable(descriptor, False)
    try:
        whole = _whole(data, descriptors, flags)
        return (msgspec.json.decode(whole, type=kind), descriptors) if whole else None
    except (msgspec.DecodeError, OSError):
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _whole(data: bytes, descriptors: list[int], flags: int) -> bytes:
    """Give the message's own bytes, and take the file that it came in, if it did, from the descriptors."""
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise msgspec.DecodeError(f"a message came cut: it has more than {_LONGEST} bytes, or no descriptors are left")
    if data != _IN_FILE or not descriptors:
        return data
    with os.fdopen(descriptors.pop(), "rb") as file:
        file.seek(0)
        return file.read()


def receive(connection: socket.socket) -> tuple[Answer, list[int]] | None:
    """Wait for an answer; None when the daemon hung up."""
    return taken(connection, Answer)  # type: ignore[arg-type]  # a union is a type form, not a type
