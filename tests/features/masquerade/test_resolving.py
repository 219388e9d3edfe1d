"""What costs what: a Pod that comes changes one element of the sets that it belongs to, and nothing else."""

from ipaddress import IPv4Address
from typing import Any

import pytest

from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.families import updated
from podgate.features.masquerade.intent import Intent, NodeFacts, PolicyIntent, Spans
from podgate.features.masquerade.policies import WrittenPolicy
from podgate.features.masquerade.policy import MasqueradePolicy, policy_ref
from podgate.features.masquerade.port_room import PORTS_PER_POD, port_problems
from podgate.features.masquerade.prefixes import Span
from podgate.features.masquerade.resolving import missing_addresses
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_nftables import Writer
from podgate.joints import Inputs
from podgate.model.files import Present
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import Node, NodeSpec
from podgate.model.kinds.pods import Pod, PodSpec, PodStatus
from podgate.model.remembering import Remembered
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table, changes
from podgate.targets.nftables.diff import diff

SELECTED: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "web"}}}
POLICIES: dict[str, Any] = {
    "web": {"action": "Keep", "from": SELECTED, "to": [{"cidr": "20.0.0.0/8"}]},
    "db": {"action": "Masquerade", "from": {"podSelector": {"matchLabels": {"app": "db"}}}},
    "ranges": {"action": "Keep", "from": {"cidrs": ["10.17.0.0/16"]}},
}
NODE = Listed(Table.of({ObjectRef("Node", "node-1"): Node(ObjectMeta("node-1"), NodeSpec("10.16.0.0/16"))}))
LIST = Present(b"nonMasqueradeCIDRs: [10.0.0.0/8]\n")


def world(pods: Table[ObjectRef, Pod], **policies: Any) -> Inputs:
    written = {policy_ref(name): MasqueradePolicy(ObjectMeta(name), spec) for name, spec in policies.items()}
    kinds: dict[str, Listed[Any] | Absent] = {
        "Pod": Listed(pods),
        "Node": NODE,
        "MasqueradePolicy": Listed(Table.of(written)),
    }
    return Inputs(Snapshot(kinds), {DEFAULT_CONFIG: LIST})


def pods(count: int) -> Table[ObjectRef, Pod]:
    return Table.of(dict(pod(number) for number in range(count)))


def pod(number: int, app: str = "web") -> tuple[ObjectRef, Pod]:
    status = PodStatus("Running", str(IPv4Address("10.16.1.0") + number))
    found = Pod(ObjectMeta(f"pod-{number}", "default", {"app": app}), PodSpec("node-1"), status)
    return ObjectRef("Pod", found.metadata.name, "default"), found


def by_name(intent: Intent) -> dict[str, PolicyIntent]:
    return {policy.ref.name: policy for policy in intent.families[0].policies}


@pytest.fixture
def compile_() -> Compiler[Intent]:
    return Compiler(Settings(node_name="node-1"), lambda intent: intent)


def test_one_pod_more_is_one_element_more(compile_: Compiler[Intent]) -> None:
    writer, table = Writer("ip"), pods(200)
    first = compile_(world(table, **POLICIES)).states
    before = writer(first)
    second = compile_(world(table.updated(dict([pod(200)])), **POLICIES)).states
    plan = diff(before, writer(second))
    assert not plan.is_structural
    assert {name: (len(change.removed), len(change.added)) for name, change in plan.elements.items()} == {
        "from-web": (0, 1)
    }
    assert by_name(second)["db"] is by_name(first)["db"]
    assert by_name(second)["ranges"] is by_name(first)["ranges"]
    assert by_name(second)["web"].destinations is by_name(first)["web"].destinations
    assert second.families[0].intervals is first.families[0].intervals
    assert second.families[0].keep is first.families[0].keep


def test_a_label_that_changes_moves_a_pod_from_set_to_set(compile_: Compiler[Intent]) -> None:
    writer, table = Writer("ip"), pods(3)
    before = writer(compile_(world(table, **POLICIES)).states)
    moved = table.updated(dict([pod(1, "db")]))
    plan = diff(before, writer(compile_(world(moved, **POLICIES)).states))
    assert not plan.is_structural
    assert {name: (len(change.removed), len(change.added)) for name, change in plan.elements.items()} == {
        "from-web": (1, 0),
        "from-db": (0, 1),
    }


def test_a_policy_that_changes_leaves_the_sets_of_others_alone(compile_: Compiler[Intent]) -> None:
    writer = Writer("ip")
    before = writer(compile_(world(pods(3), **POLICIES)).states)
    changed = {**POLICIES, "web": {**POLICIES["web"], "to": [{"cidr": "21.0.0.0/8"}]}}
    plan = diff(before, writer(compile_(world(pods(3), **changed)).states))
    assert not plan.is_structural
    assert list(plan.elements) == ["to-web"]


def test_two_pods_with_one_address_are_one_source(compile_: Compiler[Intent]) -> None:
    ref, twin = ObjectRef("Pod", "a-twin", "default"), pod(0)[1]
    intent = compile_(world(pods(1).updated({ref: twin}), **POLICIES)).states
    (only,) = by_name(intent)["web"].source_intervals
    assert only.entry.origin.ref == ref
    without = compile_(world(pods(1), **POLICIES)).states
    assert len(by_name(without)["web"].sources or ()) == 1


def test_a_complaint_about_ports_stays_the_same_from_pod_to_pod(compile_: Compiler[Intent]) -> None:
    few = {"few": {"action": "Masquerade", "from": SELECTED, "ports": "1024-1151"}}
    complaints = [compile_(world(pods(count), **few)).problems.get(policy_ref("few")) for count in (1, 2, 3, 4)]
    assert complaints[0] is complaints[1] is None
    assert complaints[2] == complaints[3] != None  # noqa: E711 - both, and there
    intent = compile_(world(pods(2), **few)).states
    assert port_problems(intent, 0) == ()
    assert PORTS_PER_POD == 64


def test_an_address_is_missed_only_where_it_is_not() -> None:
    address = IPv4Address("192.0.2.77")
    chosen = WrittenPolicy(policy_ref("p"), action="snat", snat_address=address)
    assert missing_addresses([chosen], NodeFacts((address,)), "node-1") == ()
    (problem,) = missing_addresses([chosen], NodeFacts(()), "node-1")
    assert (problem.ref, problem.reason, problem.field) == (policy_ref("p"), "SnatAddressMissing", "spec.snatAddress")


def test_a_function_is_called_again_only_for_other_arguments() -> None:
    calls: list[int] = []

    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    doubled = Remembered(double)
    assert [doubled(2), doubled(2), doubled(3), doubled(2)] == [4, 4, 6, 4]
    assert calls == [2, 3, 2]


def test_spans_that_stay_are_the_same_shards() -> None:
    first = updated(Spans(), [Span(number, number) for number in range(100)])
    assert updated(first, [Span(number, number) for number in range(100)]) is first
    second = updated(first, [Span(number, number) for number in range(1, 101)])
    assert sorted(second) == [Span(number, number) for number in range(1, 101)]
    assert {(change.key, change.old, change.new) for change in changes(first, second)} == {
        (Span(0, 0), True, None),
        (Span(100, 100), None, True),
    }
