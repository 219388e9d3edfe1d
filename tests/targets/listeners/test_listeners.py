"""Listening sockets: opened, closed and refused by address, in the kernel and in the fake."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from podgate.targets.listeners.apply import ListenersTarget, why
from podgate.targets.listeners.diff import diff
from podgate.targets.listeners.holders import holders_of
from podgate.targets.listeners.render import listing, state_json
from podgate.targets.listeners.state import ListenAddress, State
from tests.support.netns import netns

ANY = ListenAddress("127.0.0.1", 0, "greet")
SIX = ListenAddress("::1", 0, "greet")


class Greet(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


async def said(port: int, address: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def brought_to(target: ListenersTarget, *addresses: ListenAddress) -> dict[Any, str]:
    return dict(await target.apply(target.diff(await target.read(), State(frozenset(addresses)))))


@pytest.mark.parametrize(("where", "address"), [(ANY, "127.0.0.1"), (SIX, "::1")])
def test_what_is_wanted_is_served_and_read_back(where: ListenAddress, address: str) -> None:
    async def main() -> None:
        target = ListenersTarget({"greet": Greet})
        assert await brought_to(target, where) == {}
        assert await target.read() == State(frozenset({where}))
        port = target.ports()[where]
        assert await said(port, address) == b"hello"
        await brought_to(target)
        assert await target.read() == State()
        with pytest.raises(ConnectionRefusedError):
            await said(port, address)

    run(main())


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """Collect no garbage, as in an agent that has nothing to do."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("rounds", range(4))
def test_a_client_that_comes_while_a_socket_closes_is_answered_or_refused(rounds: int) -> None:
    """In one of these rounds of the loop, asyncio has taken the connection and has no transport for it yet."""

    def end(client: socket.socket) -> bytes:
        try:
            return client.recv(100)
        except ConnectionResetError:
            return b""

    async def main() -> None:
        target = ListenersTarget({"greet": Greet})
        await brought_to(target, ANY)
        with socket.create_connection(("127.0.0.1", target.ports()[ANY]), 20.0) as client:
            for _ in range(rounds):
                await asyncio.sleep(0)
            await brought_to(target)
            assert await asyncio.to_thread(end, client) in (b"hello", b"")

    run(main())


def test_a_busy_port_is_refused_with_its_holder_and_the_others_are_opened() -> None:
    async def main() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            held.listen()
            port = held.getsockname()[1]
            busy = ListenAddress("127.0.0.1", port, "greet")
            target = ListenersTarget({"greet": Greet})
            refused = await brought_to(target, busy, ANY)
            assert list(refused) == [busy]
            assert f"port {port} is in use by process {os.getpid()} (" in refused[busy]
            assert await target.read() == State(frozenset({ANY}))
            await brought_to(target)

    run(main())


def test_an_address_that_is_not_ours_is_refused() -> None:
    elsewhere = ListenAddress("192.0.2.1", 0, "greet")

    async def main() -> None:
        refused = await brought_to(ListenersTarget({"greet": Greet}), elsewhere)
        assert "192.0.2.1 is no address of this machine" in refused[elsewhere]

    run(main())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "x"), "NET_BIND_SERVICE"),
        (OSError(24, "x"), "raise the limit of open files"),
        (OSError(105, "x"), "cannot listen: No buffer space"),
    ],
)
def test_every_refusal_says_what_to_do(error: OSError, words: str) -> None:
    assert words in why(ListenAddress("127.0.0.1", 988, "proxy"), error)


def test_sockets_close_before_the_life_around_them_ends() -> None:
    events: list[str] = []

    async def main() -> None:
        @asynccontextmanager
        async def life() -> AsyncIterator[None]:
            events.append("begins")
            try:
                yield
            finally:
                with pytest.raises(ConnectionRefusedError):
                    await said(port)
                events.append("ends")

        target = ListenersTarget({"greet": Greet}, life)

        async def follow() -> None:
            async for _ in target.signals():
                raise AssertionError

        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow())
            await asyncio.sleep(0)
            await brought_to(target, ANY)
            port = target.ports()[ANY]
            events.append((await said(port)).decode())
            following.cancel()
        assert await target.read() == State()

    run(main())
    assert events == ["begins", "hello", "ends"]


SHORT = """
import asyncio, os, resource, socket
from podgate.observe import accepting
from podgate.targets.listeners.apply import ListenersTarget
from podgate.targets.listeners.diff import Plan
from podgate.targets.listeners.state import ListenAddress

accepting.CALM = 0.1

async def main():
    target = ListenersTarget({"greet": asyncio.Protocol})
    await target.apply(Plan((ListenAddress("127.0.0.1", 0, "greet"),)))
    (port,) = target.ports().values()
    client = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        client.connect(("127.0.0.1", port))
    signals = target.signals()
    for _ in range(2):
        signal = await asyncio.wait_for(anext(signals), 20)
        print(signal.fault, signal.what)
        while held:
            os.close(held.pop())
    await signals.aclose()
    print((await target.read()).addresses)

asyncio.run(main())
"""


def test_a_want_of_descriptors_is_a_turn_that_is_told_with_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            "True new connections wait: Too many open files: raise the limit of open files (LimitNOFILE=, ulimit -n)",
            "False new connections are taken again",
            "frozenset()",
        ],
        "",
    )


@pytest.mark.kernel
def test_holders_are_looked_for_in_this_network_namespace() -> None:
    with socket.socket() as held, netns() as other:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert holders_of(port)[0].startswith(f"process {os.getpid()} ")
        assert other.run("python3", "-c", _PRINT_TABLE).strip() == "[]"


_PRINT_TABLE = "print(open('/proc/self/net/tcp').read().splitlines()[1:])"


def test_nobody_holds_a_free_port() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert holders_of(bound.getsockname()[1]) == []  # bound, but it does not listen


def test_plans_and_states_show_themselves_in_order() -> None:
    one, two = ListenAddress("127.0.0.1", 988, "proxy"), ListenAddress("fd20:ce::254", 988, "proxy")
    plan = diff(State(frozenset({two})), State(frozenset({one})))
    assert str(plan) == "open 127.0.0.1:988 (proxy)\nclose [fd20:ce::254]:988 (proxy)"
    assert set(plan.touches()) == {one, two}
    assert plan.without([one]).touches() == (two,)
    assert not diff(State(frozenset({one})), State(frozenset({one})))
    assert listing(State(frozenset({two, one}))).splitlines() == [
        "listen 127.0.0.1:988 (proxy)",
        "listen [fd20:ce::254]:988 (proxy)",
    ]
    assert state_json(State(frozenset({one}))) == [{"address": "127.0.0.1", "port": 988, "serves": "proxy"}]
