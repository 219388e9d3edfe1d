"""What hostile bytes get from the running proxy: a refusal each, and never a request that was not decided on."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.features.metadata.server.limits import Limits
from podgate.lab.peers.clouds.gce import Gce
from tests.support.metadata_upstream import (
    KUBE_ENV,
    ZONE,
    World,
    answering,
    cloud_behind,
    get,
    read_answer,
    run,
    script_behind,
)
from tests.support.poll import poll_async

TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
HEAD = f"GET {ZONE} HTTP/1.1\r\nHost: metadata.google.internal\r\nMetadata-Flavor: Google\r\n".encode()
SMUGGLED = get(KUBE_ENV)

REFUSED = {
    "both lengths": (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    "the same length twice": (HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
    "a length with a sign": (HEAD + b"Content-Length: +5\r\n\r\nhello", 400),
    "chunk extensions": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n", 411),
    "a blank before the colon": (HEAD + b"X-Forwarded-For : 1\r\n\r\n", 400),
    "a folded header": (HEAD + b"X-A: 1\r\n X-Forwarded-For: 1\r\n\r\n", 400),
    "a bare line feed": (HEAD.replace(b"\r\n", b"\n") + b"\n", 400),
    "one bare line feed": (HEAD + b"X: y\nX-Forwarded-For: 1\r\n\r\n", 400),
    "a bare carriage return": (HEAD + b"X: y\rz\r\n\r\n", 400),
    "NUL in a header": (HEAD + b"X: y\0z\r\n\r\n", 400),
    "X-Forwarded-For": (HEAD + b"X-Forwarded-For: 1\r\nConnection: close\r\n\r\n", 403),
    "an empty X-Forwarded-For": (HEAD + b"x-forwarded-for:\r\nConnection: close\r\n\r\n", 403),
    "no Host": (f"GET {ZONE} HTTP/1.1\r\n\r\n".encode(), 400),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\n" * 8, 400),
    "CONNECT": (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
    "TRACE": (HEAD.replace(b"GET", b"TRACE") + b"Connection: close\r\n\r\n", 405),
    "an endless line": (b"GET /" + b"a" * 9000, 414),
    "an endless head": (HEAD + b"X: " + b"y" * 20_000, 431),
    "too many headers": (HEAD + b"X: y\r\n" * 100 + b"\r\n", 431),
    "20,000 parameters": (f"GET /?{'a=b&' * 1000} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(), 403),
    "kube-env by POST": (HEAD.replace(b"GET", b"POST") + b"Content-Length: 5\r\n\r\nhello", 405),
    "a body on GET": (HEAD + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, 403),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("followed", [b"", SMUGGLED + get()], ids=["alone", "followed"])
def test_what_could_be_read_in_two_ways_is_refused_once_and_nothing_goes_up(
    data: bytes, status: int, followed: bytes
) -> None:
    async def main() -> None:
        async with cloud_behind() as (world, serving):
            answer = await world.ask(data + followed)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
            assert answer.count(b"HTTP/1.1 4") + answer.count(b"HTTP/1.1 5") == 1
            assert serving.asked == []

    run(main())


def test_pipelined_requests_are_decided_one_by_one_and_answered_in_order() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, serving):
            reader, writer = await world.connect()
            targets = [ZONE, KUBE_ENV, "/computeMetadata/v1/instance/id", "/computeMetadata/v2/", ZONE]
            writer.write(b"".join(get(target) for target in targets))
            found = [(await read_answer(reader))[0] for _ in targets]
            assert found == [200, 403, 200, 403, 200]
            assert [asked.target for asked in serving.asked] == [targets[0], targets[2], targets[4]]
            writer.close()

    run(main())


def test_a_request_behind_a_body_is_decided_on_by_itself() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, serving):
            reader, writer = await world.connect()
            writer.write(get(TOKEN, "Content-Length: 4", method="POST") + b"cert" + get(KUBE_ENV) + get())
            assert [(await read_answer(reader))[0] for _ in range(3)] == [200, 403, 200]
            assert [asked.body for asked in serving.asked] == [b"cert", b""]
            writer.close()

    run(main())


def test_an_answer_before_the_body_has_come_ends_the_connection() -> None:
    """What follows could be the rest of the body or a request: nobody knows."""

    async def main() -> None:
        early = b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"
        async with script_behind(answering(early)) as world:
            reader, writer = await world.connect()
            writer.write(get(TOKEN, "Content-Length: 100", method="POST") + b"some")
            assert (await read_answer(reader))[0] == 413
            writer.write(get())
            assert await reader.read() == b""
            writer.close()

    run(main())


STREAM = [
    (get(ZONE), 200),
    (get(KUBE_ENV), 403),
    (get(TOKEN, "Content-Length: 11", method="POST") + b"GET / HTTP/", 200),
    (get("/computeMetadata/v1/instance/?recursive=true"), 403),
    (get("/computeMetadata/v1/instance/service-accounts/default/?recursive=true"), 200),
    (get("/computeMetadata/v1/instance/attributes//kube-env"), 403),
    (get(ZONE, method="HEAD"), 200),
    (get(ZONE), 200),
]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=30), orders=st.permutations(range(len(STREAM))))
def test_how_the_stream_is_cut_changes_nothing(cuts: list[int], orders: list[int]) -> None:
    parts = [STREAM[index] for index in orders]
    data = b"".join(part for part, _ in parts)

    async def main() -> None:
        async with cloud_behind() as (world, serving):
            reader, writer = await world.connect()
            rest = data
            for cut in cuts:
                writer.write(rest[:cut])
                rest = rest[cut:]
                await asyncio.sleep(0)
            writer.write(rest)
            for part, status in parts:
                found, _, body = await read_answer(reader, head_only=part.startswith(b"HEAD"))
                assert found == status
                assert serving.cloud.secrets["kube-env"].encode() not in body
            writer.close()
            assert len(serving.asked) == sum(status == 200 for _, status in parts)

    run(main())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), where=st.integers(0, 200))
def test_no_bytes_stop_the_proxy_or_get_a_secret(data: bytes, where: int) -> None:
    asked = get(KUBE_ENV)
    mixed = asked[:where] + data + asked[where:]

    async def main() -> None:
        cloud = Gce()
        async with cloud_behind(cloud, limits=Limits(head=0.3, linger=0.2)) as (world, _):
            reader, writer = await world.connect()
            writer.write(mixed)
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(0.05):
                    answer = await reader.read()
                    assert cloud.secrets["kube-env"].encode() not in answer
            writer.close()
            assert await world.status(get()) == 200

    run(main())


QUICK = Limits(head=0.2, idle=0.2, taking=0.3, answer=0.3, linger=0.2)
PATIENT = Limits(head=0.2, idle=0.2, taking=2.0, answer=0.3, linger=0.2)
"""A client is seen before it is cut, although this machine may stand still for a while."""


async def closed_within(world: World, data: bytes, seconds: float) -> bytes:
    return await world.ask(data, seconds=seconds)


def test_a_head_that_comes_drop_by_drop_has_one_time_for_all_of_it() -> None:
    async def main() -> None:
        async with cloud_behind(limits=QUICK) as (world, _):
            reader, writer = await world.connect()
            sent = 0
            for byte in HEAD * 10:
                writer.write(bytes((byte,)))
                sent += 1
                await asyncio.sleep(0.02)
                if reader.at_eof() or writer.is_closing():
                    break
            assert sent < 200
            writer.close()

    run(main())


@pytest.mark.parametrize("data", [b"", get()[:-2]], ids=["silent", "half a head"])
def test_who_says_nothing_whole_is_closed(data: bytes) -> None:
    async def main() -> None:
        async with cloud_behind(limits=QUICK) as (world, _):
            with contextlib.suppress(ConnectionResetError):
                assert await closed_within(world, data, 30.0) == b""

    run(main())


def test_a_body_that_does_not_come_is_408() -> None:
    async def main() -> None:
        async with cloud_behind(limits=QUICK) as (world, serving):
            answer = await world.ask(get(TOKEN, "Content-Length: 100", method="POST") + b"some")
            assert answer.startswith(b"HTTP/1.1 408 ")
            await poll_async(lambda: serving.open == 0)

    run(main())


def test_an_upstream_that_does_not_answer_is_504_but_a_long_poll_waits() -> None:
    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with script_behind(silent, limits=QUICK) as world:
            assert (await world.ask(get())).startswith(b"HTTP/1.1 504 ")
            with pytest.raises(TimeoutError):
                await world.ask(get("/computeMetadata/v1/instance/tags?wait_for_change=true"), seconds=1.5)

    run(main())


def test_a_client_that_does_not_take_its_answer_is_cut() -> None:
    big = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (8 << 20) + b"x" * (8 << 20)

    async def main() -> None:
        async with script_behind(answering(big), limits=PATIENT) as world:
            _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
            writer.write(get())
            await poll_async(lambda: world.proxy.refresh().clients == 1)
            await poll_async(lambda: world.proxy.refresh().clients == 0)
            assert len(world.proxy.pool) == 0
            writer.transport.abort()

    run(main())


def test_denials_ahead_of_a_reader_that_does_not_read_are_bounded() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, _):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
            flood = get(KUBE_ENV) * 20_000
            writer.write(flood)
            await asyncio.sleep(0.5)
            (client,) = world.proxy._clients
            assert client._transport.get_write_buffer_size() < 64 * 1024
            assert len(client._pending) < 128 * 1024
            assert await world.status(get()) == 200
            writer.transport.abort()

    run(main())
