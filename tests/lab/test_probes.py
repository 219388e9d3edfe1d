"""Probes against real servers, and what many attempts add up to."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator

import pytest

from podgate.lab.podspec import Container, Exec, HttpGet, HttpHeader, Port, Probe, TcpSocket
from podgate.lab.probes import ProbeSource, attempt, port_of, verdicts
from podgate.linux.namespaces import open_namespace
from tests.support.asynchronous import in_loop

CONTAINER = Container("c", ports=(Port(8080, "web"),))


@pytest.fixture
def place() -> Iterator[ProbeSource]:
    descriptor = open_namespace("net")
    yield ProbeSource(descriptor, "127.0.0.1")
    os.close(descriptor)


async def never(_words: tuple[str, ...]) -> int:
    raise AssertionError("no command is asked for")


async def served(answer: str) -> tuple[asyncio.Server, int, list[str]]:
    """Start a server that answers each request, and keeps what it was asked."""
    asked: list[str] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode() if answer else "")
        writer.write(answer.encode())
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1], asked


@pytest.mark.kernel
@pytest.mark.parametrize(("status", "good"), [(200, True), (302, True), (399, True), (400, False), (503, False)])
@in_loop
async def test_http_succeeds_from_200_to_399(place: ProbeSource, status: int, good: bool) -> None:
    server, port, asked = await served(f"HTTP/1.1 {status} X\r\n\r\n")
    probe = Probe(http_get=HttpGet(port, "/healthz", http_headers=(HttpHeader("X-A", "b"),)))
    async with server:
        assert await attempt(probe, CONTAINER, place, never) is good
    (request,) = asked
    assert request.startswith(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-A: b\r\n")


@pytest.mark.kernel
@in_loop
async def test_tcp_succeeds_when_somebody_listens(place: ProbeSource) -> None:
    server, port, _ = await served("")
    async with server:
        assert await attempt(Probe(tcp_socket=TcpSocket(port)), CONTAINER, place, never)
    assert not await attempt(Probe(tcp_socket=TcpSocket(port)), CONTAINER, place, never)


@pytest.mark.kernel
@in_loop
async def test_a_command_succeeds_with_0_and_has_its_time(place: ProbeSource) -> None:
    def ending(code: int, after: float = 0.0) -> Callable[[tuple[str, ...]], Awaitable[int]]:
        async def run(words: tuple[str, ...]) -> int:
            assert words == ("check",)
            await asyncio.sleep(after)
            return code

        return run

    probe = Probe(exec=Exec(("check",)))
    assert await attempt(probe, CONTAINER, place, ending(0))
    assert not await attempt(probe, CONTAINER, place, ending(1))
    assert not await attempt(probe, CONTAINER, place, ending(0, 5.0))


def test_ports_have_names() -> None:
    assert [port_of(port, CONTAINER) for port in (1, "2", "web")] == [1, 2, 8080]
    with pytest.raises(ValueError, match="container c has no port named 'none'"):
        port_of("none", CONTAINER)


@pytest.mark.kernel
@in_loop
async def test_verdicts_come_when_enough_attempts_agree(place: ProbeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [0, 0, 1, 1, 0, 1, 1, 1, 0, 0]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run(_words: tuple[str, ...]) -> int:
        return answers.pop(0)

    monkeypatch.setattr("podgate.lab.probes.asyncio.sleep", sleep)
    probe = Probe(
        exec=Exec(("x",)), period_seconds=7, initial_delay_seconds=3, success_threshold=2, failure_threshold=3
    )
    found = verdicts(probe, CONTAINER, place, run, eager=False)
    assert [(await anext(found), len(answers)) for _ in range(3)] == [(True, 8), (False, 2), (True, 0)]
    assert slept[:2] == [3, 7]


@pytest.mark.kernel
@in_loop
async def test_before_the_first_success_an_eager_probe_asks_often_and_forgives(place: ProbeSource) -> None:
    answers = [1, 1, 1, 0, 0]

    async def run(_words: tuple[str, ...]) -> int:
        return answers.pop(0)

    probe = Probe(exec=Exec(("x",)), period_seconds=60, failure_threshold=1)
    async with asyncio.timeout(60):
        assert await anext(verdicts(probe, CONTAINER, place, run, eager=True))
