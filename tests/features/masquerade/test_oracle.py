"""What a naive reader of the written policies says about each packet is what explain says and what the rules do.

The oracle knows policies as a user writes them and goes through them one by one; it shares no code with the feature.
The rules are executed by the fake. The same histories show that a compiler with memory gives what a fresh one gives.
"""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.features.masquerade.check_policies import policy_findings
from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.deciding import Decision, decide
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.policy import MASQUERADE_POLICY, MasqueradePolicy
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_nftables import TABLE, Writer
from podgate.joints import Inputs
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import NAMESPACE, Namespace
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.pods import POD, Pod, PodIP, PodSpec, PodStatus
from podgate.model.machine import Address, Family, IPAddress, Machine
from podgate.model.packet import Accept, Locality, Masquerade, Packet, Snat
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from podgate.targets.nftables.fake import FakeNftables

NODE: Final = "node-1"
UPLINK: Final[Mapping[int, str]] = {4: "192.0.2.1", 6: "2001:db8::1"}
ABSENT: Final[Mapping[int, str]] = {4: "192.0.2.9", 6: "2001:db8::9"}
DESTINATIONS: Final[Mapping[int, tuple[str, ...]]] = {
    4: ("20.0.0.0", "20.0.0.1", "20.0.0.2", "20.0.0.3", "20.0.0.7", "20.0.0.8", "20.0.1.1", "10.0.0.9", "224.0.0.1"),
    6: ("2001:db8:20::", "2001:db8:20::1", "2001:db8:20::3", "2001:db8:20::8", "2001:db8:20:1::1", "fd00::9"),
}
RANGES: Final[Mapping[int, tuple[str, ...]]] = {
    4: ("20.0.0.0/29", "20.0.0.0/30", "20.0.0.2/31", "20.0.0.1/32", "20.0.0.0/23", "0.0.0.0/0", "10.0.0.0/8"),
    6: ("2001:db8:20::/125", "2001:db8:20::2/127", "2001:db8:20::1/128", "2001:db8:20::/47", "::/0"),
}
SOURCES: Final[Mapping[int, tuple[str, ...]]] = {
    4: ("10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.5"),
    6: ("fd00:1::1", "fd00:1::2", "fd00:1::3", "fd00:1::5"),
}
SOURCE_RANGES: Final[Mapping[int, tuple[str, ...]]] = {
    4: ("10.1.0.0/30", "10.1.0.2/31", "10.1.0.5/32", "0.0.0.0/0"),
    6: ("fd00:1::/126", "fd00:1::2/127", "fd00:1::5/128"),
}
TEAMS: Final = ("red", "blue")
INTERFACES: Final = ("eth0", "eth1", "wg0")
SETTINGS: Final = Settings(node_name=NODE, enable_ipv6=True)


def selector(draw: st.DrawFn) -> dict[str, Any] | None:
    key = draw(st.sampled_from(("app", "tier")))
    return draw(
        st.sampled_from(
            (
                None,
                {},
                {"matchLabels": {key: "a"}},
                {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["a"]}]},
                {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]},
            )
        )
    )


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    versions = draw(st.sampled_from(((4,), (6,), (4, 6))))
    spec: dict[str, Any] = {"action": draw(st.sampled_from(("Keep", "Masquerade", "SNAT")))}
    if spec["action"] == "SNAT":
        versions = versions[:1]
        spec["snatAddress"] = draw(st.sampled_from((UPLINK, UPLINK, ABSENT)))[versions[0]]
    if draw(st.booleans()):
        spec["priority"] = draw(st.integers(-1, 1))
    sources: dict[str, Any] = {}
    if draw(st.booleans()):
        ranges = [each for version in versions for each in SOURCE_RANGES[version]]
        sources["cidrs"] = draw(st.lists(st.sampled_from(ranges), min_size=1, max_size=3))
    if (pods := selector(draw)) is not None:
        sources["podSelector"] = pods
    if draw(st.integers(0, 3)) == 0:
        sources["namespaceSelector"] = {"matchLabels": {"team": draw(st.sampled_from(TEAMS))}}
    if sources:
        spec["from"] = sources
    if draw(st.booleans()):
        spec["to"] = draw(st.lists(entries(versions), min_size=1, max_size=4))
    if draw(st.integers(0, 3)) == 0:
        spec["outputInterfaces"] = draw(st.sampled_from((["eth0"], ["eth1", "wg*"], ["eth0", "eth1"], ["eth*"])))
    return spec


@st.composite
def entries(draw: st.DrawFn, versions: Sequence[int]) -> dict[str, Any]:
    ranges = [each for version in versions for each in RANGES[version]]
    cidr = draw(st.sampled_from(ranges))
    inside = [each for each in ranges if within(each, cidr)]
    found: dict[str, Any] = {"cidr": cidr}
    excepting = draw(st.booleans())
    if inside and excepting:
        found["except"] = draw(st.lists(st.sampled_from(inside), min_size=1, max_size=2))
    return found


