"""What the proxy passes on, over real sockets: requests rebuilt, answers as they were."""

import asyncio
from typing import Any

import pytest

from podgate.features.metadata.server.answers import chunk
from podgate.lab.peers.clouds.gce import Gce
from tests.support.metadata_upstream import (
    CLOSED,
    KUBE_ENV,
    ZONE,
    answering,
    cloud_behind,
    get,
    proxy_to,
    read_answer,
    run,
    script_behind,
)
from tests.support.poll import poll_async

OK = b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n"


def test_a_harmless_value_comes_back_with_its_headers_and_kube_env_does_not() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, serving):
            reader, writer = await world.connect()
            writer.write(get(ZONE))
            status, headers, body = await read_answer(reader)
            assert (status, body) == (200, b"projects/123456/zones/us-central1-a")
            assert headers["metadata-flavor"] == "Google"
            assert len(headers["etag"]) == 16
            writer.write(get(KUBE_ENV))
            status, headers, body = await read_answer(reader)
            assert (status, body) == (403, b"This metadata endpoint is concealed\n")
            assert "metadata-flavor" not in headers
            writer.write(get("/computeMetadata/v1/universe/universe-domain"))  # 404 passes as it is
            status, headers, body = await read_answer(reader)
            assert (status, headers["metadata-flavor"]) == (404, "Google")
            writer.close()
            assert [asked.target for asked in serving.asked] == [ZONE, "/computeMetadata/v1/universe/universe-domain"]

    run(main())


def test_a_redirect_is_passed_on_and_names_no_proxy() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, _):
            reader, writer = await world.connect()
            writer.write(get("/computeMetadata/v1"))
            status, headers, _body = await read_answer(reader)
            assert (status, headers["location"]) == (301, "http://metadata.google.internal/computeMetadata/v1/")
            writer.close()

    run(main())


def test_head_has_the_length_and_no_body_and_the_connection_goes_on() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, _):
            reader, writer = await world.connect()
            writer.write(get(method="HEAD") + get())
            status, headers, _ = await read_answer(reader, head_only=True)
            assert (status, headers["content-length"]) == (200, "35")
            assert (await read_answer(reader))[2] == b"projects/123456/zones/us-central1-a"
            writer.close()

    run(main())


def test_a_post_for_a_token_goes_up_with_its_body_however_it_is_cut() -> None:
    target = "/computeMetadata/v1/instance/service-accounts/default/token"
    body = bytes(range(256)) * 64

    async def main() -> None:
        async with cloud_behind() as (world, serving):
            for cut in (1, 4096, len(body)):
                reader, writer = await world.connect()
                writer.write(get(target, f"Content-Length: {len(body)}", method="POST"))
                for at in range(0, min(len(body), cut * 20), cut):
                    writer.write(body[at : at + cut])
                    await asyncio.sleep(0)
                writer.write(body[min(len(body), cut * 20) :])
                status, _, answer = await read_answer(reader)
                assert (status, b"access_token" in answer) == (200, True)
                writer.close()
            assert [asked.body for asked in serving.asked] == [body] * 3

    run(main())


def test_a_client_that_expects_100_gets_it_before_its_body() -> None:
    target = "/computeMetadata/v1/instance/service-accounts/default/token"

    async def main() -> None:
        async with cloud_behind() as (world, serving):
            reader, writer = await world.connect()
            writer.write(get(target, "Content-Length: 4", "Expect: 100-continue", method="POST"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"cert")
            assert (await read_answer(reader))[0] == 200
            assert serving.asked[0].body == b"cert"
            writer.close()

    run(main())


@pytest.mark.parametrize("pause", [0.0, 0.002])
@pytest.mark.parametrize(
    ("raw", "body"),
    [
        ([OK + b"Content-Length: 5\r\n\r\nhello"], b"hello"),
        ([OK, b"Content-Le", b"ngth: 5\r\n", b"\r", b"\nhe", b"llo"], b"hello"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"hel") + chunk(b"lo") + b"0\r\n\r\n"], b"hello"),
        ([OK, b"Transfer-Encoding: chunked\r\n\r\n", b"5;x=y\r", b"\nhel", b"lo\r\n0\r\nT: x\r\n\r", b"\n"], b"hello"),
        ([b"HTTP/1.1 102 Processing\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n"], b""),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK + b"Content-Length: 2\r\n\r\nok"], b"ok"),
    ],
)
def test_every_framing_of_an_answer_arrives_whole_and_the_connection_stays(
    raw: list[bytes], body: bytes, pause: float
) -> None:
    async def main() -> None:
        async with script_behind(answering(*raw, pause=pause)) as world:
            reader, writer = await world.connect()
            for _ in range(3):
                writer.write(get())
                status, headers, found = await read_answer(reader)
                assert (status, found, headers["metadata-flavor"]) == (200, body, "Google")
            writer.close()
            assert len(world.proxy.pool) == 1

    run(main())


