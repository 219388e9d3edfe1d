"""What becomes of packets with the masquerade rules in iptables: in the fake and in the kernel, with both programs.

The cases of IPv4 are those of nftables (tests/features/masquerade/cases/packets); those of IPv6 and of policies stand
here, over the same topology.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

import pytest

from podgate.features.masquerade.intent import FamilyIntent, Intent, PolicyIntent, Spans, Translation
from podgate.features.masquerade.ports import PortRange, Ports
from podgate.features.masquerade.prefixes import Entry, Span, kept, resolve, span_of
from podgate.features.masquerade.to_iptables import OWNERS, Writer
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.packet import Accept, Locality, Masquerade, Packet, Snat
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.state import Binary, State
from tests.features.masquerade.test_packets import (
    ANSWERED,
    CASES,
    LOCALITY,
    PLACES,
    POD_NETWORK,
    check_ports,
    intent_of,
    machine_of,
    multicast_router,
    rows_of,
    seen_in,
)
from tests.support.cases import Case
from tests.support.iptables_states import BINARIES
from tests.support.packet_lab import EXT, NODE, NODE_INSIDE, NODE_SECONDARY, POD, PacketLab, Place, packet_lab

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


class Node(NamedTuple):
    """A node whose rules one of the two programs writes."""

    lab: PacketLab
    binary: Binary

    def put(self, intent: Intent, family: Family = "ip") -> FakeIptables:
        """Write the rules into the kernel and the fake, and have every flow begin anew."""
        state = Writer(family, self.binary)(intent)

        async def load() -> FakeIptables:
            fake = FakeIptables(family, self.binary, OWNERS)
            await fake.apply(fake.diff(await fake.read(), state))
            with closing(IptablesTarget(family, self.binary, OWNERS, namespace=self.lab.node.descriptor)) as target:
                await target.apply(target.diff(await target.read(), state))
                plan = target.diff(await target.read(), state)
                assert not plan, str(plan)
            return fake

        fake = asyncio.run(load())
        self.lab.node.run("conntrack", "-F")
        return fake

    def clean(self) -> None:
        async def remove() -> None:
            for family in ("ip", "ip6"):
                with closing(IptablesTarget(family, self.binary, OWNERS, namespace=self.lab.node.descriptor)) as target:
                    await target.apply(target.diff(await target.read(), State(family, self.binary)))

        asyncio.run(remove())


@pytest.fixture(scope="module", params=BINARIES)
def routed(request: pytest.FixtureRequest) -> Iterator[Node]:
    with packet_lab() as lab:
        for network in ANSWERED:
            lab.ext.run("ip", "route", "add", "local", network, "dev", "lo")
        for name in ("all", "pod0"):
            lab.node.sysctl(f"ipv4.conf.{name}.bc_forwarding", "1")
        with closing(multicast_router(lab.node, POD[4], PLACES["multicast"])):
            yield Node(lab, request.param)


@pytest.fixture
def node(routed: Node) -> Iterator[Node]:
    yield routed
    routed.clean()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cases_of_ipv4(case: Case, node: Node) -> None:
    lab = node.lab
    routes = case.one("routes")
    for line in routes.lines if routes else []:
        lab.node.run("ip", "route", "add", *line.split())
    try:
        fake = node.put(intent_of(case, machine_of(case)))
        for row in rows_of(case):
            packet = Packet(IPv4Address(row.source), IPv4Address(row.destination), "udp", 40000, 7777)
            verdict = fake.trace(packet, LOCALITY).verdict
            translated = NODE_INSIDE[4] if packet.destination in POD_NETWORK else NODE[4]
            assert row.seen == (row.source if isinstance(verdict, Accept) else translated), row.text
            assert seen_in(lab, row) == {row.seen}, row.text
            check_ports(case, lab, row)
    finally:
        for line in routes.lines if routes else []:
            lab.node.run("ip", "route", "del", *line.split())


LOCAL_6: Final = Locality(frozenset(ip_address(each[6]) for each in (NODE, NODE_INSIDE, NODE_SECONDARY)))

ROWS_6: Final[dict[str, tuple[tuple[str, ...], list[tuple[Place, str, str, str]]]]] = {
    "all but the listed ranges": (
        ("fc00::/7", "fe80::/10", "ff00::/8"),
        [
            ("pod", POD[6], "2001:db8:ff::9", NODE[6]),
            ("pod", POD[6], EXT[6], NODE[6]),
            ("pod", POD[6], "fd00:50::9", POD[6]),
            ("ext", EXT[6], POD[6], EXT[6]),
            ("node", NODE_SECONDARY[6], "2001:db8:ff::9", NODE_SECONDARY[6]),
            ("pod", POD[6], NODE[6], POD[6]),
        ],
    ),
    "an empty list": (
        (),
        [
            ("pod", POD[6], "fd00:50::9", NODE[6]),
            ("ext", EXT[6], POD[6], EXT[6]),
            ("node", NODE_SECONDARY[6], "fd00:50::9", NODE_SECONDARY[6]),
        ],
    ),
}


def intent_with(
    family: Family,
    *networks: str,
    policies: tuple[PolicyIntent, ...] = (),
    ports: Ports = (),
    random_fully: bool = True,
) -> Intent:
    intervals = resolve(Entry(ip_network(network), "keep") for network in networks)
    own = ip_network("10.244.1.0/24" if family == "ip" else "fd00:10:244:1::/64")
    part = FamilyIntent(
        family,
        own_pods=spans(span_of(own)),
        policies=policies,
        keep=spans(*kept(intervals)),
        intervals=intervals,
        fallback=Translation("masquerade", ports=ports),
    )
    return Intent((part,), random_fully=random_fully)


def spans(*found: Span) -> Spans:
    return Spans().updated(dict.fromkeys(found, True))


def single(address: str) -> Spans:
    number = int(ip_address(address))
    return spans(Span(number, number))


def inside(network: str) -> Spans:
    return spans(span_of(ip_network(network)))


@pytest.mark.parametrize("name", ROWS_6)
def test_cases_of_ipv6(name: str, node: Node) -> None:
    networks, rows = ROWS_6[name]
    fake = node.put(intent_with("ip6", *networks), "ip6")
    for place, source, destination, seen in rows:
        packet = Packet(IPv6Address(source), IPv6Address(destination), "udp", 40000, 7777)
        verdict = fake.trace(packet, LOCAL_6).verdict
        assert isinstance(verdict, Accept if seen == source else Masquerade), (source, destination)
        bound = (source, 0) if place == "node" else None
        for protocol in ("udp", "tcp"):
            assert node.lab.seen(place, destination, bound, protocol).address == seen, (source, destination)


def test_ipv6_multicast_keeps_its_source(node: Node) -> None:
    """Each type has a rule of its own there, since the kernel wants all types of a rule to hold."""
    node.put(intent_with("ip6"), "ip6")
    listed = node.lab.node.run(f"ip6tables-{node.binary}-save", "-t", "nat")
    assert "--dst-type MULTICAST -j RETURN" in listed
    group = ip_address("ff05::1:3")
    fake = node.put(intent_with("ip6"), "ip6")
    assert isinstance(fake.trace(Packet(ip_address(POD[6]), group, "udp"), LOCAL_6).verdict, Accept)


POLICY: Final = ObjectRef("MasqueradePolicy", "p")
OTHER: Final = ObjectRef("MasqueradePolicy", "q")
SECONDARY: Final = Translation("snat", ip_address(NODE_SECONDARY[4]))

POLICIES: Final[dict[str, tuple[tuple[PolicyIntent, ...], dict[str, str]]]] = {
    "a source keeps its address everywhere": (
        (PolicyIntent(POLICY, 0, Translation("keep"), single(POD[4])),),
        {"203.0.113.5": POD[4], "10.50.0.9": POD[4]},
    ),
    "another source does not": (
        (PolicyIntent(POLICY, 0, Translation("keep"), single("10.244.1.3")),),
        {"203.0.113.5": NODE[4], "10.50.0.9": POD[4]},
    ),
    "a destination is masqueraded although it is listed": (
        (PolicyIntent(POLICY, 0, Translation("masquerade"), None, None, inside("10.50.0.0/16")),),
        {"10.50.0.9": NODE[4], "10.20.20.9": POD[4]},
    ),
    "source and destination get another address of the node": (
        (PolicyIntent(POLICY, 0, SECONDARY, single(POD[4]), None, inside("203.0.113.0/24")),),
        {"203.0.113.5": NODE_SECONDARY[4], "198.51.100.9": NODE[4]},
    ),
    "the first of two decides": (
        (
            PolicyIntent(POLICY, 9, Translation("keep"), None, None, single("203.0.113.5")),
            PolicyIntent(OTHER, 1, SECONDARY, single(POD[4])),
        ),
        {"203.0.113.5": POD[4], "198.51.100.9": NODE_SECONDARY[4]},
    ),
    "by outgoing interface": (
        (
            PolicyIntent(POLICY, 0, Translation("keep"), interfaces=("eth1", "lo")),
            PolicyIntent(OTHER, 0, SECONDARY, interfaces=("eth*",)),
        ),
        {"203.0.113.5": NODE_SECONDARY[4]},
    ),
    "several destinations and ports share a chain": (
        (
            PolicyIntent(
                POLICY,
                0,
                Translation("snat", SECONDARY.address, (PortRange(40000, 40999), PortRange(50000, 50999))),
                single(POD[4]),
                None,
                spans(*(span_of(ip_network(each)) for each in ("203.0.113.0/24", "198.51.100.0/24"))),
            ),
        ),
        {"203.0.113.5": NODE_SECONDARY[4], "198.51.100.9": NODE_SECONDARY[4], "192.0.2.2": NODE[4]},
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str, node: Node) -> None:
    policies, rows = POLICIES[name]
    fake = node.put(intent_with("ip", "10.0.0.0/8", policies=policies))
    for destination, seen in rows.items():
        packet = Packet(ip_address(POD[4]), ip_address(destination), "udp", 40000, 7777, out_interface="eth0")
        verdict = fake.trace(packet, LOCALITY).verdict
        expected = {POD[4]: Accept, NODE[4]: Masquerade, NODE_SECONDARY[4]: Snat}[seen]
        assert isinstance(verdict, expected), destination
        for protocol in ("udp", "tcp"):
            found = node.lab.seen("pod", destination, None, protocol)
            assert found.address == seen, destination
            if isinstance(verdict, Snat) and verdict.ports:
                assert 40000 <= found.port <= 40999 or 50000 <= found.port <= 50999


def test_source_ports_are_of_the_ranges(node: Node) -> None:
    node.put(intent_with("ip", ports=(PortRange(40000, 40099), PortRange(50000, 50299))))
    found = [node.lab.seen("pod", "203.0.113.5").port for _ in range(40)]
    assert all(40000 <= port <= 40099 or 50000 <= port <= 50299 for port in found)
    assert {port // 10000 for port in found} == {4, 5}


def test_a_range_that_is_too_small_drops_what_it_cannot_hold(node: Node) -> None:
    """6.5: there is no fall-through to other ports."""
    node.put(intent_with("ip", ports=(PortRange(40000, 40001),)))
    flows = [node.lab.flow("pod") for _ in range(3)]
    answered = []
    try:
        for flow in flows:
            try:
                answered.append(flow.seen_by("203.0.113.5").port)
            except AssertionError:
                answered.append(0)
    finally:
        for flow in flows:
            flow.__exit__()
    assert sorted(answered) == [0, 40000, 40001]
