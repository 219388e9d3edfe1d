"""pool: the connections to the upstream: lent, taken back, opened, and bounded in number.

Here: which connection serves a request. Not here: what happens on it (upstream.py).
Invariant: there are never more than ``Limits.upstreams``, those being opened included; who finds none free gets an
answer all the same, and the oldest long poll makes room for it.

A request that finds none free waits for the next one that is: most answers take less than opening a connection does,
and a connection costs memory on both of its ends. After a moment one more is opened for each that would still have to
wait for several moments, at the pace of the last one.
"""

import asyncio
import socket
import time
from collections.abc import Callable

from podgate.features.metadata.server.answers import AnswerHeads
from podgate.features.metadata.server.limits import Limits
from podgate.features.metadata.server.sockets import sockets_at
from podgate.features.metadata.server.upstream import Requester, Upstream, upstream_socket
from podgate.model.frozen import Frozen

_RECEIVE_BUFFER = 32 * 1024
"""Bytes; the kernel doubles it."""

_AT_ONCE = 16
"""Connections that are opened at the same time."""

_MOMENTS = 4
"""How many moments a request may have to wait. A moment is longer where this process has much to do."""

_STUCK = 0.01
"""Seconds until the next look while as many as that are being opened."""


class ServerAddress(Frozen, frozen=True):
    """Where the metadata server is: an IP literal, never a name, so that no resolver decides it."""

    host: str
    port: int


class Pool:
    """Connections to one upstream.

    Args:
        address: of the upstream.
        limits: how many.
        view: the buffer that all connections read into.
        make_room: ends the oldest long poll; False when there is none.
    """

    def __init__(self, address: ServerAddress, limits: Limits, view: memoryview, make_room: Callable[[], bool]) -> None:
        self.address = address
        self.view = view
        self.heads = AnswerHeads()
        self.group: asyncio.TaskGroup | None = None
        self._limits = limits
        self._make_room = make_room
        self._family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._idle: list[Upstream] = []
        self._open: set[Upstream] = set()
        self._names: set[tuple[str, int]] = set()
        self._opening: set[object] = set()
        self._waiting: dict[Requester, int] = {}
        self._waited = self._served = 0
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Give the number of connections, those being opened included."""
        return len(self._open) + len(self._opening)

    def is_ours(self, name: tuple[str, int]) -> bool:
        """Say whether a client is one of our own connections: a loop.

        A process of this node may have the port of one of ours, towards another address: then there are two sockets.
        """
        return name in self._names and sockets_at(*name) < 2

    def start(self, client: Requester) -> None:
        """Serve a request on an idle connection, or on a new one."""
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.transport.is_closing():
                client.lent(upstream)
                return
        self.connect(client)

    def connect(self, client: Requester) -> None:
        """Serve a request on the connection that is free next."""
        if self.group is None or not self._has_room():
            client.failed("every connection to the upstream is in use", 503)
            return
        self._waited += 1
        self._waiting[client] = self._waited
        if not len(self):
            self._grow()
        elif self._look is None:
            self._look_later(self._limits.moment)

    def forget(self, client: Requester) -> None:
        """Let a client wait no longer."""
        self._waiting.pop(client, None)

    def _has_room(self) -> bool:
        return len(self) < self._limits.upstreams or self._make_room()

    def _look_later(self, seconds: float) -> None:
        self._look = asyncio.get_running_loop().call_later(seconds, self._grow)

    def _grow(self) -> None:
        """Open connections for those that wait, and look again, as long as somebody does."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self.group is None or not self._waiting:
            return
        wanted = min(len(self._waiting) - _MOMENTS * self._served, _AT_ONCE) - len(self._opening)
        self._served = 0
        for _ in range(wanted):
            if not self._has_room():
                break
            ticket = object()
            self._opening.add(ticket)
            self.group.create_task(self._connect(ticket, self._waited))
        self._look_later(_STUCK if len(self._opening) >= _AT_ONCE else self._limits.moment)

    async def _connect(self, ticket: object, waited: int) -> None:
        try:
            async with asyncio.timeout(self._limits.connect):
                await self._open_one(ticket)
                return
        except TimeoutError:
            why = f"no connection to the upstream within {self._limits.connect:g} s"
        except OSError as error:
            why = f"the upstream cannot be reached: {error.strerror or error}"
        finally:
            self._opening.discard(ticket)
        # The attempt is the answer to everybody who waited already when it began.
        for client in [each for each, number in self._waiting.items() if number <= waited]:
            self.forget(client)
            client.failed(why, 502)
        if not len(self):
            self._grow()

    async def _open_one(self, ticket: object) -> None:
        loop = asyncio.get_running_loop()
        made = upstream_socket(self._family, _RECEIVE_BUFFER)
        try:
            await loop.sock_connect(made, (self.address.host, self.address.port))
        except BaseException:
            made.close()
            raise
        await loop.create_connection(lambda: Upstream(self, ticket), sock=made)

    def opened(self, upstream: Upstream) -> None:
        """Note a new connection, which counts as open from now on, and have it serve whoever waits longest."""
        self._opening.discard(upstream.ticket)
        self._open.add(upstream)
        self._names.add(upstream.name)
        self.release(upstream)

    def closed(self, upstream: Upstream) -> None:
        """Forget a connection."""
        self._open.discard(upstream)
        self._names.discard(upstream.name)
        if upstream in self._idle:
            self._idle.remove(upstream)

    def release(self, upstream: Upstream) -> None:
        """Take a connection, after a whole answer or a new one, for whoever waits longest or for later."""
        if self._waiting and not upstream.transport.is_closing():
            upstream.resume()
            client = next(iter(self._waiting))
            self.forget(client)
            self._served += 1
            client.lent(upstream)
            return
        if len(self._idle) >= self._limits.idle_upstreams or upstream.transport.is_closing():
            upstream.transport.close()
            return
        upstream.resume()
        upstream.since = time.monotonic()
        self._idle.append(upstream)

    def sweep(self, now: float) -> None:
        """Close what was not used for a while: the oldest are at the front."""
        while self._idle and now - self._idle[0].since > self._limits.idle_upstream:
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        """Close everything at once."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for upstream in list(self._open):
            upstream.drop()
