"""Taking taints away over real HTTP: a Node that refuses keeps no other waiting, and one that is gone is no failure."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from podgate.joints import ApplyError
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.targets.kubernetes.taints import Tainted, Taints
from podgate.targets.kubernetes.untainting import TaintsTarget
from tests.support.asynchronous import in_loop

A, B, C = (Tainted(name, f"uid-{name}", "k", (0,)) for name in "abc")


@asynccontextmanager
async def api(codes: Mapping[str, int], asked: list[str]) -> AsyncIterator[TaintsTarget]:
    """Answer a patch of each Node with a code."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                name = head.split()[1].decode().rpartition("/")[2]
                asked.append(f"{head.split()[0].decode()} {name}")
                writer.write(f"HTTP/1.1 {codes[name]} X\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield TaintsTarget(Connection(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")))


async def freed(target: TaintsTarget, have: set[Tainted], want: set[Tainted]) -> None:
    assert await target.read() == Taints()
    await target.apply(target.diff(Taints(frozenset(have)), Taints(frozenset(want))))


@in_loop
async def test_each_node_is_freed_once() -> None:
    asked: list[str] = []
    async with api({"a": 200, "b": 404}, asked) as target:
        await freed(target, {C}, {A, B, C})
    assert asked == ["PATCH a", "PATCH b"]


@in_loop
async def test_all_are_tried_and_all_that_failed_is_said() -> None:
    asked: list[str] = []
    async with api({"a": 422, "b": 200, "c": 403}, asked) as target:
        with pytest.raises(ApplyError, match=r"(?s)untaint Node/a: 422.*untaint Node/c: 403"):
            await freed(target, set(), {A, B, C})
    assert len(asked) == 3


@in_loop
async def test_an_api_that_is_away_is_said() -> None:
    with pytest.raises(ApplyError) as error:
        await freed(TaintsTarget(Connection(Access("http://127.0.0.1:1"))), set(), {A})
    assert error.value.reason == "Unreachable"