def within(inner: str, outer: str) -> bool:
    small, large = ip_network(inner), ip_network(outer)
    return small.version == large.version and small.prefixlen > large.prefixlen and small[0] in large


@st.composite
def pods(draw: st.DrawFn) -> dict[ObjectRef, Pod]:
    found = {}
    for index in range(draw(st.integers(0, 3))):
        labels = draw(st.sampled_from(({}, {"app": "a"}, {"app": "b", "tier": "a"}, {"tier": "b"})))
        namespace = draw(st.sampled_from(TEAMS))
        addresses = (PodIP(SOURCES[4][index]), PodIP(SOURCES[6][index]))
        node = draw(st.sampled_from((NODE, NODE, "node-2")))
        ref = ObjectRef("Pod", f"p{index}", namespace)
        meta = ObjectMeta(name=ref.name, namespace=namespace, labels=labels)
        found[ref] = Pod(meta, PodSpec(node_name=node), PodStatus("Running", pod_ips=addresses))
    return found


@st.composite
def worlds(draw: st.DrawFn) -> Inputs:
    policies = {
        ObjectRef(MASQUERADE_POLICY.kind, name): MasqueradePolicy(
            ObjectMeta(name=name, creation_timestamp=draw(st.sampled_from((None, "2026-01-01T00:00:00Z")))), spec
        )
        for name, spec in draw(st.dictionaries(st.sampled_from("abcde"), specs(), max_size=4)).items()
    }
    teams = {team: {"team": draw(st.sampled_from(TEAMS))} for team in TEAMS}
    namespaces = {
        ObjectRef("Namespace", team): Namespace(ObjectMeta(name=team, labels=labels)) for team, labels in teams.items()
    }
    listed = draw(st.sampled_from(("", "20.0.0.0/31", "20.0.0.0/28, 2001:db8:20::/48")))
    return Inputs(
        Snapshot(
            {
                "MasqueradePolicy": Listed(Table.of(policies)),
                "Namespace": Listed(Table.of(namespaces)),
                "Pod": Listed(Table.of(draw(pods()))),
            }
        ),
        files={DEFAULT_CONFIG: Present(f'nonMasqueradeCIDRs: ["10.9.0.0/16", {quoted(listed)}]\n'.encode())},
        machine=Machine(
            NODE, addresses=tuple(Address("eth0", ip_interface(f"{UPLINK[each]}/{each * 8}")) for each in (4, 6))
        ),
    )


def quoted(listed: str) -> str:
    return ", ".join(f'"{each.strip()}"' for each in listed.split(",")) if listed else '"10.8.0.0/16"'


def oracle(inputs: Inputs, source: IPAddress, destination: IPAddress, interface: str) -> tuple[str, str]:
    """Say what happens to a packet, by reading what was written from the first to the last."""
    mine = {ref: pod for ref, pod in inputs.objects.objects(POD).items() if pod.spec.node_name == NODE}
    if destination.is_multicast or any(str(destination) in pod.addresses for pod in mine.values()):
        return "keep", ""
    written = inputs.objects.objects(MASQUERADE_POLICY).values()
    order = sorted(
        written,
        key=lambda p: (-p.spec.get("priority", 0), p.metadata.creation_timestamp or "9999", p.metadata.name),
    )
    for policy in order:
        spec = policy.spec
        if "snatAddress" in spec and ip_address(spec["snatAddress"]).version != source.version:
            continue
        if not from_matches(spec.get("from", {}), mine, inputs, source) or not to_matches(spec.get("to"), destination):
            continue
        through = spec.get("outputInterfaces", ["*"])
        if not any(interface.startswith(name[:-1]) if name[-1] == "*" else name == interface for name in through):
            continue
        if spec["action"] == "SNAT" and spec["snatAddress"] in UPLINK.values():
            return "snat", spec["snatAddress"]
        return ("keep", "") if spec["action"] == "Keep" else ("masquerade", "")
    content = inputs.files[DEFAULT_CONFIG]
    assert isinstance(content, Present)
    text = content.data.decode()
    kept = [each.strip(' "') for each in text.partition("[")[2].partition("]")[0].split(",")]
    kept += ["169.254.0.0/16", "fe80::/10", "fc00::/7", f"{UPLINK[6]}/48"]
    if any(destination in ip_network(each, strict=False) for each in kept):
        return "keep", ""
    # In IPv6 a range of the cluster must be known: from the list, or from a Pod in fc00::/7.
    if source.version == 6 and "2001" not in text and not mine:
        return "keep", ""
    return "masquerade", ""


