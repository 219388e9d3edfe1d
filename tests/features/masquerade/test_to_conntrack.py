"""Which tracked connections a change of the configuration cuts: as a table, and with open flows in the real kernel."""

import asyncio
from ipaddress import IPv4Interface, ip_address

import pytest

from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_conntrack import judge_of
from podgate.features.masquerade.to_nftables import TABLE, Writer
from podgate.joints import Inputs
from podgate.model.files import Present
from podgate.model.machine import Address, Machine
from podgate.targets.conntrack.apply import ConntrackFollower
from podgate.targets.conntrack.state import Flow
from podgate.targets.nftables.apply import NftablesTarget
from tests.support.packet_lab import NODE, POD, PacketLab, packet_lab

PATH = "/etc/config/ip-masq-agent"
OUT = "203.0.113.5"
MACHINE = Machine("node-1", addresses=(Address("eth0", IPv4Interface("192.0.2.1/24")),))


def intent(*cidrs: str) -> Intent:
    text = f"nonMasqueradeCIDRs: [{', '.join(cidrs)}]".encode()
    compiler = Compiler(Settings(), lambda made: made)
    return compiler(Inputs(files={PATH: Present(text)}, machine=MACHINE)).states


KEPT, MASQUERADED = intent("10.244.0.0/16", "203.0.113.0/24"), intent("10.244.0.0/16")


def flow(seen_as: str, protocol: str = "udp", source: str = POD[4], answerer: str = OUT, asked: str = "") -> Flow:
    first, second, third, fourth = map(ip_address, (source, asked or answerer, answerer, seen_as))
    return Flow(first, second, third, fourth, protocol)


ROWS = [
    # before, after, flow, cut?
    (MASQUERADED, KEPT, flow(NODE[4]), True),
    (KEPT, MASQUERADED, flow(POD[4]), True),
    (MASQUERADED, KEPT, flow(NODE[4], "icmp"), True),
    (MASQUERADED, KEPT, flow(NODE[4], "tcp"), False),
    (MASQUERADED, KEPT, flow(NODE[4], "sctp"), False),
    # the decision did not change
    (MASQUERADED, KEPT, flow(NODE[4], answerer="198.51.100.9"), False),
    # somebody else's translation, or none where ours would have been
    (MASQUERADED, KEPT, flow("192.0.2.200"), False),
    (MASQUERADED, KEPT, flow(POD[4]), False),
    (KEPT, MASQUERADED, flow(NODE[4]), False),
    # a Service's address: what counts is where the packet went in the end
    (MASQUERADED, KEPT, flow(NODE[4], asked="10.96.0.10"), True),
    (MASQUERADED, KEPT, flow(NODE[4], answerer="198.51.100.9", asked=OUT), False),
    # the node's own sockets
    (MASQUERADED, KEPT, flow(NODE[4], source=NODE[4]), False),
]


@pytest.mark.parametrize(("before", "after", "seen", "cut"), ROWS)
def test_a_flow_is_cut_only_if_its_decision_changed_and_it_is_ours(
    before: Intent, after: Intent, seen: Flow, cut: bool
) -> None:
    judge = judge_of(before, after, "ip")
    assert judge is not None
    assert judge(seen) is cut


TRACKING = """
table ip others {
    chain leaving {
        type nat hook postrouting priority 100
        ip daddr 198.18.0.1 masquerade
    }
}
"""
"""What has the kernel track connections while nothing of ours does."""

GAPS = [
    # after others had changed the rules, of what they should be all along: flow, cut?
    (MASQUERADED, flow(POD[4]), True),
    (MASQUERADED, flow(POD[4], asked="10.96.0.10"), True),
    (MASQUERADED, flow(NODE[4]), False),
    (MASQUERADED, flow("192.0.2.200"), False),
    (MASQUERADED, flow(POD[4], "tcp"), False),
    (MASQUERADED, flow(POD[4], answerer="10.244.9.9"), False),
    (MASQUERADED, flow(NODE[4], source=NODE[4]), False),
    (KEPT, flow(POD[4]), False),
]


