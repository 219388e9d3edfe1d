"""The topology itself, and one example of a packet test: what pods send through a node that masquerades."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_network

import pytest

from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import MEMBER, SRCNAT, Chain, Hook, Rule, Set, State, interval
from tests.support.packet_lab import EXT, NODE, OUTSIDE, POD, PacketLab, Protocol, packet_lab

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def lab() -> Iterator[PacketLab]:
    with packet_lab() as lab:
        yield lab


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_without_rules_every_packet_arrives_with_its_senders_address(lab: PacketLab, protocol: Protocol) -> None:
    for destination in (*OUTSIDE, *EXT.values()):
        family = 6 if ":" in destination else 4
        assert lab.seen("pod", destination, protocol=protocol).address == POD[family]
    for family in (4, 6):
        assert lab.seen("ext", POD[family], protocol=protocol).address == EXT[family]
        assert lab.seen("node", EXT[family], protocol=protocol).address == NODE[family]


def test_a_listed_destination_sees_the_pod_and_others_see_the_node() -> None:
    keep = Set("keep", ("ipv4_addr",), ("interval",))
    chain = Chain(
        "postrouting",
        (Rule("ip daddr @keep return", "listed ranges"), Rule("masquerade fully-random", "all others")),
        Hook("nat", "postrouting", SRCNAT),
    )
    elements = Table.of({interval(ip_network("10.0.0.0/8")): MEMBER})
    want = State("ip", "pg-test", chains=(chain,), sets=(keep,), elements={"keep": elements})
    with packet_lab() as lab:

        async def load() -> None:
            with closing(NftablesTarget("ip", "pg-test", namespace=lab.node.descriptor)) as target:
                await target.apply(target.diff(await target.read(), want))

        asyncio.run(load())
        assert lab.seen("pod", "10.50.0.9").address == POD[4]
        assert lab.seen("pod", "203.0.113.5").address == NODE[4]