def from_matches(sources: Mapping[str, Any], mine: Mapping[ObjectRef, Pod], inputs: Inputs, source: IPAddress) -> bool:
    if "cidrs" in sources and not any(source in ip_network(each) for each in sources["cidrs"]):
        return False
    if "podSelector" not in sources and "namespaceSelector" not in sources:
        return True
    namespaces = inputs.objects.objects(NAMESPACE)
    return any(
        str(source) in pod.addresses
        and selected(sources.get("podSelector", {}), pod.metadata.labels)
        and selected(
            sources.get("namespaceSelector", {}), namespaces[ObjectRef("Namespace", ref.namespace)].metadata.labels
        )
        for ref, pod in mine.items()
    )


def selected(wanted: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    for key, value in wanted.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for each in wanted.get("matchExpressions", []):
        if each["operator"] == "NotIn" and labels.get(each["key"]) in each["values"]:
            return False
        if each["operator"] == "DoesNotExist" and each["key"] in labels:
            return False
    return True


def to_matches(to: Sequence[Mapping[str, Any]] | None, destination: IPAddress) -> bool:
    if to is None:
        return True
    holding = [
        (ip_network(text).prefixlen, counts)
        for entry in to
        for text, counts in ((entry["cidr"], True), *((each, False) for each in entry.get("except", [])))
        if destination in ip_network(text)
    ]
    return bool(holding) and max(holding)[1]


def all_packets() -> list[tuple[IPAddress, IPAddress, str]]:
    return [
        (ip_address(source), ip_address(destination), interface)
        for version in (4, 6)
        for source in SOURCES[version]
        for destination in DESTINATIONS[version]
        for interface in INTERFACES
    ]


def said(found: Decision) -> tuple[str, str]:
    return found.translation.action, str(found.translation.address or "")


def traced(fakes: Mapping[int, FakeNftables], locality: Locality, packet: Packet) -> tuple[str, str]:
    verdict = fakes[packet.source.version].trace(packet, locality).verdict
    match verdict:
        case Accept():
            return "keep", ""
        case Masquerade():
            return "masquerade", ""
        case Snat(address):
            return "snat", str(address)
    raise AssertionError(verdict)


def programmed(intent: Intent) -> Mapping[int, FakeNftables]:
    async def write(family: Family) -> FakeNftables:
        fake = FakeNftables(family, TABLE)
        await fake.apply(fake.diff(await fake.read(), Writer(family)(intent)))
        return fake

    return {4: asyncio.run(write("ip")), 6: asyncio.run(write("ip6"))}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(worlds())
def test_explain_and_rules_say_what_the_policies_say(inputs: Inputs) -> None:
    compiled = Compiler(SETTINGS, lambda intent: intent)(inputs)
    assert not [p for found in compiled.problems.values() for p in found if p.severity == "error"]
    fakes = programmed(compiled.states)
    locality = Locality(frozenset(ip_address(each) for each in UPLINK.values()))
    for source, destination, interface in all_packets():
        expected = oracle(inputs, source, destination, interface)
        packet = Packet(source, destination, "udp", 40000, 53, out_interface=interface)
        assert said(decide(compiled.states, source, destination, "udp", interface)) == expected, packet
        assert traced(fakes, locality, packet) == expected, packet


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(worlds(), min_size=2, max_size=5))
def test_with_memory_as_from_scratch(history: list[Inputs]) -> None:
    families: tuple[Family, ...] = ("ip", "ip6")
    compile_ = Compiler(SETTINGS, lambda intent: intent)
    writers = {family: Writer(family) for family in families}
    for inputs in history:
        again, fresh = compile_(inputs), Compiler(SETTINGS, lambda intent: intent)(inputs)
        assert (again.states, again.problems, again.keep) == (fresh.states, fresh.problems, fresh.keep)
        for family in families:
            assert writers[family](again.states) == Writer(family)(fresh.states)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(worlds())
def test_a_shadowed_policy_decides_nothing(inputs: Inputs) -> None:
    intent = Compiler(SETTINGS, lambda made: made)(inputs).states
    policies = inputs.objects.objects(MASQUERADE_POLICY)
    shadowed = [problem.ref for problem in policy_findings(intent) if problem.reason == "ShadowedPolicy"]
    if shadowed:
        kinds = {**inputs.objects.kinds, "MasqueradePolicy": Listed(policies.updated({}, removed=shadowed))}
        without = Compiler(SETTINGS, lambda made: made)(Inputs(Snapshot(kinds), inputs.files, inputs.machine)).states
        for source, destination, interface in all_packets():
            asked = (source, destination, "udp", interface)
            assert decide(intent, *asked) == decide(without, *asked)