@pytest.mark.parametrize(("wanted", "seen", "cut"), GAPS)
def test_after_a_gap_in_the_rules_what_was_left_as_it_came_is_cut(wanted: Intent, seen: Flow, cut: bool) -> None:
    judge = judge_of(wanted, wanted, "ip", gap=True)
    assert judge is not None
    assert judge(seen) is cut


def test_tcp_is_cut_on_request() -> None:
    judge = judge_of(MASQUERADED, KEPT, "ip", cut_tcp=True)
    assert judge is not None
    assert judge(flow(NODE[4], "tcp"))


def test_no_change_asks_for_no_listing() -> None:
    assert judge_of(KEPT, KEPT, "ip") is None
    assert judge_of(KEPT, MASQUERADED, "ip6") is None


def follow(lab: PacketLab, before: Intent, after: Intent, *, cut_tcp: bool = False, found: object | None = None) -> int:
    """Write ``after`` and follow the change on the node; give how many connections were deleted."""

    async def change() -> str:
        target, writer = NftablesTarget("ip", TABLE), Writer("ip")
        await target.apply(target.diff(await target.read(), writer(after)))
        target.close()
        follower: ConntrackFollower[Intent] = ConntrackFollower(
            "ip", lambda old, new, gap: judge_of(old, new, "ip", cut_tcp=cut_tcp, gap=gap)
        )
        return await follower.follow(before, after, found)

    done = lab.node.call(lambda: asyncio.run(change()))
    return int(done.split()[0]) if done else 0


@pytest.mark.kernel
def test_an_open_udp_flow_changes_at_once_and_tcp_goes_on() -> None:
    with packet_lab() as lab, lab.flow("pod") as udp, lab.flow("pod", protocol="tcp") as tcp, lab.flow("pod") as other:
        follow(lab, MASQUERADED, MASQUERADED)
        assert udp.seen_by(OUT).address == NODE[4]
        assert other.seen_by("198.51.100.9").address == NODE[4]
        assert tcp.seen_by(OUT).address == NODE[4]
        assert follow(lab, MASQUERADED, KEPT) == 1
        assert udp.seen_by(OUT).address == POD[4]
        assert other.seen_by("198.51.100.9").address == NODE[4]
        assert tcp.seen_by(OUT).address == NODE[4], "an open TCP connection keeps its translation"
        assert lab.seen("pod", OUT, protocol="tcp").address == POD[4]
        assert follow(lab, KEPT, MASQUERADED) >= 1
        assert udp.seen_by(OUT).address == NODE[4]


@pytest.mark.kernel
def test_a_udp_flow_that_began_in_a_gap_of_the_rules_is_masqueraded_after_it() -> None:
    with packet_lab() as lab, lab.flow("pod") as early, lab.flow("pod") as late:
        follow(lab, MASQUERADED, MASQUERADED)
        assert early.seen_by(OUT).address == NODE[4]
        lab.node.run("nft", "delete", "table", "ip", TABLE)
        lab.node.run("nft", "-f", "-", text=TRACKING)
        assert late.seen_by(OUT).address == POD[4]
        assert follow(lab, MASQUERADED, MASQUERADED) == 0, "nobody says that there was a gap"
        assert late.seen_by(OUT).address == POD[4]
        assert follow(lab, MASQUERADED, MASQUERADED, found="nothing") == 1
        assert late.seen_by(OUT).address == NODE[4]
        assert early.seen_by(OUT).address == NODE[4]


@pytest.mark.kernel
def test_cut_tcp_deletes_the_entry_of_an_open_connection() -> None:
    with packet_lab() as lab, lab.flow("pod", protocol="tcp") as tcp:
        follow(lab, MASQUERADED, MASQUERADED)
        assert tcp.seen_by(OUT).address == NODE[4]
        assert follow(lab, MASQUERADED, KEPT, cut_tcp=True) == 1
