"""Netlink: messages, attributes, requests, dumps and notifications over a raw socket (RFC 3549, netlink(7)).

Here: what every netlink family shares. Not here: what a family's messages mean (nftables.py,
rtnetlink.py, conntrack.py).
Invariant: the kernel handles a request inside ``send``, so its answer waits in the socket when ``send`` returns:
requests are plain calls that wait for nobody, and only notifications are awaited.
"""

import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

from podgate.linux.waiting import readable

NETLINK_NETFILTER: Final = 12
"""The family of nf_tables and of connection tracking; the module socket does not name it."""

NLM_F_REQUEST: Final = 0x1
NLM_F_ACK: Final = 0x4
NLM_F_DUMP_INTR: Final = 0x10
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLM_F_DUMP: Final = 0x300
_NLM_F_ACK_TLVS: Final = 0x200

NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
_NLMSG_OVERRUN: Final = 4

NLA_F_NESTED: Final = 0x8000
_NLA_TYPE: Final = 0x3FFF

_SOL_NETLINK: Final = 270
_ADD_MEMBERSHIP: Final = 1
_CAP_ACK: Final = 10
_EXT_ACK: Final = 11
_SO_ATTACH_FILTER: Final = 26
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33
_EXT_ACK_TEXT, _EXT_ACK_OFFSET = 1, 2

_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ERRNO: Final = struct.Struct("=i")

_RECEIVE: Final = 1 << 18
_MOST_AT_ONCE: Final = 1_000
"""Notifications after which others have their turn: some milliseconds."""

_ANSWER_SECONDS: Final = 10
_DUMP_ATTEMPTS: Final = 10


class Message(NamedTuple):
    """One netlink message. ``port`` is the sender's for notifications, the receiver's own for answers."""

    kind: int
    flags: int
    sequence: int
    port: int
    body: bytes


class NetlinkError(OSError):
    """The kernel refused a message; the text holds the kernel's own words, if any.

    ``sequence`` says which message; ``offset`` where in it, its header counted, the refused attribute begins; 0 if the
    kernel did not say.
    """

    def __init__(self, number: int, words: str = "", sequence: int = 0, offset: int = 0) -> None:
        super().__init__(number, words or os.strerror(number))
        self.words = words
        self.sequence = sequence
        self.offset = offset


class DumpInterruptedError(Exception):
    """What is dumped changed again and again while it was read (NLM_F_DUMP_INTR)."""


class NotificationsLostError(Exception):
    """The kernel dropped notifications since the receive buffer was full (ENOBUFS): read the state again."""


def frame(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Give one message with its header, padded to 4 bytes."""
    return _HEADER.pack(16 + len(body), kind, flags, sequence, 0) + body + bytes(-len(body) % 4)


def messages(data: bytes) -> Iterator[Message]:
    """Split what one receive gave into messages; raises ValueError when it is cut off."""
    offset, end = 0, len(data)
    while offset + 16 <= end:
        length, kind, flags, sequence, port = _HEADER.unpack_from(data, offset)
        if length < 16 or offset + length > end:
            raise ValueError(f"netlink message at byte {offset} says {length} bytes, {end - offset} are there")
        yield Message(kind, flags, sequence, port, data[offset + 16 : offset + length])
        offset += (length + 3) & ~3


def attribute(kind: int, value: bytes) -> bytes:
    """Give one attribute, padded to 4 bytes; ``kind`` may carry NLA_F_NESTED."""
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes_: bytes) -> bytes:
    """Give an attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(attributes_))


def text(kind: int, value: str) -> bytes:
    """Give an attribute that holds a string with its closing zero."""
    return attribute(kind, value.encode() + b"\0")


def uint32(kind: int, value: int) -> bytes:
    """Give an attribute that holds a whole number of 32 bits in network order, as nf_tables has them."""
    return attribute(kind, value.to_bytes(4))


