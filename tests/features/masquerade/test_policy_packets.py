"""What becomes of packets under policies, port ranges and IPv6, in the real kernel: each row is also explained.

Rows of longest prefix, chosen addresses and both families; a range that is too small drops what does not fit (6.5).
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address
from typing import Any, Final

import pytest

from podgate.commandline.options import settings_from
from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.explain import Answer, explain
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.policy import MASQUERADE_POLICY, MasqueradePolicy
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_nftables import TABLE, Writer
from podgate.joints import Inputs
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.pods import Pod, PodIP, PodSpec, PodStatus
from podgate.model.machine import Family
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from podgate.sources.machine import load_machine
from podgate.targets.nftables.apply import NftablesTarget
from tests.support.packet_lab import (
    EXT,
    NODE,
    NODE_INSIDE,
    NODE_SECONDARY,
    POD,
    SILENCE_SECONDS,
    NoAnswerError,
    PacketLab,
    Protocol,
    packet_lab,
)

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
IPV6: Final[dict[str, Any]] = {"enable_ipv6": True}
ANSWERED: Final = ("10.20.20.0/24", "203.0.113.0/24", "2001:db8:ff::/64")


@pytest.fixture(scope="module")
def lab() -> Iterator[PacketLab]:
    with packet_lab() as lab:
        for network in ANSWERED:
            lab.ext.run("ip", "route", "add", "local", network, "dev", "lo")
        yield lab


def policy(name: str, **spec: Any) -> MasqueradePolicy:
    sources = {"from": spec.pop("from_")} if "from_" in spec else {}
    return MasqueradePolicy(ObjectMeta(name=name), {**spec, **sources})


def intent_of(
    lab: PacketLab,
    *policies: MasqueradePolicy,
    config: str = "",
    labels: dict[str, str] | None = None,
    **settings: Any,
) -> Intent:
    """Compile for the lab's node, whose one Pod has these labels."""
    addresses = (PodIP(POD[4]), PodIP(POD[6]))
    pod = Pod(ObjectMeta("pod", "default", labels or {}), PodSpec("node-1"), PodStatus("Running", pod_ips=addresses))
    written = {ObjectRef(MASQUERADE_POLICY.kind, each.metadata.name): each for each in policies}
    objects = Snapshot(
        {
            "Pod": Listed(Table.of({ObjectRef("Pod", "pod", "default"): pod})),
            "MasqueradePolicy": Listed(Table.of(written)),
        }
    )
    machine = lab.node.call(lambda: load_machine("node-1"))
    inputs = Inputs(objects, {DEFAULT_CONFIG: Present(config.encode())}, machine)
    compiled = Compiler(settings_from(Settings, {"node_name": "node-1", **settings}), lambda intent: intent)(inputs)
    assert not [p for found in compiled.problems.values() for p in found if p.severity == "error"]
    return compiled.states


def put(lab: PacketLab, intent: Intent) -> None:
    """Write both tables with the real target, see that they read back equal, and have every flow begin anew."""

    async def load() -> None:
        for family in FAMILIES:
            want = Writer(family)(intent)
            with closing(NftablesTarget(family, TABLE, namespace=lab.node.descriptor)) as target:
                await target.apply(target.diff(await target.read(), want))
                assert not target.diff(await target.read(), want)

    asyncio.run(load())
    lab.node.run("conntrack", "-F")


def check(lab: PacketLab, intent: Intent, rows: dict[str, str]) -> None:
    """Send from the Pod over UDP and TCP; the source that is seen must be the row's, and what explain says."""
    put(lab, intent)
    protocols: tuple[Protocol, ...] = ("udp", "tcp")
    for destination, source in rows.items():
        assert {lab.seen("pod", destination, None, each).address for each in protocols} == {source}, destination
        version = ip_address(destination).version
        answer = explain(intent, ip_address(destination), ip_address(POD[version]))
        assert isinstance(answer, Answer)
        masqueraded = {NODE[version]: "masquerade", POD[version]: "keep"}
        assert answer.action == masqueraded.get(source, "snat"), destination


def test_the_longest_prefix_by_several_policies(lab: PacketLab) -> None:
    """Reports 12 and 31: keep 10/8, but masquerade 10.20.20.0/24, but keep 10.20.20.7."""
    policies = (
        policy("one", priority=2, action="Keep", to=[{"cidr": "10.20.20.7/32"}]),
        policy("net", priority=1, action="Masquerade", to=[{"cidr": "10.20.20.0/24", "except": ["10.20.20.8/32"]}]),
        policy("all", action="Keep", to=[{"cidr": "10.0.0.0/8"}]),
    )
    rows = {"10.50.0.9": POD[4], "10.20.20.6": NODE[4], "10.20.20.7": POD[4], "10.20.20.8": POD[4]}
    check(lab, intent_of(lab, *policies, config="nonMasqueradeCIDRs: []"), {**rows, "203.0.113.5": NODE[4]})