def test_a_connection_that_the_upstream_closed_meanwhile_costs_no_request() -> None:
    async def main() -> None:
        async with script_behind(answering(OK + b"Content-Length: 2\r\n\r\nok", close=True)) as world:
            reader, writer = await world.connect()
            for _ in range(5):
                writer.write(get())
                assert (await read_answer(reader))[2] == b"ok"
            writer.close()

    run(main())


def test_an_upstream_that_refuses_is_502_with_an_empty_body() -> None:
    async def main() -> None:
        async with script_behind(answering(OK)) as closed:
            pass
        del closed
        async with proxy_to(("127.0.0.1", 1)) as world:
            answer = await world.ask(get())
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert b"Content-Length: 0\r\n" in answer
            assert "cannot be reached" in world.log.getvalue()
            assert world.proxy.refresh().upstream_failures == 1

    run(main())


def test_a_loop_is_found_by_our_own_connection_coming_back() -> None:
    async def main() -> None:
        async with proxy_to(("127.0.0.1", 1)) as world:
            world.proxy.pool.address = type(world.proxy.pool.address)("127.0.0.1", world.port)
            answer = await world.ask(get(ZONE, "Connection: close"))
            assert answer.startswith(b"HTTP/1.1 508 ")
            assert len(world.proxy.pool) <= 1

    run(main())


def test_the_closed_port_refuses_everything() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, serving):
            answer = await world.ask(get(), world.port_of(CLOSED))
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert serving.asked == []

    run(main())


def test_a_long_poll_waits_until_something_changes() -> None:
    target = "/computeMetadata/v1/instance/tags?wait_for_change=true&timeout_sec=360"

    async def main() -> None:
        async with cloud_behind() as (world, serving):
            reader, writer = await world.connect()
            writer.write(get(target))
            await poll_async(lambda: serving.asked)
            assert world.proxy.refresh().busy == 1
            (client,) = world.proxy._clients
            assert client.deadline == float("inf")
            await serving.put("/computeMetadata/v1/instance/tags", '["new"]')
            assert (await read_answer(reader))[2] == b'["new"]'
            writer.close()

    run(main())


@pytest.mark.parametrize("how", ["close", "abort", "half-close"])
def test_a_client_that_goes_takes_its_upstream_connection_with_it(how: str) -> None:
    target = "/computeMetadata/v1/instance/tags?wait_for_change=true"

    async def main() -> None:
        async with cloud_behind() as (world, serving):
            _, writer = await world.connect()
            writer.write(get(target))
            await poll_async(lambda: serving.asked)
            assert serving.open == 1
            {"close": writer.close, "abort": writer.transport.abort, "half-close": writer.write_eof}[how]()
            await poll_async(lambda: serving.open == 0)
            await poll_async(lambda: len(world.proxy.pool) == 0)
            writer.close()

    run(main())


def test_a_client_that_sent_more_than_is_read_and_goes_is_noticed() -> None:
    target = "/computeMetadata/v1/instance/tags?wait_for_change=true"

    async def main() -> None:
        async with cloud_behind() as (world, serving):
            _, writer = await world.connect()
            writer.write(get(target) + get() * 300)
            await poll_async(lambda: serving.asked)
            (client,) = world.proxy._clients
            await poll_async(lambda: client._is_paused)
            writer.write_eof()
            await poll_async(lambda: serving.open == 0)
            writer.close()

    run(main())


def test_proxy_variables_of_the_environment_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def main() -> None:
        async with cloud_behind() as (world, _):
            assert await world.status(get()) == 200

    run(main())


def test_a_slow_reader_holds_a_bounded_part_of_a_long_answer() -> None:
    size = 8 << 20

    async def main() -> None:
        held: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            (client,) = world.proxy._clients
            writer.write(OK + b"Content-Length: %d\r\n\r\n" % size)
            for _ in range(size // 65536):
                writer.write(b"x" * 65536)
                await writer.drain()
                held.append(client._transport.get_write_buffer_size())

        async with script_behind(serve) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
            writer.write(get())
            await poll_async(lambda: any(client._is_full for client in world.proxy._clients))
            assert len(held) < size // 65536
            reader._limit = 1 << 20  # type: ignore[attr-defined]
            _, _, body = await read_answer(reader)
            assert len(body) == size
            assert 0 < max(held) < 64 * 1024
            writer.close()

    run(main())


def test_a_policy_swap_holds_from_the_next_request_on() -> None:
    from podgate.features.metadata.filter import Filter
    from podgate.features.metadata.profiles import V0112

    async def main() -> None:
        startup = "/computeMetadata/v1/instance/attributes/startup-script"
        async with cloud_behind(Gce()) as (world, _):
            reader, writer = await world.connect()
            found: list[Any] = []
            for filter_ in (Filter(), Filter(profile=V0112, opened=V0112.open), Filter()):
                world.use(filter_)
                writer.write(get(startup))
                found.append((await read_answer(reader))[0])
            assert found == [403, 200, 403]
            writer.close()

    run(main())
