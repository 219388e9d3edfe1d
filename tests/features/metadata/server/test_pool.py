"""Connections to the upstream: who waits for which, and when another one is opened."""

import asyncio
import socket

from podgate.features.metadata.server.limits import Limits
from tests.support.metadata_upstream import World, answering, get, proxy_to, read_answer, run, script_behind
from tests.support.poll import poll_async

FOREVER = 3600.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def asking(world: World, count: int) -> list[Connection]:
    """Have clients whose requests are all there before the first one has an answer."""
    found = [await world.connect() for _ in range(count)]
    for _, writer in found:
        writer.write(get())
    return found


async def statuses(clients: list[Connection]) -> list[int]:
    found = [(await read_answer(reader))[0] for reader, _ in clients]
    for _, writer in clients:
        writer.close()
    return found


def test_a_request_that_finds_none_free_gets_the_one_that_is_free_next() -> None:
    async def main() -> None:
        async with script_behind(answering(OK), limits=Limits(moment=FOREVER)) as world:
            assert await statuses(await asking(world, 30)) == [200] * 30
            assert len(world.proxy.pool) == 1

    run(main())


def test_after_a_moment_each_that_still_waits_has_one_opened() -> None:
    waiting: list[None] = []
    go = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        waiting.append(None)
        await go.wait()
        writer.write(OK)
        await writer.drain()

    async def main() -> None:
        async with script_behind(slow) as world:
            clients = await asking(world, 40)
            await poll_async(lambda: len(waiting) == 40)
            go.set()
            assert await statuses(clients) == [200] * 40

    run(main())


def test_one_that_closes_after_each_answer_is_replaced_for_those_that_wait() -> None:
    async def main() -> None:
        async with script_behind(answering(CLOSING, close=True)) as world:
            assert await statuses(await asking(world, 20)) == [200] * 20

    run(main())


def test_a_failed_attempt_is_the_answer_to_all_that_waited_for_it() -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # and does not listen
            async with proxy_to(unused.getsockname(), limits=Limits(moment=FOREVER)) as world:
                assert await statuses(await asking(world, 10)) == [502] * 10
                assert await statuses(await asking(world, 1)) == [502]
                assert len(world.proxy.pool) == 0

    run(main())


def test_who_has_gone_waits_no_longer_and_holds_up_nobody() -> None:
    go = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await go.wait()
            writer.write(OK)
            await writer.drain()

    async def main() -> None:
        async with script_behind(slow, limits=Limits(moment=FOREVER)) as world:
            first, *gone, last = await asking(world, 5)
            await poll_async(lambda: world.proxy.refresh().busy == 5)
            for _, writer in gone:
                writer.transport.abort()
            await poll_async(lambda: world.proxy.refresh().clients == 2)
            go.set()
            assert await statuses([first, last]) == [200, 200]
            assert len(world.proxy.pool) == 1

    run(main())


def test_a_stop_does_not_wait_for_a_connection_that_is_being_opened() -> None:
    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            kept = []
            for _ in range(3):  # the backlog is full then: further attempts get no answer
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(full.getsockname())
                kept.append(one)
            limits = Limits(connect=FOREVER, drain=0.1)
            async with proxy_to(full.getsockname(), limits=limits) as world:
                clients = await asking(world, 2)
                await poll_async(lambda: world.proxy.refresh().busy == 2)
                world.stop.set()
                async with asyncio.timeout(60):
                    await world.stopped.wait()
            for _, writer in clients:
                writer.close()
            for one in kept:
                one.close()

    run(main())
