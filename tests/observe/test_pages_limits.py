"""What a client cannot do to the pages: garbage, silence, floods, heads and bodies of any size.

Here: hostile and broken clients. Not here: answers to good ones (test_pages.py).
Invariant: after every hostile client a good one is answered.
"""

import asyncio
import contextlib
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.observe.answers import TEXT, Answer
from podgate.observe.page_connection import HEAD_LIMIT
from podgate.observe.pages import PageServer
from tests.observe.page_clients import GET, LARGE, LAST, LOOPBACK, connected, one_answer, serving, told, within

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

    within(60, run())


def test_a_head_just_below_the_limit_is_answered() -> None:
    async def run() -> None:
        async with serving() as port:
            padding = b"A: " + b"x" * (HEAD_LIMIT - 100) + b"\r\n"
            assert (await told(port, LAST[:-2] + padding + b"\r\n")).endswith(b"ok\n")

    within(60, run())


@pytest.mark.parametrize("sent", [b"", b"GET /hea", GET + b"GET"], ids=["nothing", "part", "part of a second"])
def test_a_silent_client_is_closed_after_the_idle_time(sent: bytes) -> None:
    async def run() -> None:
        async with serving(idle=0.2) as port:
            with contextlib.suppress(ConnectionResetError):
                await told(port, sent)
            assert (await told(port, LAST)).endswith(b"ok\n")

    within(60, run())


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    for byte in data:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.02)


def test_dripping_bytes_do_not_extend_the_idle_time() -> None:
    async def run() -> None:
        async with serving(idle=0.1) as port, connected(port) as (_, writer):
            with pytest.raises(ConnectionError):
                await drip(writer, b"GET /" + b"x" * 200)

    within(60, run())


def test_a_client_that_does_not_read_holds_one_answer_and_is_then_closed() -> None:
    called = 0

    def large() -> Answer:
        nonlocal called
        called += 1
        return 200, TEXT, LARGE

    async def run() -> None:
        async with PageServer({"/large": large}, idle=0.1).listening(LOOPBACK) as bound:
            loop = asyncio.get_running_loop()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", bound.port))
                await loop.sock_sendall(client, GET.replace(b"healthz", b"large") * 50)
                await asyncio.sleep(0.2)  # the same loop's clock: the idle time is over before this is
                received = 0
                with contextlib.suppress(ConnectionResetError):
                    while data := await loop.sock_recv(client, 2**20):
                        received += len(data)
        assert called == 1
        assert received < len(LARGE)

    within(60, run())


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

    within(60, run())


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

    within(60, run())


WORDS = [
    *(GET, b"GET ", b"CONNECT x:1", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"Host: x", b"\0"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Upgrade: h2c\r\n", b"PRI * HTTP/2.0\r\n\r\n"),
]
PIECES = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=40)), max_size=8)


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

    within(60, run())
