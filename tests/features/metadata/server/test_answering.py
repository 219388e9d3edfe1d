"""How answers end, and which are passed on: whole, in one way of reading, or not at all."""

import asyncio

import pytest

from podgate.features.metadata.server.answers import chunk
from tests.support.metadata_upstream import ZONE, answering, cloud_behind, get, read_answer, run, script_behind

OK = b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n"


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\n"])
def test_an_answer_that_ends_with_its_connection_is_chunked_for_the_client(head: bytes) -> None:
    async def main() -> None:
        async with script_behind(answering(head + b"\r\nhe", b"llo", close=True)) as world:
            reader, writer = await world.connect()
            for _ in range(2):
                writer.write(get())
                status, headers, body = await read_answer(reader)
                assert (status, headers["transfer-encoding"], body) == (200, "chunked", b"hello")
            writer.close()

    run(main())


@pytest.mark.parametrize(
    ("asked", "close"),
    [
        (get(version="1.0"), True),
        (get(version="1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"), True),
        (get(ZONE, "Connection: close"), True),
    ],
)
def test_older_and_leaving_clients_get_plain_bodies(asked: bytes, close: bool) -> None:
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"hello") + b"0\r\n\r\n"

    async def main() -> None:
        async with script_behind(answering(chunked)) as world:
            answer = await world.ask(asked)
            assert (b"Connection: close\r\n" in answer) is close
            assert answer.endswith(b"hello" if b"HTTP/1.0" in asked else b"5\r\nhello\r\n0\r\n\r\n")

    run(main())


def test_an_old_client_may_keep_its_connection() -> None:
    async def main() -> None:
        async with cloud_behind() as (world, _):
            reader, writer = await world.connect()
            for _ in range(2):
                writer.write(get(ZONE, "Connection: keep-alive", version="1.0"))
                status, headers, body = await read_answer(reader)
                assert (status, headers["connection"], len(body)) == (200, "keep-alive", 35)
            writer.close()

    run(main())


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_that_have_no_body_end_with_their_head(status: str) -> None:
    async def main() -> None:
        async with script_behind(answering(f"HTTP/1.1 {status}\r\nETag: x\r\n\r\n".encode())) as world:
            reader, writer = await world.connect()
            for _ in range(2):
                writer.write(get())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head == f"HTTP/1.1 {status}\r\nETag: x\r\n\r\n".encode()
            writer.close()

    run(main())


def test_hop_by_hop_headers_of_the_answer_stay_here() -> None:
    raw = OK + b"Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nX-Other: 2\r\nContent-Length: 0\r\n\r\n"

    async def main() -> None:
        async with script_behind(answering(raw, close=True)) as world:
            reader, writer = await world.connect()
            writer.write(get())
            _, headers, _ = await read_answer(reader)
            assert headers == {"metadata-flavor": "Google", "x-other": "2", "content-length": "0"}
            writer.close()

    run(main())


BAD_ANSWERS = {
    "no HTTP": b"hello\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n",
    "both framings": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a header without a colon": OK + b"nonsense\r\n\r\n",
    "a blank before a colon": OK + b"X : y\r\n\r\n",
    "a protocol switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 40_000,
    "nothing": b"",
}


@pytest.mark.parametrize("raw", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_an_answer_that_cannot_be_read_in_one_way_is_502(raw: bytes) -> None:
    async def main() -> None:
        async with script_behind(answering(raw, close=True)) as world:
            answer = await world.ask(get())
            assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n"), answer
            assert answer.endswith(b"\r\n\r\n")

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Content-Length: 9\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    ],
)
def test_half_an_answer_never_looks_like_a_whole_one(raw: bytes) -> None:
    async def main() -> None:
        async with script_behind(answering(raw, close=True)) as world:
            reader, writer = await world.connect()
            writer.write(get())
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
                await read_answer(reader)
            writer.close()

    run(main())


def test_bytes_after_an_answer_reach_nobody() -> None:
    async def main() -> None:
        smuggled = OK + b"Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        async with script_behind(answering(smuggled)) as world:
            reader, writer = await world.connect()
            for _ in range(3):
                writer.write(get())
                assert (await read_answer(reader))[2] == b"ok"
            writer.close()

    run(main())
