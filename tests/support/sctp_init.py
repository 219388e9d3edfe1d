"""SCTP without sockets of SCTP, which many kernels lack: an INIT, made by hand, and who it arrives at.

Here: the packet and its checksum (RFC 9260), raw sockets that see it arrive. Not here: an answer: nobody gives one, so
a refusal cannot be told from a loss.
Invariant: what is counted as arrived has a valid checksum and the tag of the INIT that was sent.
"""

import itertools
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from podgate.linux.namespaces import inside_network

_SCTP: Final = 132
_INIT: Final = 1
_HEADER: Final = struct.Struct("!HHI")
_CHUNK: Final = struct.Struct("!BBHIIHHI")


def crc32c(data: bytes) -> int:
    """Give the checksum of RFC 9260, appendix A."""
    value = 0xFFFF_FFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F6_3B78 if value & 1 else 0)
    return value ^ 0xFFFF_FFFF


def init(source: int, destination: int, tag: int) -> bytes:
    """Give an INIT from port to port."""
    chunk = _CHUNK.pack(_INIT, 0, _CHUNK.size, tag, 65536, 1, 1, 1)
    header = _HEADER.pack(source, destination, 0)
    return header + struct.pack("<I", crc32c(header + bytes(4) + chunk)) + chunk


class Arrived(NamedTuple):
    """An INIT where it arrived: who got it, at which port, and the sender's address."""

    address: str
    port: int
    source: str


class Listeners:
    """Raw sockets that see what arrives at addresses; each is given with a descriptor of its network namespace."""

    def __init__(self, places: Sequence[tuple[int, str]]) -> None:
        self._sockets: dict[int, tuple[socket.socket, str]] = {}
        self._tags = itertools.count(0x7067_0001)
        for namespace, address in places:
            with inside_network(namespace):
                one = socket.socket(_family(address), socket.SOCK_RAW, _SCTP)
            one.setblocking(False)
            one.bind((address, 0))
            self._sockets[one.fileno()] = one, address

    def close(self) -> None:
        for one, _ in self._sockets.values():
            one.close()

    def send(self, senders: Sequence[tuple[int, str, int, int]], seconds: float) -> list[Arrived | None]:
        """Send INITs, each from a namespace to an address and port, from a source port; give where they arrived."""
        tags: dict[int, int] = {}
        for index, (namespace, address, port, source) in enumerate(senders):
            tag = next(self._tags)
            tags[tag] = index
            with inside_network(namespace):
                sender = socket.socket(_family(address), socket.SOCK_RAW, _SCTP)
            with sender:
                sender.sendto(init(source, port, tag), (address, 0))
        found: dict[int, Arrived] = {}
        deadline = time.monotonic() + seconds
        while len(found) < len(senders) and (left := deadline - time.monotonic()) > 0:
            for descriptor in select.select(list(self._sockets), [], [], left)[0]:
                found |= self._taken(descriptor, tags)
        return [found.get(index) for index in range(len(senders))]

    def _taken(self, descriptor: int, tags: Mapping[int, int]) -> dict[int, Arrived]:
        one, address = self._sockets[descriptor]
        data, peer = one.recvfrom(2048)
        if one.family == socket.AF_INET:  # with its IP header, of as many words as the header says
            data = data[(data[0] & 15) * 4 :]
        _, port, _ = _HEADER.unpack_from(data)
        (checksum,) = struct.unpack_from("<I", data, _HEADER.size)
        kind, _, _, tag, *_ = _CHUNK.unpack_from(data, _HEADER.size + 4)
        if kind != _INIT or tag not in tags:
            return {}
        assert checksum == crc32c(data[: _HEADER.size] + bytes(4) + data[_HEADER.size + 4 :])
        return {tags[tag]: Arrived(address, port, str(peer[0]))}


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
