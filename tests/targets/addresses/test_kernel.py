"""Addresses in the real kernel: added, read back, removed, and watched."""

import asyncio
from ipaddress import ip_interface

import pytest

from podgate.joints import ApplyError, Drifted, Signal
from podgate.targets.addresses.apply import AddressesTarget
from podgate.targets.addresses.state import Assigned, DeviceAddress, State
from tests.support.netns import NetNamespace, netns

pytestmark = pytest.mark.kernel

FOUR = DeviceAddress("lo", ip_interface("169.254.169.252/32"))
SIX = DeviceAddress("lo", ip_interface("fd00::252/128"))
BOTH = State(frozenset({Assigned(FOUR, "host"), Assigned(SIX, "global")}))


async def bring(target: AddressesTarget, want: State) -> State:
    await target.apply(target.diff(await target.read(), want))
    return await target.read()


def test_added_read_back_and_removed_and_no_other_address_is_touched() -> None:
    with netns() as node:
        node.run("ip", "addr", "add", "10.1.2.3/32", "dev", "lo")
        target = AddressesTarget([FOUR, SIX], namespace=node.descriptor)
        assert asyncio.run(target.read()) == State()
        assert asyncio.run(bring(target, BOTH)) == BOTH
        assert "inet 169.254.169.252/32 scope host lo" in node.run("ip", "addr", "show", "dev", "lo")
        assert asyncio.run(bring(target, State())) == State()
        assert "10.1.2.3/32" in node.run("ip", "addr", "show", "dev", "lo")


def test_a_wrong_scope_is_mended() -> None:
    with netns() as node:
        node.run("ip", "addr", "add", str(FOUR.address), "dev", "lo")
        target = AddressesTarget([FOUR], namespace=node.descriptor)
        want = State(frozenset({Assigned(FOUR, "host")}))
        assert asyncio.run(bring(target, want)) == want


def test_a_device_that_is_not_there_is_named() -> None:
    place = DeviceAddress("eth7", FOUR.address)
    with netns() as node, pytest.raises(ApplyError, match=r"169.254.169.252/32 on eth7: there is no such device"):
        asyncio.run(bring(AddressesTarget([place], namespace=node.descriptor), State(frozenset({Assigned(place)}))))


def test_a_change_by_others_is_told() -> None:
    with netns() as node:
        target = AddressesTarget([FOUR], namespace=node.descriptor)
        assert asyncio.run(told(target, node)) == Drifted("an address was changed")


async def told(target: AddressesTarget, node: NetNamespace) -> Signal:
    await bring(target, State(frozenset({Assigned(FOUR, "host")})))

    async def first() -> Signal:
        async for signal in target.signals():
            return signal
        raise AssertionError("the signals ended")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(first())
        await asyncio.sleep(0)
        node.run("ip", "addr", "add", "10.9.9.9/32", "dev", "lo")  # nobody's business here
        await asyncio.sleep(0)
        assert not waiting.done()
        node.run("ip", "addr", "del", str(FOUR.address), "dev", "lo")
    return waiting.result()
