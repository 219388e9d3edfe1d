"""The kernel's connection tracking table over netlink: list entries, delete one.

Here: ctnetlink's messages as values (linux/netfilter/nfnetlink_conntrack.h). Not here: which entries should go.
Invariant: an entry is deleted by both its tuple and its id, so a connection that took its place meanwhile is spared.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from podgate.linux.netlink import NLM_F_ACK, Connection, NetlinkError, attribute, attributes, nested

_SUBSYSTEM: Final = 1 << 8
_GET, _DELETE = _SUBSYSTEM + 1, _SUBSYSTEM + 2
_ORIGINAL, _REPLY, _ID, _ZONE, _FILTER = 1, 2, 12, 18, 25
_TUPLE_IP, _TUPLE_PROTOCOL, _TUPLE_ZONE = 1, 2, 3
_V4_SOURCE, _V4_DESTINATION, _V6_SOURCE, _V6_DESTINATION = 1, 2, 3, 4
_PROTOCOL, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_FILTER_ORIGINAL, _FILTER_REPLY = 1, 2
_BY_DESTINATION: Final = 1 << 1

_GENERIC: Final = struct.Struct("=BBH")
_PORT: Final = struct.Struct("!H")
_FLAGS: Final = struct.Struct("=I")


class Tuple(NamedTuple):
    """One direction of a connection. Addresses are packed; ports are 0 for protocols without any."""

    source: bytes
    destination: bytes
    protocol: int
    source_port: int = 0
    destination_port: int = 0


class Entry(NamedTuple):
    """One entry. ``key`` is what names it towards the kernel: opaque, only for ``delete``."""

    original: Tuple
    reply: Tuple
    key: bytes


def entries(connection: Connection, family: int, destination: bytes = b"") -> Iterator[Entry]:
    """List the entries of one family (``socket.AF_INET`` or ``AF_INET6``); those that cannot be read are left out.

    They come as the kernel gives them, which may be hundreds of thousands: to delete some meanwhile takes a second
    connection.

    Args:
        connection: to netfilter.
        family: as above.
        destination: list only what was first sent to this packed address; empty for all. Of IPv4 the kernel leaves
            the others out since Linux 5.8. Of IPv6 it takes the others instead (6.18 does), so it is not asked to.
    """
    only = _only(destination) if destination and family == socket.AF_INET else b""
    for message in connection.stream(_GET, _GENERIC.pack(family, 0, 0) + only):
        entry = parsed(message.body)
        if entry is not None and destination in (b"", entry.original.destination):
            yield entry


def _only(destination: bytes) -> bytes:
    """Give the attributes of a filter by the first packet's destination."""
    address = nested(_TUPLE_IP, attribute(_V4_DESTINATION, destination))
    flags = (attribute(_FILTER_ORIGINAL, _FLAGS.pack(_BY_DESTINATION)), attribute(_FILTER_REPLY, _FLAGS.pack(0)))
    return nested(_ORIGINAL, address) + nested(_FILTER, *flags)


def parsed(body: bytes) -> Entry | None:
    """Read the body of one message."""
    found = attributes(body, _GENERIC.size)
    original, reply = _tuple(found.get(_ORIGINAL)), _tuple(found.get(_REPLY))
    if original is None or reply is None:
        return None
    kept = b"".join(attribute(kind, found[kind]) for kind in (_ID, _ZONE) if kind in found)
    return Entry(original, reply, nested(_ORIGINAL, found[_ORIGINAL]) + kept)


def _tuple(data: bytes | None) -> Tuple | None:
    if data is None:
        return None
    parts = attributes(data)
    addresses, protocol = attributes(parts.get(_TUPLE_IP, b"")), attributes(parts.get(_TUPLE_PROTOCOL, b""))
    source = addresses.get(_V4_SOURCE) or addresses.get(_V6_SOURCE)
    destination = addresses.get(_V4_DESTINATION) or addresses.get(_V6_DESTINATION)
    if source is None or destination is None or _PROTOCOL not in protocol:
        return None
    return Tuple(
        source,
        destination,
        protocol[_PROTOCOL][0],
        _PORT.unpack(protocol.get(_SOURCE_PORT, b"\0\0"))[0],
        _PORT.unpack(protocol.get(_DESTINATION_PORT, b"\0\0"))[0],
    )


def delete(connection: Connection, entry: Entry) -> bool:
    """Delete one entry; False when it is gone already, or another one has taken its place.

    Raises:
        NetlinkError: the kernel refused.
    """
    family = socket.AF_INET if len(entry.original.source) == 4 else socket.AF_INET6
    try:
        connection.request(_DELETE, _GENERIC.pack(family, 0, 0) + entry.key, NLM_F_ACK)
    except NetlinkError as problem:
        if problem.errno == errno.ENOENT:
            return False
        raise
    return True
