"""The pages as probes and scrapers use them: addresses, answers, sockets.

Here: what works. Not here: what hostile clients cannot do (test_pages_limits.py); what the product's pages say.
Invariant: the real server and real sockets.
"""

import asyncio
import contextlib
import errno
import socket
from pathlib import Path

import pytest

from podgate.observe.listen import Listen, parse_listen
from podgate.observe.pages import PageServer
from tests.observe.page_clients import GET, LARGE, LAST, connected, one_answer, pages, serving, told, within

ADDRESSES = {
    "127.0.0.1:10350": Listen("127.0.0.1", 10350),
    "0.0.0.0:0": Listen("0.0.0.0", 0),
    "[::1]:10350": Listen("::1", 10350),
    "[::]:80": Listen("::", 80),
    "[0:0::1]:80": Listen("::1", 80),
    "localhost:1": Listen("127.0.0.1", 1),
    "10350": Listen("127.0.0.1", 10350),
    "unix:/run/x.sock": Listen(path="/run/x.sock"),
}

BAD_ADDRESSES = {
    "": "neither ADDRESS:PORT nor a port",
    ":10350": "write 127.0.0.1:10350",
    "::1:10350": "in brackets",
    "[127.0.0.1]:1": "only an IPv6 address",
    "127.0.0.1:": "not a port",
    "127.0.0.1:http": "not a port",
    "127.0.0.1:65536": "from 0 to 65535",
    "127.0.0.1:-1": "not a port",
    "127.0.0.1:+80": "not a port",
    "127.0.0.1: 80": "not a port",
    "127.0.0.1:٨٠": "not a port",
    "127.0.0.1:" + "9" * 5000: "not a port",
    "127.0.0.01:80": "not an IP address",
    "node-1:80": "names are not looked up",
    "unix:x.sock": "absolute path",
    "unix:/" + "x" * 107: "107 bytes",
}


@pytest.mark.parametrize(("text", "listen"), ADDRESSES.items())
def test_addresses(text: str, listen: Listen) -> None:
    assert parse_listen(text) == listen
    assert parse_listen(str(listen)) == listen


@pytest.mark.parametrize(("text", "message"), BAD_ADDRESSES.items())
def test_a_bad_address_is_named_with_what_to_write_instead(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse_listen(text)
    assert f'"{text}"' in str(refused.value)


ANSWERS = {
    "page": (b"GET /healthz", 200, b"ok\n"),
    "page that is not well": (b"GET /readyz", 503, b"not yet\n"),
    "query": (b"GET /healthz?verbose=1", 200, b"ok\n"),
    "absolute form": (b"GET http://x/healthz", 200, b"ok\n"),
    "head": (b"HEAD /healthz", 200, b""),
    "unknown page": (b"GET /", 404, b"no such page; there are /healthz /large /readyz\n"),
    "no way up": (b"GET /../healthz", 404, b"no such page; there are /healthz /large /readyz\n"),
    "other method": (b"DELETE /healthz", 405, b"only GET and HEAD\n"),
    "tunnel": (b"CONNECT x:80", 404, b"no such page; there are /healthz /large /readyz\n"),
}


@pytest.mark.parametrize(("line", "status", "body"), ANSWERS.values(), ids=ANSWERS.keys())
def test_answers(line: bytes, status: int, body: bytes) -> None:
    async def run() -> None:
        async with serving() as port:
            answer = await told(port, line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, got = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert got == body
        assert b"Cache-Control: no-store" in head
        assert b"\r\nServer: podgate\r\n" in head
        assert (b"Allow: GET, HEAD" in head) == (status == 405)
        if line.startswith(b"HEAD"):
            assert b"Content-Length: 3" in head

    within(60, run())


def test_a_connection_serves_one_request_after_another() -> None:
    async def run() -> None:
        async with serving() as port, connected(port) as (reader, writer):
            for _ in range(3):
                writer.write(GET)
                assert await one_answer(reader) == (200, b"ok\n")

    within(60, run())


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def run() -> None:
        async with serving() as port:
            answer = await told(port, GET + GET.replace(b"healthz", b"readyz") + LAST)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"503", b"200"]

    within(60, run())


def test_a_request_may_come_byte_by_byte_and_end_with_a_half_closed_connection() -> None:
    async def run() -> None:
        async with serving() as port, connected(port) as (reader, writer):
            for byte in GET:
                writer.write(bytes([byte]))
                await writer.drain()
            writer.write_eof()
            assert (await reader.read()).endswith(b"ok\n")

    within(60, run())


def test_http_1_0_is_answered_and_closed() -> None:
    async def run() -> None:
        async with serving() as port:
            assert (await told(port, b"GET /healthz HTTP/1.0\r\n\r\n")).endswith(b"ok\n")

    within(60, run())


def test_a_large_page_arrives_whole() -> None:
    async def run() -> None:
        async with serving() as port:
            assert (await told(port, LAST.replace(b"healthz", b"large"))).endswith(b"\r\n\r\n" + LARGE)

    within(60, run())


def test_a_busy_port_is_an_os_error() -> None:
    async def run() -> None:
        async with serving() as port:
            with pytest.raises(OSError, match="in use") as busy:
                async with PageServer(pages()).listening(Listen("127.0.0.1", port)):
                    pass
            assert busy.value.errno == errno.EADDRINUSE

    within(60, run())


def test_the_same_port_can_be_taken_again_at_once() -> None:
    async def run() -> None:
        async with serving() as port, connected(port) as (reader, writer):
            writer.write(GET)
            await one_answer(reader)
        async with PageServer(pages()).listening(Listen("127.0.0.1", port)):
            assert (await told(port, LAST)).endswith(b"ok\n")

    within(60, run())


def test_the_end_closes_connections_that_are_open() -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as clients:
            async with serving() as port:
                reader, writer = await clients.enter_async_context(connected(port))
                writer.write(GET)
                await one_answer(reader)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    within(60, run())


def test_ipv6_loopback() -> None:
    async def run() -> None:
        async with PageServer(pages()).listening(parse_listen("[::1]:0")) as bound:
            reader, writer = await asyncio.open_connection("::1", bound.port)
            writer.write(LAST)
            assert (await reader.read()).endswith(b"ok\n")
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", bound.port)

    within(60, run())


async def told_unix(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(LAST)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_unix_socket_is_made_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"

    async def run() -> None:
        async with PageServer(pages()).listening(Listen(path=str(path))):
            assert (await told_unix(path)).endswith(b"ok\n")
        assert not path.exists()

    within(60, run())


def test_a_socket_file_left_by_a_killed_process_is_replaced_and_a_served_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))

    async def run() -> None:
        async with PageServer(pages()).listening(Listen(path=str(path))):
            with pytest.raises(OSError, match="in use"):
                async with PageServer(pages()).listening(Listen(path=str(path))):
                    pass
            assert (await told_unix(path)).endswith(b"ok\n")

    within(60, run())


def test_a_plain_file_in_the_way_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"
    path.write_text("mine")

    async def run() -> None:
        with pytest.raises(OSError, match="in use"):
            async with PageServer(pages()).listening(Listen(path=str(path))):
                pass

    within(60, run())
    assert path.read_text() == "mine"


def test_another_processs_socket_file_at_our_path_is_kept_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"

    async def run() -> None:
        async with PageServer(pages()).listening(Listen(path=str(path))):
            path.rename(tmp_path / "old.sock")
            path.write_text("theirs")

    within(60, run())
    assert path.read_text() == "theirs"
