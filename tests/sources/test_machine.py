"""MachineSource: the machine's network as canonical values, and each change of it.

Here: a namespace that is changed while the source follows it; probes. Not here: decoding
(tests/linux/test_rtnetlink.py). Invariant: whatever is asserted about a moment was true in the kernel before.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, ip_interface, ip_network
from pathlib import Path

import pytest

from podgate.model.machine import Address, Interface, Machine, Route
from podgate.sources.machine import MachineSource, fixed_of, load_machine, node_name_of
from tests.support.netns import NetNamespace, netns
from tests.support.virtual_time import run_virtual


class Reader:
    """Takes machines from a source in a task."""

    def __init__(self) -> None:
        self.values: list[Machine] = []
        self.news = asyncio.Condition()

    async def run(self, source: MachineSource) -> None:
        async for value in source.values():
            self.values.append(value)
            async with self.news:
                self.news.notify_all()

    async def until(self, holds: Callable[[Machine], bool]) -> Machine:
        async with asyncio.timeout(30), self.news:
            await self.news.wait_for(lambda: bool(self.values) and holds(self.values[-1]))
        return self.values[-1]


@contextlib.asynccontextmanager
async def following() -> AsyncIterator[Reader]:
    reader = Reader()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run(MachineSource("node-1")))
        await reader.until(lambda _: True)
        yield reader
        task.cancel()


def texts(machine: Machine) -> set[str]:
    return {str(address.address) for address in machine.addresses}


@pytest.mark.kernel
def test_a_machine_is_sorted_and_complete() -> None:
    with netns() as namespace:
        commands = (
            "link add br0 type bridge\nlink add v0 type veth peer name v1\nlink set v1 master br0\nlink set br0 up\n"
            "addr add 10.1.0.2/24 broadcast 10.1.0.255 dev br0\naddr add 10.1.0.1/24 dev br0\n"
            "route add default via 10.1.0.254\n"
        )
        namespace.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        namespace.run("ip", "-batch", "-", text=commands)
        machine = namespace.call(lambda: load_machine("node-1"))
        by_name = {one.name: one for one in machine.interfaces}
        assert list(by_name) == ["br0", "lo", "v0", "v1"]
        assert by_name["v1"] == Interface("v1", by_name["v1"].index, "veth", "br0", up=False)
        assert machine.addresses == (
            Address("br0", ip_interface("10.1.0.1/24")),
            Address("br0", ip_interface("10.1.0.2/24"), broadcast=IPv4Address("10.1.0.255")),
            Address("lo", ip_interface("127.0.0.1/8"), scope="host"),
        )
        assert machine.routes == (
            Route(ip_network("0.0.0.0/0"), "br0", IPv4Address("10.1.0.254")),
            Route(ip_network("10.1.0.0/24"), "br0", None, IPv4Address("10.1.0.2")),
        )


@pytest.mark.kernel
def test_changes_arrive_and_come_as_one_where_they_come_together() -> None:
    async def follow(namespace: NetNamespace) -> None:
        async with following() as reader:
            namespace.run("ip", "-batch", "-", text="link add v0 type veth peer name v1\nlink set v0 up\n")
            namespace.run("ip", "addr", "add", "10.1.0.1/24", "dev", "v0")
            await reader.until(lambda machine: "10.1.0.1/24" in texts(machine))
            before = len(reader.values)
            many = [f"addr add 10.2.0.{number}/32 dev v0\n" for number in range(1, 200)]
            namespace.run("ip", "-batch", "-", text="".join(many))
            await reader.until(lambda machine: len(machine.addresses) > 199)
            assert len(reader.values) - before < 50
            namespace.run("ip", "link", "del", "v0")
            gone = await reader.until(lambda machine: len(machine.interfaces) == 1)
            assert {address.interface for address in gone.addresses} == {"lo"}

    with netns() as namespace:
        namespace.run_async(lambda: follow(namespace))


@pytest.mark.kernel
def test_what_changes_nothing_that_counts_gives_no_value() -> None:
    async def follow(namespace: NetNamespace) -> None:
        async with following() as reader:
            namespace.run("ip", "link", "set", "lo", "mtu", "30000")
            await asyncio.sleep(1.0)
            namespace.run("ip", "addr", "add", "10.1.0.1/32", "dev", "lo")
            await reader.until(lambda machine: "10.1.0.1/32" in texts(machine))
            assert len(reader.values) == 2

    with netns() as namespace:
        namespace.call(lambda: run_virtual(follow(namespace)))


@pytest.mark.kernel
def test_more_notifications_than_the_buffer_holds_lose_nothing() -> None:
    async def follow(namespace: NetNamespace) -> None:
        async with following() as reader:
            text = "".join(
                f"addr {verb} 10.{number // 250}.{number % 250}.1/32 dev lo\n"
                for number in range(3000)
                for verb in ("add", "del")
            )
            namespace.run("ip", "-batch", "-", text=text)  # this event loop stands still meanwhile
            namespace.run("ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
            await reader.until(lambda machine: "192.0.2.1/32" in texts(machine))

    with netns() as namespace:
        namespace.run_async(lambda: follow(namespace))


def test_a_kernel_without_ipv6_lacks_that_family(tmp_path: Path) -> None:
    assert fixed_of("n", str(tmp_path)).lacks == frozenset()
    assert fixed_of("n", str(tmp_path / "none")).lacks == {"ip6"}
    assert load_machine("n").lacks == frozenset()


def test_the_node_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: " Worker-1.Example\n")
    assert node_name_of(None, {}) == "worker-1.example", "as the kubelet names the Node"
    assert node_name_of("", {"NODE_NAME": "named"}) == "named"
    assert node_name_of("flag", {"NODE_NAME": "named"}) == "flag"
