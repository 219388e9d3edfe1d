"""Clients of the pages, over real sockets, for the tests beside this file.

Here: some pages, serving them, talking to them. Not here: any expectation.
Invariant: every wait has an end: each test runs within a limit.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from podgate.observe.answers import TEXT, Answer
from podgate.observe.listen import Listen
from podgate.observe.pages import Crowd, PageServer

LOOPBACK = Listen("127.0.0.1", 0)
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LARGE = b"m" * 4_000_000


def pages() -> dict[str, Callable[[], Answer]]:
    return {
        "/healthz": lambda: (200, TEXT, b"ok\n"),
        "/readyz": lambda: (503, TEXT, b"not yet\n"),
        "/large": lambda: (200, TEXT, LARGE),
    }


def within(seconds: float, work: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await work

    asyncio.run(limited())


@contextlib.asynccontextmanager
async def serving(*, idle: float = 30.0, connections: int = 64) -> AsyncIterator[int]:
    async with PageServer(pages(), idle=idle, crowd=Crowd(connections)).listening(LOOPBACK) as bound:
        yield bound.port


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def told(port: int, *parts: bytes) -> bytes:
    """Send, and give all that comes until the server closes."""
    async with connected(port) as (reader, writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()


async def one_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split()[1]), await reader.readexactly(length)
