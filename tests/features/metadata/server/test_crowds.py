"""Under load a new request is always answered: what is idle gives way, then what merely waits."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from podgate.features.metadata.server.limits import Limits
from podgate.features.metadata.server.memory import Memory
from podgate.features.metadata.server.proxy import most_clients
from tests.support.metadata_upstream import ZONE, World, cloud_behind, get, read_answer, run
from tests.support.poll import poll_async

pytestmark = pytest.mark.slow

POLL = "/computeMetadata/v1/instance/tags?wait_for_change=true"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def crowd(world: World, count: int, data: bytes = b"") -> list[Connection]:
    found = []
    for _ in range(count):
        connection = await world.connect()
        connection[1].write(data)
        found.append(connection)
    return found


def leave(crowds: list[Connection]) -> None:
    for _, writer in crowds:
        writer.transport.abort()


def test_a_thousand_idle_and_two_hundred_busy_connections_keep_nobody_out() -> None:
    async def busy(world: World, rounds: int) -> None:
        reader, writer = await world.connect()
        for _ in range(rounds):
            writer.write(get())
            assert (await read_answer(reader))[0] == 200
        writer.close()

    async def main() -> None:
        async with cloud_behind(limits=Limits(per_source=2048)) as (world, _):
            silent = await crowd(world, 500)
            kept = await crowd(world, 500, get())
            for reader, _ in kept:
                assert (await read_answer(reader))[0] == 200
            async with asyncio.TaskGroup() as group:
                for _ in range(200):
                    group.create_task(busy(world, 5))
                for _ in range(20):
                    assert await world.status(get()) == 200
            assert sum(world.proxy.counts.shed.values()) == 0
            leave(silent + kept)

    run(main())


def test_beyond_the_limit_the_longest_idle_give_way() -> None:
    async def main() -> None:
        async with cloud_behind(limits=Limits(connections=40)) as (world, _):
            first = await crowd(world, 40)
            await poll_async(lambda: world.proxy.refresh().clients == 40)
            world.proxy.now += 1  # the sweep's clock: what comes now is younger
            late = await crowd(world, 3)
            assert await world.status(get()) == 200
            assert world.proxy.counts.shed["connections"] >= 4
            assert world.proxy.refresh().clients <= 40
            for reader, writer in late:
                writer.write(get())
                assert (await read_answer(reader))[0] == 200
            leave(first + late)

    run(main())


@pytest.mark.parametrize(("descriptors", "most"), [(256, 64), (512, 128), (1024, 448), (4096, 2048), (1 << 20, 2048)])
def test_a_low_limit_of_open_files_leaves_room_for_some_clients(descriptors: int, most: int) -> None:
    assert most_clients(descriptors, Limits()) == most


def test_one_client_cannot_use_up_the_connections_of_all() -> None:
    async def main() -> None:
        async with cloud_behind(limits=Limits(per_source=20)) as (world, _):
            greedy = await crowd(world, 60)
            await poll_async(lambda: world.proxy.refresh().clients <= 20)
            assert world.proxy.counts.shed["client"] >= 40
            assert await world.status(get()) == 200
            leave(greedy)

    run(main())


def test_when_all_connections_to_the_upstream_wait_the_oldest_long_poll_is_told_to_ask_again() -> None:
    async def main() -> None:
        async with cloud_behind(limits=Limits(upstreams=4)) as (world, serving):
            polls = await crowd(world, 4, get(POLL))
            await poll_async(lambda: len(serving.asked) == 4)
            assert await world.status(get()) == 200
            reader, _ = polls[0]
            assert (await read_answer(reader))[0] == 503
            assert world.proxy.counts.shed["long-poll"] == 1
            assert not polls[1][0].at_eof()
            leave(polls)

    run(main())


def test_without_a_long_poll_to_end_the_new_request_gets_503() -> None:
    async def main() -> None:
        async with cloud_behind(limits=Limits(upstreams=0)) as (world, _):
            assert await world.status(get()) == 503

    run(main())


def test_near_the_memory_limit_idle_connections_give_way(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("9500\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 9000\n")

    async def main() -> None:
        async with cloud_behind(memory=Memory(str(tmp_path), str(tmp_path / "cgroup"))) as (world, _):
            idle = await crowd(world, 100)
            await asyncio.sleep(1.2)
            assert sum(world.proxy.counts.shed.values()) == 0
            (tmp_path / "memory.current").write_text("9900\n")
            await poll_async(lambda: world.proxy.counts.shed["memory"] > 0)
            assert await world.status(get()) == 200
            leave(idle)

    run(main())


def test_as_many_give_way_at_once_as_are_too_many(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text(f"{10 << 20}\n")

    async def main() -> None:
        async with cloud_behind(memory=Memory(str(tmp_path), str(tmp_path / "cgroup"))) as (world, _):
            idle = await crowd(world, 200)
            await poll_async(lambda: world.proxy.refresh().clients == 200)
            world.proxy.time = lambda: time.monotonic() + 1.0  # later, nobody is between two requests
            (tmp_path / "memory.current").write_text(f"{(10 << 20) * 87 // 100 + 100 * 5120}\n")
            assert await poll_async(lambda: world.proxy.counts.shed["memory"]) in (99, 100)
            leave(idle)

    run(main())


def test_a_crowd_that_comes_at_once_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podgate.features.metadata.server.proxy._SWEEP", 3600.0)
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("950\n")

    async def main() -> None:
        async with cloud_behind(memory=Memory(str(tmp_path), str(tmp_path / "cgroup"))) as (world, _):
            idle = await crowd(world, 200)
            await poll_async(lambda: world.proxy.counts.shed["memory"] > 0)
            assert await world.status(get()) == 200
            leave(idle)

    run(main())


@pytest.mark.parametrize("many", [1, 30])
def test_on_stop_long_polls_get_503_and_close_at_once(many: int) -> None:
    async def main() -> None:
        async with cloud_behind(limits=Limits(drain=3600.0)) as (world, serving):
            polls = await crowd(world, many, get(POLL))
            idle = await crowd(world, 5)
            await poll_async(lambda: len(serving.asked) == many)
            port = world.port
            world.stop.set()
            async with asyncio.timeout(60):
                for reader, _ in polls:
                    assert b" 503 " in await reader.readline()
                await world.stopped.wait()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            leave(polls + idle)

    run(main())


def test_on_stop_other_requests_have_a_moment_to_end_and_not_more() -> None:
    from tests.support.metadata_upstream import script_behind

    stopping = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await stopping.wait()
        await asyncio.sleep(0 if ZONE.encode() in head else 3600)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    async def main() -> None:
        async with script_behind(slow, limits=Limits(drain=2.0)) as world:
            quick, never = await crowd(world, 1, get()), await crowd(world, 1, get("/computeMetadata/v1/instance/id"))
            await poll_async(lambda: world.proxy.refresh().busy == 2 and len(world.proxy.pool) == 2)
            world.stop.set()
            await poll_async(lambda: world.proxy.is_stopping)
            stopping.set()
            assert (await read_answer(quick[0][0]))[0] == 200
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    assert await never[0][0].read() == b""
                await world.stopped.wait()
            assert "connections cut at the end" in world.log.getvalue()
            leave(quick + never)

    run(main())
