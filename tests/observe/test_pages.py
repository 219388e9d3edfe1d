"""The pages over real sockets: what a probe and a scraper need, and what a hostile client cannot do.

Here: addresses, answers, limits, fuzzed input. Not here: what the product's pages say.
Invariant: after every hostile client a good one is answered, and every wait has an end.
"""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.observe.pages import HEAD_LIMIT, TEXT, Answer, Listen, PageServer, parse_listen

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
    async with PageServer(pages(), idle=idle, connections=connections).listening(LOOPBACK) as bound:
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
    "": "not a port",
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
    assert repr(text) in str(refused.value)


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
        assert (b"Allow: GET, HEAD" in head) == (status == 405)
        if line.startswith(b"HEAD"):
            assert b"Content-Length: 3" in head

    within(5, run())


def test_a_connection_serves_one_request_after_another() -> None:
    async def run() -> None:
        async with serving() as port, connected(port) as (reader, writer):
            for _ in range(3):
                writer.write(GET)
                assert await one_answer(reader) == (200, b"ok\n")

    within(5, run())


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def run() -> None:
        async with serving() as port:
            answer = await told(port, GET + GET.replace(b"healthz", b"readyz") + LAST)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"503", b"200"]

    within(5, run())


def test_a_request_may_come_byte_by_byte_and_end_with_a_half_closed_connection() -> None:
    async def run() -> None:
        async with serving() as port, connected(port) as (reader, writer):
            for byte in GET:
                writer.write(bytes([byte]))
                await writer.drain()
            writer.write_eof()
            assert (await reader.read()).endswith(b"ok\n")

    within(5, run())


def test_http_1_0_is_answered_and_closed() -> None:
    async def run() -> None:
        async with serving() as port:
            assert (await told(port, b"GET /healthz HTTP/1.0\r\n\r\n")).endswith(b"ok\n")

    within(5, run())


REFUSED = {
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "space before the colon": (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "two lengths": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "a body": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 413),
    "a body to come": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", 413),
    "a chunked body": (b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
    "a head that never ends": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * HEAD_LIMIT * 2, 431),
    "a whole head that is too large": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * HEAD_LIMIT + b"\r\n\r\n", 431),
    "a megabyte of head": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200_000 + b"\r\n", 431),
}


@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_a_plain_request_is_refused_and_the_connection_closed(sent: bytes, status: int) -> None:
    async def run() -> None:
        async with serving() as port:
            answer = await told(port, sent, GET if sent.endswith(b"\r\n") else b"")
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert answer.count(b"HTTP/1.1") == 1
            assert b"Connection: close" in answer
            assert (await told(port, LAST)).endswith(b"ok\n")

    within(10, run())


def test_a_head_just_below_the_limit_is_answered() -> None:
    async def run() -> None:
        async with serving() as port:
            padding = b"A: " + b"x" * (HEAD_LIMIT - 100) + b"\r\n"
            assert (await told(port, LAST[:-2] + padding + b"\r\n")).endswith(b"ok\n")

    within(5, run())


@pytest.mark.parametrize("sent", [b"", b"GET /hea", GET + b"GET"], ids=["nothing", "part", "part of a second"])
def test_a_silent_client_is_closed_after_the_idle_time(sent: bytes) -> None:
    async def run() -> None:
        async with serving(idle=0.2) as port:
            with contextlib.suppress(ConnectionResetError):
                await told(port, sent)
            assert (await told(port, LAST)).endswith(b"ok\n")

    within(5, run())


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    for byte in data:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


def test_dripping_bytes_do_not_extend_the_idle_time() -> None:
    async def run() -> None:
        async with serving(idle=0.3) as port, connected(port) as (_, writer):
            with pytest.raises(ConnectionError):
                await drip(writer, b"GET /" + b"x" * 200)

    within(5, run())


def test_a_client_that_does_not_read_holds_one_answer_and_is_then_closed() -> None:
    called = 0

    def large() -> Answer:
        nonlocal called
        called += 1
        return 200, TEXT, LARGE

    async def run() -> None:
        async with PageServer({"/large": large}, idle=0.5).listening(LOOPBACK) as bound:
            loop = asyncio.get_running_loop()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", bound.port))
                await loop.sock_sendall(client, GET.replace(b"healthz", b"large") * 50)
                await asyncio.sleep(0.8)
                received = 0
                with contextlib.suppress(ConnectionResetError):
                    while data := await loop.sock_recv(client, 2**20):
                        received += len(data)
        assert called == 1
        assert received < len(LARGE)

    within(5, run())


