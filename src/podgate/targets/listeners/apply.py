"""apply: the target that opens and closes listening sockets.

Here: sockets, and why one cannot be had. Not here: the protocols, which are handed in by name; finding a port's holder
(holders.py).
Invariant: what is open is what ``read`` gives; when the signals are cancelled, nothing is open any more.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from podgate.joints import Key, Signal, Turned
from podgate.observe.accepting import Accepting, Factory, Shortage
from podgate.targets.listeners.diff import Plan, diff
from podgate.targets.listeners.holders import holders_of
from podgate.targets.listeners.state import ListenAddress, State

BACKLOG: Final = 1024
"""Connections that the kernel keeps until they are accepted, unless net.core.somaxconn is less."""

SOCKET_BUFFER: Final = 16 * 1024
"""Bytes that the kernel buffers per connection and direction (it doubles the figure): crowds of slow clients are
charged to the memory limit of the container."""

RAISE: Final = "raise the limit of open files (LimitNOFILE=, ulimit -n)"
"""What to do where there are too few descriptors."""

Life = Callable[[], AbstractAsyncContextManager[None]]


class ListenersTarget:
    """Listens in this process.

    Args:
        protocols: what is served, by the name in ``ListenAddress.serves``.
        life: entered while the target runs; left after the last socket has closed, to let connections end in peace.
    """

    def __init__(self, protocols: Mapping[str, Factory], life: Life = contextlib.nullcontext) -> None:
        self._protocols = protocols
        self._life = life
        self._open: dict[ListenAddress, Accepting] = {}
        self._told: asyncio.Queue[str] = asyncio.Queue()
        self._shortage = Shortage(self._told.put_nowait)

    async def read(self) -> State:
        """Give what is open."""
        return State(frozenset(self._open))

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Close, then open; an address that cannot be is refused with the reason."""
        for where in plan.closed:
            if where in self._open:
                self._open.pop(where).close()
        refused: dict[Key, str] = {}
        for where in plan.opened:
            try:
                self._open[where] = Accepting(bind(where), self._protocols[where.serves], self._shortage)
            except OSError as error:
                refused[where] = why(where, error)
        return refused

    def ports(self) -> dict[ListenAddress, int]:
        """Give the port of each open socket: what the kernel chose where an address says 0."""
        return {where: accepting.port for where, accepting in self._open.items()}

    async def signals(self) -> AsyncIterator[Signal]:
        """Tell when connections wait for a free descriptor; when cancelled, close all sockets, then leave ``life``."""
        async with self._life():
            try:
                while True:
                    why = await self._told.get()
                    yield Turned(f"{why}: {RAISE}" if why else "new connections are taken again", fault=bool(why))
            finally:
                self._shortage.forget()
                for accepting in self._open.values():
                    accepting.close()
                self._open.clear()


def bind(where: ListenAddress) -> socket.socket:
    """Bind a socket; accepted ones inherit its buffer sizes (tcp(7)). Raises OSError."""
    family = socket.AF_INET6 if ":" in where.address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart does not wait for TIME_WAIT
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((where.address, where.port))
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def why(where: ListenAddress, error: OSError) -> str:
    """Say why an address cannot be had, and what to do."""
    if error.errno == errno.EADDRINUSE:
        holders = holders_of(where.port)
        who = ", ".join(holders) or "a process that /proc does not show from here"
        return f"port {where.port} is in use by {who}: stop it, or listen elsewhere"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where.address} is no address of this machine: add it to an interface, or listen elsewhere"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {where.port} needs the capability NET_BIND_SERVICE: grant it, or use a port from 1024 on"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"no descriptor is free to listen with ({os.strerror(error.errno)}): {RAISE}"
    return f"cannot listen: {os.strerror(error.errno or 0)}"
