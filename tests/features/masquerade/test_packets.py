"""What becomes of packets: each case in the fake target, in explain, and in the real kernel.

The fake traces a packet through the rules that the feature writes, over facts of the node that are written down here;
the kernel gets the same rules, and the facts that it tells itself must be the same.
"""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_address
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from podgate.commandline.options import settings_from
from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.explain import Answer, explain
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_nftables import TABLE, Writer
from podgate.joints import Inputs
from podgate.linux.namespaces import inside_network
from podgate.model.documents import parse
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE, Node, NodeSpec
from podgate.model.machine import Address, Interface, Machine, Route
from podgate.model.packet import Accept, Locality, Masquerade, Packet
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from podgate.sources.machine import load_machine
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.fake import FakeNftables
from podgate.targets.nftables.state import State
from tests.support.cases import Case, Section, read_cases
from tests.support.netns import NetNamespace
from tests.support.packet_lab import (
    EXT,
    NODE_INSIDE,
    NODE_LOCAL,
    NODE_SECONDARY,
    OUTSIDE,
    POD,
    PacketLab,
    Place,
    Protocol,
    packet_lab,
)
from tests.support.packet_lab import NODE as UPLINK

CASES = read_cases(*sorted((Path(__file__).parent / "cases" / "packets").glob("*.case")))
PLACES: Final = {
    "pod": POD[4],
    "inside": NODE_INSIDE[4],
    "node": UPLINK[4],
    "secondary": NODE_SECONDARY[4],
    "dns": NODE_LOCAL,
    "ext": EXT[4],
    "broadcast": "192.0.2.255",
    "multicast": "239.1.2.3",
}
ON_NODE: Final = ("inside", "node", "secondary", "dns")
ANSWERED: Final = ("10.20.20.0/24", "203.0.113.0/24", "20.0.0.1/32", "169.254.77.0/24")
"""What the outside host answers besides the addresses that it always has."""

UPLINK_NETWORK, POD_NETWORK = IPv4Network("192.0.2.0/24"), IPv4Network("10.244.1.0/24")
MACHINE: Final = Machine(
    "node-1",
    (Interface("eth0", 3, "veth"), Interface("lo", 1), Interface("pod0", 2, "veth")),
    (
        Address("eth0", IPv4Interface("192.0.2.1/24"), "global", IPv4Address("192.0.2.255")),
        Address("eth0", IPv4Interface("192.0.2.77/24"), "global"),
        Address("lo", IPv4Interface("127.0.0.1/8"), "host"),
        Address("lo", IPv4Interface("169.254.20.10/32"), "global"),
        Address("pod0", IPv4Interface("10.244.1.1/24"), "global"),
    ),
    (
        Route(IPv4Network("0.0.0.0/0"), "eth0", IPv4Address("192.0.2.2")),
        Route(POD_NETWORK, "pod0", None, IPv4Address("10.244.1.1")),
        Route(UPLINK_NETWORK, "eth0", None, IPv4Address("192.0.2.1")),
    ),
)
LOCALITY: Final = Locality(
    frozenset(address.address.ip for address in MACHINE.addresses),
    frozenset({UPLINK_NETWORK.broadcast_address, POD_NETWORK.broadcast_address}),
)


class Row(NamedTuple):
    """One line: the words for sender, destination and what is seen, and their addresses."""

    text: str
    sender: str
    source: str
    destination: str
    seen: str


def rows_of(case: Case) -> list[Row]:
    section = case.one("packets")
    assert section is not None, f"{case}: no packets"
    rows = []
    for line in section.lines:
        sender, arrow, rest = line.partition(" -> ")
        destination, colon, seen = rest.partition(": ")
        assert arrow, line
        assert colon, line
        rows.append(Row(line, sender, *(PLACES.get(word, word) for word in (sender, destination, seen))))
    return rows


def intent_of(case: Case, machine: Machine) -> Intent:
    config, settings, pod_range = case.one("config"), case.one("settings"), case.one("pod range")
    files = {DEFAULT_CONFIG: Present(config.data)} if config else {}
    nodes: dict[ObjectRef, Node] = {}
    if pod_range:
        ref = ObjectRef(NODE.kind, machine.node_name)
        nodes[ref] = Node(ObjectMeta(name=ref.name), NodeSpec(pod_cidrs=tuple(pod_range.lines)))
    inputs = Inputs(Snapshot({NODE.kind: Listed(Table.of(nodes))}), files, machine)
    chosen = settings_from(Settings, parse(settings.data).documents[0] if settings else {})
    return Compiler(chosen, lambda intent: intent)(inputs).states


