"""Telling the proxy over a real socket: all that is known at once, every change, and nobody is waited for."""

import asyncio
import contextlib
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from podgate.features.metadata.filter import Client, NamedPolicy
from podgate.features.metadata.spec import PolicySpec, Rule
from podgate.features.metadata.watched import LONGEST, Watched, line_of, read_line
from podgate.features.metadata.watcher.sending import TAKING, TOO_LONG, SendingTarget
from podgate.joints import ApplyError
from podgate.targets.cell.state import State
from tests.support.asynchronous import in_loop
from tests.support.poll import poll_async
from tests.support.virtual_time import in_virtual_time_over_sockets

ONE, TWO = Watched(clients={"10.0.0.1": Client("a/b")}), Watched(clients={})
Tell = Callable[[Watched], Coroutine[Any, Any, None]]


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Tell]:
    target = SendingTarget(str(path))

    async def listen() -> None:
        async for _ in target.signals():
            pass

    async def tell(watched: Watched) -> None:
        await target.apply(target.diff(await target.read(), State(watched)))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        await poll_async(path.exists)
        try:
            yield tell
        finally:
            task.cancel()


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=LONGEST)
    try:
        yield reader
    finally:
        writer.close()


@in_loop
async def test_who_connects_gets_all_that_is_known_and_then_each_change(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path) as tell, reading(path) as early:
        assert await early.readline() == b"\n"
        await tell(ONE)
        async with reading(path) as late:
            assert await late.readline() == line_of(ONE)
            await tell(TWO)
            assert [await early.readline(), await early.readline()] == [line_of(ONE), line_of(TWO)]
            assert await late.readline() == line_of(TWO)


@in_virtual_time_over_sockets
async def test_who_connects_late_hears_how_old_it_is_by_now(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as tell:
        async with reading(tmp_path / "s"):
            await tell(Watched(clients={}, unheard=5.0))
        await asyncio.sleep(600)
        async with reading(tmp_path / "s") as late:
            heard = read_line(await late.readline())
    assert heard is not None
    assert heard.unheard == pytest.approx(605, abs=5)


@in_loop
async def test_the_socket_goes_with_the_process_and_readers_hear_of_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with contextlib.AsyncExitStack() as stack:
        async with serving(path) as tell:
            reader = await stack.enter_async_context(reading(path))
            assert await reader.readline() == b"\n"
            await tell(ONE)
            assert await reader.readline() == line_of(ONE)
        assert await reader.read() == b""
        assert not path.exists()


@in_loop
async def test_a_socket_left_by_a_dead_process_is_replaced_and_no_stranger_may_connect(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = await asyncio.start_unix_server(lambda _r, _w: None, str(path))
    left.close()
    async with serving(path):
        await poll_async(lambda: stat.S_IMODE(path.stat().st_mode) == 0o660)
        async with reading(path) as reader:
            assert await reader.readline() == b"\n"


@in_loop
async def test_a_reader_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    rules = tuple(Rule((f"/{'x' * 4000}{index}",), "deny") for index in range(250))
    big = [Watched((NamedPolicy(name, PolicySpec(rules)),)) for name in "ab"]
    async with serving(tmp_path / "s") as tell, reading(tmp_path / "s") as quick:
        slow = socket.socket(socket.AF_UNIX)
        with slow:
            slow.connect(str(tmp_path / "s"))
            assert await quick.readline() == b"\n"
            for _ in range(12):
                for each in big:
                    await tell(each)
                    assert await quick.readline() == line_of(each)
            heard = sum(map(len, iter(lambda: slow.recv(LONGEST), b"")))
    assert heard < 12 * len(line_of(big[0]))


@in_virtual_time_over_sockets
async def test_what_nobody_took_is_not_written_and_who_comes_next_takes_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as tell:
        for each in (ONE, TWO):
            with pytest.raises(ApplyError, match=r"nobody reads .*: see whether podgate metadata run is there"):
                await tell(each)
        async with reading(tmp_path / "s") as reader:
            assert await reader.readline() == line_of(TWO)
            await tell(TWO)


@in_virtual_time_over_sockets
async def test_a_reader_that_is_just_starting_is_waited_for(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as tell, asyncio.TaskGroup() as group:
        telling = group.create_task(tell(ONE))
        await asyncio.sleep(TAKING / 2)
        async with reading(tmp_path / "s") as reader:
            assert await reader.readline() == line_of(ONE)
            await telling


HUGE = Watched(why=LONGEST * "x")


@pytest.mark.parametrize("before", [None, ONE])
@in_loop
async def test_more_than_a_line_may_hold_is_said_and_what_was_said_before_grows_old(
    before: Watched | None, tmp_path: Path
) -> None:
    async with serving(tmp_path / "s") as tell, reading(tmp_path / "s") as reader:
        assert await reader.readline() == b"\n"
        if before is not None:
            await tell(before)
            await reader.readline()
        for _ in range(2):
            with pytest.raises(ApplyError, match="use fewer rules"):
                await tell(HUGE)
        heard = read_line(await reader.readline())
        assert heard is not None
        assert (heard.clients, heard.strictest) == ((None, True) if before is None else (before.clients, False))
        assert (heard.unheard, heard.why) == (0.0, TOO_LONG)
        await tell(TWO)
        assert await reader.readline() == line_of(TWO)


@in_loop
async def test_where_no_socket_can_be_is_said() -> None:
    with pytest.raises(ApplyError, match="/nowhere/s: cannot be written to"):
        async for _ in SendingTarget("/nowhere/s").signals():
            pass


def test_the_process_ends_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "podgate.cli", "metadata", "watch", "--no-objects", "--node-name", "n"]
    with (tmp_path / "log").open("wb") as log:
        watching = subprocess.Popen(["unshare", "--net", *words], stdout=subprocess.PIPE, stderr=log)
    try:
        assert watching.stdout is not None
        while (line := watching.stdout.readline()) == b"\n":
            pass
        assert b'"clients":null' in line
        watching.stdout.close()
        assert watching.wait(60) == 1
    finally:
        watching.kill()
        watching.wait()
    assert "nobody reads it any more" in (tmp_path / "log").read_text()