def test_a_large_page_arrives_whole() -> None:
    async def run() -> None:
        async with serving() as port:
            assert (await told(port, LAST.replace(b"healthz", b"large"))).endswith(b"\r\n\r\n" + LARGE)

    within(10, run())


def test_a_crowd_of_idle_clients_does_not_keep_a_probe_out() -> None:
    async def run() -> None:
        async with serving(connections=4) as port, contextlib.AsyncExitStack() as crowd:
            first, _ = await crowd.enter_async_context(connected(port))
            second, talker = await crowd.enter_async_context(connected(port))
            for _ in range(2):
                await crowd.enter_async_context(connected(port))
            talker.write(GET)
            assert await one_answer(second) == (200, b"ok\n")
            assert (await told(port, LAST)).endswith(b"ok\n")
            with contextlib.suppress(ConnectionResetError):
                assert await first.read() == b""
            talker.write(GET)
            assert await one_answer(second) == (200, b"ok\n")

    within(5, run())


def test_a_reset_in_the_middle_harms_nobody() -> None:
    async def run() -> None:
        async with serving() as port:
            loop = asyncio.get_running_loop()
            for sent in (b"", b"GET", GET * 100, GET.replace(b"healthz", b"large") * 10):
                with socket.socket() as client:
                    client.setblocking(False)
                    await loop.sock_connect(client, ("127.0.0.1", port))
                    await loop.sock_sendall(client, sent)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                assert (await told(port, LAST)).endswith(b"ok\n")

    within(10, run())


WORDS = [
    *(GET, b"GET ", b"CONNECT x:1", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"Host: x", b"\0"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Upgrade: h2c\r\n", b"PRI * HTTP/2.0\r\n\r\n"),
]
PIECES = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=40)), max_size=8)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=4))
def test_whatever_clients_send_the_server_answers_the_next_one(clients: list[list[bytes]]) -> None:
    async def run() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with serving(idle=0.5) as port:
            for pieces in clients:
                async with connected(port) as (reader, writer):
                    with contextlib.suppress(ConnectionError):
                        writer.write(b"".join(pieces))
                        writer.write_eof()
                        answer = await reader.read()
                        assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
            assert (await told(port, LAST)).endswith(b"ok\n")
        assert errors == []

    within(10, run())


def test_a_busy_port_is_an_os_error() -> None:
    async def run() -> None:
        async with serving() as port:
            with pytest.raises(OSError, match="in use") as busy:
                async with PageServer(pages()).listening(Listen("127.0.0.1", port)):
                    pass
            assert busy.value.errno == errno.EADDRINUSE

    within(5, run())


def test_the_same_port_can_be_taken_again_at_once() -> None:
    async def run() -> None:
        async with serving() as port, connected(port) as (reader, writer):
            writer.write(GET)
            await one_answer(reader)
        async with PageServer(pages()).listening(Listen("127.0.0.1", port)):
            assert (await told(port, LAST)).endswith(b"ok\n")

    within(5, run())


def test_the_end_closes_connections_that_are_open() -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as clients:
            async with serving() as port:
                reader, writer = await clients.enter_async_context(connected(port))
                writer.write(GET)
                await one_answer(reader)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    within(5, run())


def test_ipv6_loopback() -> None:
    async def run() -> None:
        async with PageServer(pages()).listening(parse_listen("[::1]:0")) as bound:
            reader, writer = await asyncio.open_connection("::1", bound.port)
            writer.write(LAST)
            assert (await reader.read()).endswith(b"ok\n")
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", bound.port)

    within(5, run())


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

    within(5, run())


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

    within(5, run())


def test_a_plain_file_in_the_way_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"
    path.write_text("mine")

    async def run() -> None:
        with pytest.raises(OSError, match="in use"):
            async with PageServer(pages()).listening(Listen(path=str(path))):
                pass

    within(5, run())
    assert path.read_text() == "mine"


def test_another_processs_socket_file_at_our_path_is_kept_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"

    async def run() -> None:
        async with PageServer(pages()).listening(Listen(path=str(path))):
            path.rename(tmp_path / "old.sock")
            path.write_text("theirs")

    within(5, run())
    assert path.read_text() == "theirs"