def machine_of(case: Case) -> Machine:
    section = case.one("routes")
    words = [line.split() for line in section.lines] if section else []
    added = tuple(Route(IPv4Network(network), device) for network, _, device in words)
    return Machine("node-1", MACHINE.interfaces, MACHINE.addresses, MACHINE.routes + added)


async def written(state: State) -> FakeNftables:
    fake = FakeNftables("ip", TABLE)
    await fake.apply(fake.diff(await fake.read(), state))
    return fake


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_the_fake(case: Case) -> None:
    fake = asyncio.run(written(Writer("ip")(intent_of(case, machine_of(case)))))
    ports = case.one("ports")
    for row in rows_of(case):
        packet = Packet(IPv4Address(row.source), IPv4Address(row.destination), "udp", 40000, 7777)
        verdict = fake.trace(packet, LOCALITY).verdict
        if isinstance(verdict, Accept):
            assert row.seen == row.source, row.text
            continue
        assert isinstance(verdict, Masquerade), row.text
        assert row.seen == (NODE_INSIDE[4] if packet.destination in POD_NETWORK else UPLINK[4]), row.text
        assert row.seen != row.source, row.text
        if ports:
            assert ports.lines == ["random" if verdict.fully_random else "kept"], row.text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_explained(case: Case) -> None:
    intent = intent_of(case, machine_of(case))
    for row in rows_of(case):
        sender = None if row.sender == "pod" else ip_address(row.source)
        answer = explain(intent, ip_address(row.destination), sender)
        assert isinstance(answer, Answer)
        assert answer.action == ("keep" if row.seen == row.source else "masquerade"), row.text


@pytest.fixture(scope="module")
def lab() -> Iterator[PacketLab]:
    with packet_lab() as lab:
        for network in ANSWERED:
            lab.ext.run("ip", "route", "add", "local", network, "dev", "lo")
        for name in ("all", "pod0"):
            lab.node.sysctl(f"ipv4.conf.{name}.bc_forwarding", "1")
        with closing(multicast_router(lab.node, POD[4], PLACES["multicast"])):
            yield lab


@pytest.mark.kernel
@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_the_kernel(case: Case, lab: PacketLab) -> None:
    routes = case.one("routes")
    for line in routes.lines if routes else []:
        lab.node.run("ip", "route", "add", *line.split())
    try:
        machine = lab.node.call(lambda: load_machine("node-1"))
        assert facts(machine) == facts(machine_of(case)), "the fake is told other facts than the kernel tells"
        put(lab, Writer("ip")(intent_of(case, machine)))
        for row in rows_of(case):
            assert seen_in(lab, row) == {row.seen}, row.text
            check_ports(case, lab, row)
    finally:
        for line in routes.lines if routes else []:
            lab.node.run("ip", "route", "del", *line.split())


def facts(machine: Machine) -> tuple[set[Address], set[Route]]:
    addresses = {each for each in machine.addresses if each.address.version == 4}
    return addresses, {each for each in machine.routes if each.destination.version == 4}


def put(lab: PacketLab, state: State) -> None:
    """Write the rules with the real target, and have every flow begin anew."""
    load_only(lab, state)
    lab.node.run("conntrack", "-F")


def load_only(lab: PacketLab, state: State) -> None:
    async def load() -> None:
        with closing(NftablesTarget("ip", TABLE, namespace=lab.node.descriptor)) as target:
            await target.apply(target.diff(await target.read(), state))

    asyncio.run(load())


def seen_in(lab: PacketLab, row: Row) -> set[str]:
    """Send over UDP and TCP, where both can be, and give the sources that the receiver saw."""
    if row.destination in (PLACES["broadcast"], PLACES["multicast"]):
        return {received_by_all(lab, row)}
    origin, bound = origin_of(row)
    protocols: tuple[Protocol, ...] = ("udp", "tcp")
    return {lab.seen(origin, row.destination, bound, protocol).address for protocol in protocols}


def origin_of(row: Row) -> tuple[Place, tuple[str, int] | None]:
    """Say where a row's sender is, and which address its socket is bound to."""
    if row.sender == "pod":
        return "pod", None
    return ("node" if row.sender in ON_NODE else "ext"), (row.source, 0)


