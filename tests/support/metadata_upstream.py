"""A running metadata proxy between raw sockets: the fake cloud, or scripted bytes, behind it.

Here: both sides of the proxy in one event loop. Not here: the clouds themselves (podgate.lab.peers.clouds).
Invariant: everything listens on loopback and is gone with the block.
"""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from podgate.features.metadata.filter import Filter
from podgate.features.metadata.server.exposure import Exposure
from podgate.features.metadata.server.journal import Journal
from podgate.features.metadata.server.limits import Limits
from podgate.features.metadata.server.memory import Memory
from podgate.features.metadata.server.pool import ServerAddress
from podgate.features.metadata.server.proxy import Proxy, Setup
from podgate.lab.peers.clouds.cloud import Cloud
from podgate.lab.peers.clouds.gce import Gce
from podgate.lab.peers.clouds.serving import CloudServer
from podgate.observe.logs import Log
from podgate.targets.cell.apply import Cell
from podgate.targets.cell.state import State as Held
from podgate.targets.listeners.apply import ListenersTarget
from podgate.targets.listeners.state import ListenAddress, State

T = TypeVar("T")

ZONE: Final = "/computeMetadata/v1/instance/zone"
KUBE_ENV: Final = "/computeMetadata/v1/instance/attributes/kube-env"
PROXY: Final = ListenAddress("127.0.0.1", 0, "proxy")
CLOSED: Final = ListenAddress("127.0.0.1", 0, "closed")

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def get(target: str = ZONE, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    """Write a request as GCE's clients do."""
    lines = [f"{method} {target} HTTP/{version}", "Host: metadata.google.internal", "Metadata-Flavor: Google", *headers]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


class World:
    """A proxy and what is around it."""

    def __init__(self, proxy: Proxy, cell: Cell, target: ListenersTarget, log: io.StringIO, journal: Path) -> None:
        self.proxy = proxy
        self.cell = cell
        self.target = target
        self.log = log
        self.journal = journal
        self.stop = asyncio.Event()
        self.stopped = asyncio.Event()

    @property
    def port(self) -> int:
        return self.target.ports()[PROXY]

    def port_of(self, where: ListenAddress) -> int:
        return self.target.ports()[where]

    def use(self, filter_: Filter) -> None:
        self.cell.swap(Held(filter_))

    async def connect(self, port: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port or self.port)

    async def ask(self, data: bytes, port: int | None = None, seconds: float = 60.0) -> bytes:
        """Send bytes, and give everything until the proxy closes; the requests say Connection: close, or are bad."""
        reader, writer = await self.connect(port)
        try:
            writer.write(data)
            async with asyncio.timeout(seconds):
                return await reader.read()
        finally:
            writer.close()

    async def status(self, data: bytes) -> int:
        """Send one request on a fresh connection, and give the status of the first answer."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            async with asyncio.timeout(60):
                return (await read_answer(reader))[0]
        finally:
            writer.close()


async def read_answer(reader: asyncio.StreamReader, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Read one answer, in the plainest way: status, headers by lower-case name, body."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = b""
    if head_only:
        pass
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif first.split()[1] not in ("204", "304"):
        body = await reader.read()
    return int(first.split()[1]), headers, body


@asynccontextmanager
async def proxy_to(
    upstream: tuple[str, int],
    *,
    folder: Path | None = None,
    filter_: Filter | None = None,
    limits: Limits | None = None,
    exposure: Exposure | None = None,
    memory: Memory | None = None,
    token_hops: int = 1,
    addresses: frozenset[ListenAddress] = frozenset({PROXY, CLOSED}),
) -> AsyncIterator[World]:
    """Have a proxy in front of an address; ``folder`` takes its access log, ``addresses`` are where it listens."""
    cell, text = Cell(), io.StringIO()
    cell.swap(Held(filter_ or Filter()))
    log = Log(text)
    path = (folder or Path("/nonexistent")) / "access.log"
    file = path.open("ab") if folder else None

    def journal(proxy: Proxy) -> Journal | None:
        later = asyncio.get_running_loop().call_later
        return Journal(log, proxy.counts, time.time, later, file.fileno()) if file else None

    setup = Setup(ServerAddress(*upstream), exposure or Exposure(), limits or Limits(), token_hops)
    proxy = Proxy(setup, cell, log, journal, memory or Memory(root="/nonexistent"))
    target = ListenersTarget({"proxy": proxy.serve, "closed": proxy.serve_closed}, proxy.life)
    world = World(proxy, cell, target, text, path)

    async def life() -> None:
        async for _ in target.signals():
            raise AssertionError

    try:
        async with asyncio.TaskGroup() as group:
            living = group.create_task(life())
            await asyncio.sleep(0)
            refused = await target.apply(target.diff(State(), State(addresses)))
            assert not refused, refused
            waiting = group.create_task(_stop(world, living))
            try:
                yield world
            finally:
                world.stop.set()
                await asyncio.wait((waiting,))
    finally:
        if file:
            file.close()


async def _stop(world: World, living: asyncio.Task[None]) -> None:
    await world.stop.wait()
    living.cancel()
    await asyncio.wait((living,))
    world.stopped.set()


@asynccontextmanager
async def cloud_behind(cloud: Cloud | None = None, **options: Any) -> AsyncIterator[tuple[World, CloudServer]]:
    """Have a fake cloud, and a proxy in front of it."""
    serving = CloudServer(cloud or Gce())
    async with serving.listening([("127.0.0.1", 0)]) as taken, proxy_to(taken[0], **options) as world:
        yield world, serving


@asynccontextmanager
async def script_behind(script: Script, **options: Any) -> AsyncIterator[World]:
    """Have an upstream that does what a function says, for each connection, and a proxy in front of it."""
    server = await asyncio.start_server(_closing(script), "127.0.0.1", 0)
    async with server:
        name = server.sockets[0].getsockname()
        async with proxy_to((name[0], name[1]), **options) as world:
            yield world


def _closing(script: Script) -> Script:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return serve


def answering(*pieces: bytes, close: bool = False, pause: float = 0.0) -> Script:
    """Give a script that answers every request with the same bytes, piece by piece."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            if close:
                return

    return serve


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine, at most for a while."""

    async def limited() -> T:
        async with asyncio.timeout(200):
            return await main

    return asyncio.run(limited())