def attribute_list(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Give each attribute's kind (flag bits taken off) and value, from byte ``start`` of ``data``."""
    offset, end = start, len(data)
    while offset + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < 4 or offset + length > end:
            raise ValueError(f"netlink attribute at byte {offset} says {length} bytes, {end - offset} are there")
        yield kind & _NLA_TYPE, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """Give the attributes by kind; of several of one kind the last."""
    return dict(attribute_list(data, start))


def string(value: bytes) -> str:
    """Read a string attribute."""
    return value.rstrip(b"\0").decode(errors="replace")


def _failure(message: Message) -> NetlinkError | None:
    """Read an NLMSG_ERROR; number 0 is an acknowledgement."""
    (number,) = _ERRNO.unpack_from(message.body)
    if number == 0:
        return None
    if not message.flags & _NLM_F_ACK_TLVS:
        return NetlinkError(-number, "", message.sequence)
    # NETLINK_CAP_ACK: the request's header follows the number, its body does not.
    found = attributes(message.body, 4 + 16)
    offset = int.from_bytes(found.get(_EXT_ACK_OFFSET, b""), sys.byteorder)
    return NetlinkError(-number, string(found.get(_EXT_ACK_TEXT, b"")), message.sequence, offset)


class _Socket:
    """Owns a netlink socket of the network namespace in which it was made."""

    def __init__(self, protocol: int, flags: int = 0) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | flags, protocol)

    def close(self) -> None:
        """Close the socket; safe to repeat."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Connection(_Socket):
    """A socket for requests to one netlink family, ``socket.NETLINK_ROUTE`` or ``NETLINK_NETFILTER``.

    It belongs to the network namespace in which it was made. Not for use by two tasks across an await: none of its
    methods awaits, so that cannot happen in one event loop.
    """

    def __init__(self, protocol: int) -> None:
        super().__init__(protocol)
        try:
            self._socket.bind((0, 0))
            # Not settimeout(): that would make MSG_DONTWAIT wait.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_SECONDS, 0))
            for option in (_CAP_ACK, _EXT_ACK):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[0]
        self._sequence = 0
        self._send_buffer = 0

    def next_sequence(self) -> int:
        """Give a fresh sequence number, for callers that frame messages themselves."""
        self._sequence = self._sequence % 0x7FFFFFFF + 1
        return self._sequence

    def request(self, kind: int, body: bytes, flags: int = NLM_F_ACK) -> list[Message]:
        """Send one request and give its answers (none for a bare acknowledgement); raises NetlinkError.

        With flags that lack NLM_F_ACK the kernel must answer by a message, as it does for a plain GET.
        """
        sequence = self.next_sequence()
        self._send(frame(kind, flags | NLM_F_REQUEST, sequence, body))
        answers: list[Message] = []
        while True:
            for message in self._receive(sequence):
                if message.kind == NLMSG_ERROR:
                    failure = _failure(message)
                    if failure:
                        raise failure
                    return answers
                answers.append(message)
            if answers and not flags & NLM_F_ACK:
                return answers

    def dump(self, kind: int, body: bytes) -> list[Message]:
        """List objects; repeats while the kernel says that they changed meanwhile, then DumpInterruptedError."""
        for _ in range(_DUMP_ATTEMPTS):
            with contextlib.suppress(DumpInterruptedError):
                return list(self.stream(kind, body))
        raise DumpInterruptedError(f"what was listed changed during each of {_DUMP_ATTEMPTS} attempts")

    def stream(self, kind: int, body: bytes) -> Iterator[Message]:
        """List objects as they come, for lists that are too long to wait for; nothing else may be asked meanwhile.

        Raises:
            NetlinkError: the kernel refused.
            DumpInterruptedError: at the end, when what was listed changed meanwhile.
        """
        sequence = self.next_sequence()
        self._send(frame(kind, NLM_F_REQUEST | NLM_F_DUMP, sequence, body))
        interrupted = False
        while True:
            for message in self._receive(sequence):
                interrupted = interrupted or bool(message.flags & NLM_F_DUMP_INTR)
                if message.kind == NLMSG_DONE:
                    if len(message.body) >= 4:
                        (number,) = _ERRNO.unpack_from(message.body)
                        if number < 0:
                            raise NetlinkError(-number, "", sequence)
                    if interrupted:
                        raise DumpInterruptedError("what was listed changed meanwhile")
                    return
                if message.kind == NLMSG_ERROR:
                    failure = _failure(message)
                    if failure:
                        raise failure
                    return  # an acknowledgement instead of a list: nothing to list
                yield message

    def send_all(self, data: bytes) -> list[NetlinkError | None]:
        """Send framed messages in one go; give each error and, as None, each acknowledgement that came back."""
        self._send(data)
        results: list[NetlinkError | None] = []
        while True:
            try:
                received = self._socket.recv(_RECEIVE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return results
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise
                results.append(NetlinkError(errno.ENOBUFS, "answers of the kernel were lost"))
                continue
            results.extend(_failure(message) for message in messages(received) if message.kind == NLMSG_ERROR)

    def _send(self, data: bytes) -> None:
        self._drop_stale()
        if len(data) > 100_000 and len(data) > self._send_buffer:
            # netlink_sendmsg() refuses more than the send buffer holds with EMSGSIZE. FORCE needs CAP_NET_ADMIN.
            self._send_buffer = 2 * len(data)
            with contextlib.suppress(PermissionError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, self._send_buffer)
        self._socket.sendto(data, (0, 0))

    def _drop_stale(self) -> None:
        """Throw away answers to a request that was given up, so that the next one starts clean."""
        while True:
            try:
                self._socket.recv(_RECEIVE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise

    def _receive(self, sequence: int) -> Iterator[Message]:
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError as problem:
            raise NetlinkError(errno.ETIMEDOUT, f"no answer from the kernel in {_ANSWER_SECONDS} s") from problem
        for message in messages(data):
            if message.kind == _NLMSG_OVERRUN:
                raise NetlinkError(errno.ENOBUFS, "answers of the kernel were lost", sequence)
            if message.sequence == sequence:
                yield message


def _without_sender(port: int) -> bytes:
    """Give a socket filter that drops what one port caused (linux/filter.h: load the header's port; if it is that, 0).

    The kernel puts notifications of one transaction together, never those of two senders.
    """
    header_port = int.from_bytes(struct.pack("=I", port), "big")
    steps = ((0x20, 0, 0, 12), (0x15, 0, 1, header_port), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class Listener(_Socket):
    """A socket for notifications of one netlink family; it listens from the moment it is made.

    Args:
        protocol: as of a Connection.
        groups: the multicast groups.
        buffer_bytes: kernel memory for notifications that wait to be read; when it is full, they are lost.
        deaf_to: a port whose own doings are not told: so a large change that we make ourselves neither fills the buffer
            nor takes time. None to hear everything.
    """

    def __init__(
        self, protocol: int, groups: Iterable[int], buffer_bytes: int = 4 << 20, deaf_to: int | None = None
    ) -> None:
        super().__init__(protocol, socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(PermissionError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
            if deaf_to is not None:
                steps = ctypes.create_string_buffer(_without_sender(deaf_to))
                program = struct.pack("@HP", 4, ctypes.addressof(steps))  # struct sock_fprog
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            self._socket.bind((0, 0))
            for group in groups:
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        except OSError:
            self._socket.close()
            raise

    async def receive(self) -> list[Message]:
        """Wait for notifications and give all that have arrived; raises NotificationsLostError, then goes on."""
        while True:
            await readable(self._socket.fileno())
            found = self.waiting()
            if found:
                return found

    def waiting(self) -> list[Message]:
        """Give what has arrived, without waiting; of very much a part, so that others have their turn."""
        found: list[Message] = []
        while len(found) < _MOST_AT_ONCE:
            try:
                found.extend(messages(self._socket.recv(_RECEIVE)))
            except BlockingIOError:
                break
            except OSError as problem:
                if problem.errno == errno.ENOBUFS:
                    raise NotificationsLostError from problem
                raise
        return found