def received_by_all(lab: PacketLab, row: Row) -> str:
    """Send one datagram to a group or a whole network, and give the source that the outside host saw."""
    port = 7778
    group = row.destination == PLACES["multicast"]
    place, _ = origin_of(row)
    with inside_network(lab.ext.descriptor):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        uplink = socket.if_nametoindex("eth0")
    with inside_network(lab.at(place).descriptor):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        out = socket.if_nametoindex("eth0")
    with receiver, sender:
        receiver.settimeout(30)
        receiver.bind(("", port))
        sender.bind((row.source, 0))
        if group:
            member = socket.inet_aton(row.destination) + struct.pack("=4si", bytes(4), uplink)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", bytes(4), bytes(4), out))
        else:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.sendto(b"to all", (row.destination, port))
        return str(receiver.recvfrom(100)[1][0])


def check_ports(case: Case, lab: PacketLab, row: Row) -> None:
    section = case.one("ports")
    if section is None:
        return
    asked = range(45671, 45677)
    flows: list[tuple[Protocol, int]] = [("udp", port) for port in asked] + [("tcp", port) for port in asked]
    seen = [lab.seen("pod", row.destination, (row.source, port), protocol).port for protocol, port in flows]
    changed = [now for now, (_, port) in zip(seen, flows, strict=True) if now != port]
    if section.lines == ["kept"] or row.seen == row.source:
        assert changed == [], row.text
    else:
        assert len(changed) > len(flows) // 2, row.text


def multicast_router(node: NetNamespace, source: str, group: str) -> socket.socket:
    """Have the kernel forward a group from the Pod's device to the uplink, while the socket is open (ipmr)."""
    init, add_device, add_route = 200, 202, 204  # MRT_INIT, MRT_ADD_VIF, MRT_ADD_MFC of linux/mroute.h
    by_index = 8  # VIFF_USE_IFINDEX
    with inside_network(node.descriptor):
        router = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
        devices = [socket.if_nametoindex(name) for name in ("pod0", "eth0")]
    router.setsockopt(socket.IPPROTO_IP, init, 1)
    for number, device in enumerate(devices):
        router.setsockopt(
            socket.IPPROTO_IP, add_device, struct.pack("=HBBIi4s", number, by_index, 1, 0, device, bytes(4))
        )
    distances = bytes([0, 1, *[0] * 30])  # out of the second device, from a time to live of 1 on
    ends = socket.inet_aton(source), socket.inet_aton(group)
    router.setsockopt(socket.IPPROTO_IP, add_route, struct.pack("=4s4sH32s2x3Ii", *ends, 0, distances, 0, 0, 0, 0))
    return router


@pytest.mark.kernel
def test_an_open_flow_keeps_its_translation_and_a_new_one_follows_the_new_list(lab: PacketLab) -> None:
    """6.3: connection tracking decides once for each flow."""
    destination = "198.51.100.9"
    before, after = (Case("", Path(), 0, ()), case_with(f"nonMasqueradeCIDRs: [{destination}/32]"))
    put(lab, Writer("ip")(intent_of(before, MACHINE)))
    with lab.flow("pod") as open_flow, lab.flow("pod", None, "tcp") as open_connection:
        assert open_flow.seen_by(destination).address == UPLINK[4]
        assert open_connection.seen_by(destination).address == UPLINK[4]
        load_only(lab, Writer("ip")(intent_of(after, MACHINE)))
        assert open_flow.seen_by(destination).address == UPLINK[4]
        assert open_connection.seen_by(destination).address == UPLINK[4]
        assert lab.seen("pod", destination).address == POD[4]
        assert lab.seen("pod", destination, protocol="tcp").address == POD[4]
        lab.node.run("conntrack", "-D", "-p", "udp", "-s", POD[4], "-d", destination)
        assert open_flow.seen_by(destination).address == POD[4]


@pytest.mark.kernel
def test_ipv6_is_left_to_itself(lab: PacketLab) -> None:
    put(lab, Writer("ip")(intent_of(case_with("nonMasqueradeCIDRs: []"), MACHINE)))
    for destination in (each for each in OUTSIDE if ":" in each):
        assert lab.seen("pod", destination).address == POD[6]


def case_with(config: str) -> Case:
    return Case("", Path(), 0, (Section("config", config.encode()),))
