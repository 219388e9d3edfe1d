"""loopback: node ports on loopback addresses, with nftables: connections that this process passes on (KEP-6032).

Here: choosing an endpoint for a client, and the two connections that are one. Not here: where to listen
(loopback_ports.py), listening sockets (listening.py), how many clients there may be (room.py).
Invariant: bytes wait in one direction for one read at most, and whoever does not read stops the other; an end of one
direction is passed on alone, and what broke is never shown as an end.
"""

import asyncio
import contextlib
import random
import socket
import time
from functools import partial
from typing import Final, cast

from podgate.features.services.addresses import address_text
from podgate.features.services.intent import Intent
from podgate.features.services.loopback_ports import LoopbackPorts, node_port_of
from podgate.features.services.server.room import Room
from podgate.model.machine import Family
from podgate.observe.accepting import RESET, Factory
from podgate.targets.cell.apply import Cell

CHUNK: Final = 64 * 1024
"""Bytes that are read at once, and that the kernel may buffer per socket and direction (it doubles the figure)."""

CONNECT_SECONDS: Final = 3.0
"""For how long an endpoint may be silent: long enough for a second SYN, which the kernel sends after 1 s."""

TRIES: Final = 3
"""How many endpoints a client is led to before it is refused."""


class Loopback:
    """Passes clients of node ports on to endpoints.

    Args:
        cell: holds the intent that new connections follow.
        room: says how many clients there may be.
    """

    def __init__(self, cell: Cell, room: Room) -> None:
        self._cell = cell
        self._room = room
        self._ports = LoopbackPorts()
        self._staying: dict[tuple[Family, int], tuple[str, bytes, float]] = {}
        self._buffer = memoryview(bytearray(CHUNK))
        self._clients: set[_Client] = set()

    def protocol(self, name: str) -> Factory | None:
        """Give what is spoken at an address of that name; None where it is not one of these."""
        place = node_port_of(name)
        return None if place is None else partial(self._take, place)

    def _take(self, place: tuple[Family, int]) -> "_Client | None":
        """Take a client; None where there are too many."""
        if len(self._clients) >= self._room.shares.clients:
            return None
        client = _Client(self, place, self._buffer)
        self._clients.add(client)
        return client

    def left(self, client: "_Client") -> None:
        """Forget a client."""
        self._clients.discard(client)

    def candidates(self, place: tuple[Family, int]) -> list[bytes]:
        """Give the endpoints to try for a new connection in order; the one that clients stay with is first."""
        port = self._ports.port(self._cell.value or Intent(), *place)
        if port is None:
            return []
        found = random.sample(port.cluster, min(TRIES, len(port.cluster)))
        name, endpoint, until = self._staying.get(place, ("", b"", 0.0))
        if port.sticky and name == port.name and endpoint in port.cluster and time.monotonic() < until:
            found = [endpoint, *(each for each in found if each != endpoint)][:TRIES]
        return found

    def chose(self, place: tuple[Family, int], endpoint: bytes) -> None:
        """Note where a client went: with affinity the next ones follow, as all of them are this node."""
        port = self._ports.port(self._cell.value or Intent(), *place)
        if port is not None and port.sticky:
            self._staying[place] = (port.name, endpoint, time.monotonic() + port.sticky)
        else:
            self._staying.pop(place, None)


class _Side(asyncio.BufferedProtocol):
    """One of two connections; ``buffer`` is shared by all, since what was read into it is passed on at once."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.other: _Side | None = None
        self.early = b""
        self.ended = self.lost = False
        self.transport: asyncio.Transport | None = None

    def join(self, other: "_Side") -> None:
        """Become one connection with another side; what came before that is passed on now."""
        self.other, other.other = other, self
        for each in (self, other):
            each.read_on(wanted=True)
        for one, to in ((self, other), (other, self)):
            if one.early:
                to.write(one.early)
                one.early = b""
        for one in (self, other):
            if one.lost:
                one.break_off()
            elif one.ended:
                one.finish()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have all methods of asyncio's, but do not inherit from it.
        self.transport = made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=0)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._set_option(option, CHUNK)
        self._set_option(socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        if self.other is None:
            self.early += data
            self.read_on(wanted=False)
        else:
            self.other.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if self.other is not None:
            self.finish()
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.read_on(wanted=False)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.read_on(wanted=True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.lost, self.transport = True, None
        self.break_off()

    def read_on(self, *, wanted: bool) -> None:
        """Read, or stop reading."""
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def write(self, data: bytes) -> None:
        """Send."""
        if self.transport is not None:
            self.transport.write(data)

    def reset(self) -> None:
        """Break the connection off so that nobody takes what came for the whole."""
        if self.transport is not None:
            self._set_option(socket.SO_LINGER, RESET)
            self.transport.abort()

    def finish(self) -> None:
        """Pass on that this side sends no more; after both do, close."""
        other = self.other
        if other is None:
            return
        if other.ended:
            for each in (self, other):
                if each.transport is not None:
                    each.transport.close()  # once what was written has gone
        elif other.transport is not None and not other.transport.is_closing():
            other.transport.write_eof()

    def break_off(self) -> None:
        """Reset the other side, unless all that it should get was sent to it."""
        other = self.other
        if other is not None and not (self.ended and other.ended):
            other.reset()

    def _set_option(self, option: int, value: int | bytes) -> None:
        assert self.transport is not None  # noqa: S101 - the callers looked; this tells mypy
        with contextlib.suppress(OSError):  # it has broken already
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, value)


class _Client(_Side):
    """A client of a node port, until an endpoint took it and after."""

    def __init__(self, loopback: Loopback, place: tuple[Family, int], buffer: memoryview) -> None:
        super().__init__(buffer)
        self._loopback, self._place = loopback, place
        self._leading: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._leading = asyncio.get_running_loop().create_task(self._lead())

    def connection_lost(self, exc: Exception | None) -> None:
        self._loopback.left(self)
        if self._leading is not None:
            self._leading.cancel()
        super().connection_lost(exc)

    async def _lead(self) -> None:
        """Connect to an endpoint; to another one where that fails."""
        loop = asyncio.get_running_loop()
        for endpoint in self._loopback.candidates(self._place):
            host, port = address_text(endpoint[:-2]), int.from_bytes(endpoint[-2:], "big")
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, upstream = await loop.create_connection(lambda: _Side(self._buffer), host, port)
            except OSError:
                continue
            self._loopback.chose(self._place, endpoint)
            self.join(upstream)
            return
        self.reset()