@pytest.mark.parametrize(("labels", "seen"), [({"app": "web"}, NODE_SECONDARY), ({"app": "db"}, NODE)])
def test_a_chosen_address_for_some_pods(lab: PacketLab, labels: dict[str, str], seen: dict[int, str]) -> None:
    """Report 24: which of the node's addresses a Pod's traffic leaves with."""
    selected = {"podSelector": {"matchLabels": {"app": "web"}}}
    policies = (
        policy("four", action="SNAT", snatAddress=NODE_SECONDARY[4], from_=selected),
        policy("six", action="SNAT", snatAddress=NODE_SECONDARY[6], from_=selected),
    )
    intent = intent_of(lab, *policies, labels=labels, **IPV6)
    check(lab, intent, {"203.0.113.5": seen[4], "2001:db8:ff::9": seen[6]})


def test_an_address_that_the_node_lacks_and_gets(lab: PacketLab) -> None:
    chosen = policy("p", action="SNAT", snatAddress="192.0.2.88")
    check(lab, intent_of(lab, chosen), {"203.0.113.5": NODE[4]})
    lab.node.run("ip", "address", "add", "192.0.2.88/32", "dev", "eth0")
    try:
        check(lab, intent_of(lab, chosen), {"203.0.113.5": "192.0.2.88"})
    finally:
        lab.node.run("ip", "address", "del", "192.0.2.88/32", "dev", "eth0")


@pytest.mark.parametrize(
    ("interfaces", "seen"), [(["eth0"], POD), (["et*"], POD), (["eth1", "eth2"], NODE), (["wg*"], NODE)]
)
def test_outgoing_interfaces(lab: PacketLab, interfaces: list[str], seen: dict[int, str]) -> None:
    intent = intent_of(lab, policy("p", action="Keep", outputInterfaces=interfaces), **IPV6)
    check(lab, intent, {"203.0.113.5": seen[4], "2001:db8:ff::9": seen[6]})


def test_sources_by_range(lab: PacketLab) -> None:
    policies = (
        policy("others", action="Keep", from_={"cidrs": ["10.244.2.0/24", "fd00:10:244:2::/64"]}),
        policy("ours", action="Keep", from_={"cidrs": ["10.244.0.0/16", POD[6] + "/128"]}, to=[{"cidr": "0.0.0.0/0"}]),
    )
    check(lab, intent_of(lab, *policies, **IPV6), {"203.0.113.5": POD[4], "2001:db8:ff::9": NODE[6]})


def test_ipv6_keeps_what_is_the_cluster_s(lab: PacketLab) -> None:
    """Reports 14 and 47; fc00::/7 is kept by default, and a client from outside is seen by the Pod."""
    intent = intent_of(lab, **IPV6)
    check(lab, intent, {"2001:db8:ff::9": NODE[6], "fd00:50::9": POD[6], EXT[6]: POD[6]})
    assert lab.seen("ext", POD[6]).address == EXT[6]
    assert lab.seen("node", "2001:db8:ff::9", (NODE_SECONDARY[6], 0)).address == NODE_SECONDARY[6]
    assert lab.seen("pod", NODE_INSIDE[6]).address == POD[6]


def test_each_range_of_ports_is_chosen_by_its_size(lab: PacketLab) -> None:
    """Report 10. Of 24,000 ports a third lies in the second range; NodePorts in neither."""
    for random in (True, False):
        intent = intent_of(lab, to_ports="10000-25999,40000-47999", random_fully=random, **IPV6)
        check(lab, intent, {"203.0.113.5": NODE[4], "2001:db8:ff::9": NODE[6], "10.50.0.9": POD[4]})
    ports = [lab.seen("pod", "203.0.113.5", None, "udp").port for _ in range(90)]
    ports += [lab.seen("pod", "2001:db8:ff::9", None, "tcp").port for _ in range(90)]
    found = Counter(10000 <= port <= 25999 for port in ports if 10000 <= port <= 25999 or 40000 <= port <= 47999)
    assert found.total() == 180
    assert 35 <= found[False] <= 85  # 60 are expected; four standard deviations are 25


def test_ports_of_a_policy_with_a_chosen_address(lab: PacketLab) -> None:
    to = [{"cidr": "203.0.113.0/24"}]
    chosen = policy("p", action="SNAT", snatAddress=NODE_SECONDARY[4], ports="20000-20999", to=to)
    check(lab, intent_of(lab, chosen, to_ports="1024-9999"), {"203.0.113.5": NODE_SECONDARY[4]})
    assert 20000 <= lab.seen("pod", "203.0.113.5").port <= 20999
    assert 1024 <= lab.seen("pod", "198.51.100.9").port <= 9999


def test_four_ports_are_four_connections(lab: PacketLab) -> None:
    """6.5: a connection for which no port is left is dropped, not passed on."""
    put(lab, intent_of(lab, to_ports="40000-40003", random_fully=False))
    flows = [lab.flow("pod") for _ in range(5)]
    try:
        assert {flow.seen_by("203.0.113.5").port for flow in flows[:4]} == set(range(40000, 40004))
        with pytest.raises(NoAnswerError):
            flows[4].seen_by("203.0.113.5", SILENCE_SECONDS)
    finally:
        for flow in flows:
            flow.__exit__()


def test_the_longest_name_that_a_policy_can_have(lab: PacketLab) -> None:
    name = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])
    long = policy(
        name, action="SNAT", snatAddress=NODE_SECONDARY[4], ports="20000-20999", to=[{"cidr": "203.0.113.0/24"}]
    )
    check(lab, intent_of(lab, long), {"203.0.113.5": NODE_SECONDARY[4]})
