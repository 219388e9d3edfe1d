"""Node ports on loopback addresses, over real sockets in a network namespace: what clients and endpoints see.

Here: one process' listeners, fed with an intent. Not here: which ports (test_loopback_ports.py), the agent
(tests/agent/test_services_loopback.py).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address

import msgspec
import pytest

from podgate.commandline.options import settings_from
from podgate.features.services.health import Taken
from podgate.features.services.intent import FamilyIntent, Intent, NodeWide, ServicePort
from podgate.features.services.loopback_ports import LoopbackPorts, Owners
from podgate.features.services.server import room
from podgate.features.services.server.serving import Serving, cell_of
from podgate.features.services.settings import Settings
from podgate.joints import Key
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll_async

NUMBER = 30080
WEB = ObjectRef("Service", "web", "shop")
NODE = NodeWide(node_port_ips=(), localhost=True, proxied=True)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def node() -> Iterator[NetNamespace]:
    with netns() as made:
        yield made


def at(host: str, port: int = 8080) -> bytes:
    return ip_address(host).packed + port.to_bytes(2, "big")


ONE, OTHER, NOBODY = at("127.0.0.2"), at("127.0.0.3"), at("127.0.0.4")
PORT = ServicePort("shop/web:", "tcp", 80, bytes((10, 96, 0, 7)), node_port=NUMBER, cluster=(ONE,), anywhere=True)
SIX = msgspec.structs.replace(PORT, cluster_ip=ip_address("fd00:96::7").packed, cluster=(at("::1"),))


def intent(*ports: ServicePort, six: tuple[ServicePort, ...] = ()) -> Intent:
    return Intent(FamilyIntent("ip", NODE, Table.of({WEB: ports})), FamilyIntent("ip6", NODE, Table.of({WEB: six})))


def changed(**fields: object) -> ServicePort:
    return msgspec.structs.replace(PORT, **fields)


class World:
    """What listens, and endpoints that tell their address and then echo."""

    def __init__(self) -> None:
        self.serving = Serving(settings_from(Settings, {"nodeport_addresses": "localhost"}))
        self._servers: list[asyncio.Server] = []

    async def have(self, wanted: Intent) -> dict[Key, str]:
        """Put an intent in force, as the steps do; give what is refused."""
        target = self.serving.target
        self.serving.cell.swap(cell_of(wanted))
        plan = target.diff(await target.read(), self.serving.listeners(wanted))
        return dict(await target.apply(plan))

    async def endpoint(self, packed: bytes, serve: Serve | None = None) -> None:
        host = str(ip_address(packed[:-2]))

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{host} ".encode())
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write(b" end")
            writer.close()

        self._servers.append(await asyncio.start_server(serve or echo, host, int.from_bytes(packed[-2:], "big")))

    async def end(self) -> None:
        await self.have(Intent())
        for server in self._servers:
            server.close()


def story(node: NetNamespace, told: Callable[[World], Awaitable[None]]) -> None:
    """Tell a story inside the node, whose sockets are gone after it."""

    async def whole() -> None:
        world = World()
        try:
            async with asyncio.timeout(100):
                await told(world)
        finally:
            await world.end()

    node.run_async(whole)


async def ask(host: str = "127.0.0.1", said: bytes = b"hello") -> str:
    """Say something, end that, and give all that comes back; ``reset`` or ``refused`` where it breaks."""
    try:
        reader, writer = await asyncio.open_connection(host, NUMBER)
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:
        return "reset"
    try:
        writer.write(said)
        writer.write_eof()
        return (await reader.read()).decode()
    except ConnectionResetError:
        return "reset"
    finally:
        writer.close()


def test_bytes_go_both_ways_and_each_direction_ends_by_itself(node: NetNamespace) -> None:
    async def told(world: World) -> None:
        await world.endpoint(ONE)
        await world.endpoint(at("::1"))
        assert await world.have(intent(PORT, six=(SIX,))) == {}
        assert await ask() == "127.0.0.2 hello end"
        assert await ask("::1") == "::1 hello end"
        much = b"x" * 3_000_000
        assert len(await ask(said=much)) == len(much) + len("127.0.0.2  end")

    story(node, told)


def test_nobody_listens_once_the_last_local_endpoint_has_gone_and_open_connections_go_on(node: NetNamespace) -> None:
    async def told(world: World) -> None:
        await world.endpoint(OTHER)
        local = changed(external_local=True, cluster=(OTHER,), local=(ONE,))
        await world.have(intent(local))
        # From the node all endpoints are used, as at its other addresses.
        reader, writer = await asyncio.open_connection("127.0.0.1", NUMBER)
        assert await reader.readexactly(10) == b"127.0.0.3 "
        await world.have(intent(msgspec.structs.replace(local, local=())))
        assert await ask() == "refused"
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        writer.close()
        await world.have(intent(local))
        assert await ask() == "127.0.0.3 hello end"

    story(node, told)


def test_an_endpoint_that_refuses_is_passed_over_and_none_at_all_resets(node: NetNamespace) -> None:
    async def told(world: World) -> None:
        await world.endpoint(ONE)
        await world.have(intent(changed(cluster=(ONE, NOBODY))))
        assert {await ask() for _ in range(12)} == {"127.0.0.2 hello end"}
        await world.have(intent(changed(cluster=(NOBODY,))))
        assert await ask() == "reset"

    story(node, told)


def test_clients_are_spread_unless_they_stay(node: NetNamespace) -> None:
    async def told(world: World) -> None:
        await world.endpoint(ONE)
        await world.endpoint(OTHER)
        await world.have(intent(changed(cluster=(ONE, OTHER))))
        assert len({await ask() for _ in range(40)}) == 2
        await world.have(intent(changed(cluster=(ONE, OTHER), sticky=60)))
        (chosen,) = {await ask() for _ in range(20)}
        left = OTHER if "127.0.0.2" in chosen else ONE
        await world.have(intent(changed(cluster=(left,), sticky=60)))
        assert await ask() != chosen
        await world.have(intent(changed(cluster=(ONE, OTHER), sticky=60)))
        assert {await ask() for _ in range(20)} == {f"{ip_address(left[:-2])} hello end"}

    story(node, told)


def test_whoever_does_not_read_stops_the_other_at_a_bounded_number_of_bytes(node: NetNamespace) -> None:
    sent = 0
    whole = 20_000_000

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.transport.set_write_buffer_limits(high=0)
        while sent < whole:
            writer.write(b"x" * 10_000)
            sent += 10_000
            await writer.drain()
        writer.close()

    async def stands_still() -> bool:
        before = sent
        for _ in range(100):
            await asyncio.sleep(0)
        return 0 < sent == before

    async def told(world: World) -> None:
        await world.endpoint(ONE, pour)
        await world.have(intent(PORT))
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", NUMBER))
        await poll_async(lambda: sent)
        while not await stands_still():
            pass
        # The endpoint's own send buffer grows to 4 MiB (net.ipv4.tcp_wmem); the rest is ours.
        assert sent < whole / 2
        got = 0
        while data := await loop.sock_recv(slow, 100_000):
            got += len(data)
        slow.close()
        assert got == whole

    story(node, told)


def test_what_broke_is_no_end(node: NetNamespace) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half of it")
        await reader.readexactly(2)
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def told(world: World) -> None:
        await world.endpoint(ONE, half)
        await world.have(intent(PORT))
        reader, writer = await asyncio.open_connection("127.0.0.1", NUMBER)
        assert await reader.readexactly(10) == b"half of it"
        writer.write(b"ok")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    story(node, told)


def test_there_are_not_more_clients_than_files_allow(node: NetNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(world: World) -> None:
        await world.endpoint(ONE)
        await world.have(intent(PORT))
        reader, writer = await asyncio.open_connection("127.0.0.1", NUMBER)
        assert await reader.readexactly(10) == b"127.0.0.2 "
        assert await ask() == "reset"
        writer.write_eof()
        assert await reader.read() == b" end"
        writer.close()
        assert await ask() == "127.0.0.2 hello end"

    monkeypatch.setattr(room, "MOST_CLIENTS", 1)
    story(node, told)


def test_a_number_that_another_program_has_is_its_services_problem_and_is_counted(node: NetNamespace) -> None:
    async def told(world: World) -> None:
        wanted = intent(PORT, six=(SIX,))
        with socket.create_server(("127.0.0.1", NUMBER)):
            refused = await world.have(wanted)
        assert [str(key) for key in refused] == [f"127.0.0.1:{NUMBER} (IPv4 node port {NUMBER})"]
        taken = Taken("node-1", Table(), Owners(LoopbackPorts(), wanted))
        (problem,) = (taken(key, why) for key, why in refused.items())
        assert problem is not None
        assert (problem.ref, problem.reason) == (WEB, "FailedToListenOnLocalhost")
        assert problem.message.startswith(f"node node-1: port {NUMBER} is in use by ")
        counts = {
            (
                each.name.removeprefix("kubeproxy_nftables_localhost_nodeport_"),
                dict(each.labels)["ip_family"],
            ): each.value
            for each in world.serving.target.readings()
        }
        assert counts == {
            ("listeners", "IPv4"): 0,
            ("listeners", "IPv6"): 1,
            ("listener_creation_failures_total", "IPv4"): 1,
            ("listener_creation_failures_total", "IPv6"): 0,
        }

    story(node, told)
