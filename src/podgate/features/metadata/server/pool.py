"""pool: the connections to the upstream: lent, taken back, opened, and bounded in number.

Here: which connection serves a request. Not here: what happens on it (upstream.py).
Invariant: there are never more than ``Limits.upstreams``, those being opened included; who finds none free gets an
answer all the same, and the oldest long poll makes room for it.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from podgate.features.metadata.server.answers import AnswerHeads
from podgate.features.metadata.server.decisions import Decision
from podgate.features.metadata.server.limits import Limits
from podgate.features.metadata.server.sockets import sockets_at
from podgate.features.metadata.server.upstream import Upstream, upstream_socket
from podgate.model.frozen import Frozen

if TYPE_CHECKING:
    from podgate.features.metadata.server.client import Client

_RECEIVE_BUFFER = 32 * 1024
"""Bytes; the kernel doubles it."""


class Address(Frozen, frozen=True):
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

    def __init__(self, address: Address, limits: Limits, view: memoryview, make_room: Callable[[], bool]) -> None:
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

    def __len__(self) -> int:
        """Give the number of connections, those being opened included."""
        return len(self._open) + len(self._opening)

    def is_ours(self, name: tuple[str, int]) -> bool:
        """Say whether a client is one of our own connections: a loop.

        A process of this node may have the port of one of ours, towards another address: then there are two sockets.
        """
        return name in self._names and sockets_at(*name) < 2

    def start(self, client: "Client", decision: Decision) -> None:
        """Serve a request on an idle connection, or on a new one."""
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.transport.is_closing():
                client.lent(upstream)
                return
        self.connect(client, decision)

    def connect(self, client: "Client", decision: Decision) -> None:
        """Serve a request on a new connection."""
        if self.group is None or (len(self) >= self._limits.upstreams and not self._make_room()):
            client.failed("every connection to the upstream is in use", 503)
            return
        ticket = object()
        self._opening.add(ticket)
        client.connecting = self.group.create_task(self._connect(client, decision, ticket))

    async def _connect(self, client: "Client", decision: Decision, ticket: object) -> None:
        upstream, why = None, ""
        try:
            async with asyncio.timeout(self._limits.connect):
                upstream = await self._opened(ticket)
        except TimeoutError:
            why = f"no connection to the upstream within {self._limits.connect:g} s"
        except OSError as error:
            why = f"the upstream cannot be reached: {error.strerror or error}"
        finally:
            self._opening.discard(ticket)
        client.connecting = None
        if upstream is None:
            client.failed(why, 502)
        elif client.decision is decision:
            client.lent(upstream)
        else:
            self.release(upstream)

    async def _opened(self, ticket: object) -> Upstream:
        loop = asyncio.get_running_loop()
        made = upstream_socket(self._family, _RECEIVE_BUFFER)
        try:
            await loop.sock_connect(made, (self.address.host, self.address.port))
        except BaseException:
            made.close()
            raise
        _, upstream = await loop.create_connection(lambda: Upstream(self, ticket), sock=made)
        return upstream

    def opened(self, upstream: Upstream) -> None:
        """Note a new connection: from now on it counts as open, no longer as being opened."""
        self._opening.discard(upstream.ticket)
        self._open.add(upstream)
        self._names.add(upstream.name)

    def closed(self, upstream: Upstream) -> None:
        """Forget a connection."""
        self._open.discard(upstream)
        self._names.discard(upstream.name)
        if upstream in self._idle:
            self._idle.remove(upstream)

    def release(self, upstream: Upstream) -> None:
        """Take a connection back after a whole answer."""
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
        for upstream in list(self._open):
            upstream.drop()
