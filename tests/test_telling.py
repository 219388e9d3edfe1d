"""What is told beside a feature's own states: by every node, by the leader, and by nobody."""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

import pytest

from podgate.joints import Compiled, Inputs, Key, Step
from podgate.kubeapi.access import Access
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.config import NAMESPACE, Namespace
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.kinds.pods import POD
from podgate.model.kinds.reports import NODE_NAME, NODE_REPORT, Applied, NodeName, NodeReport, ReportMeta
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Absent, Kind, Listed, Snapshot, Watch
from podgate.model.table import Table
from podgate.targets.kubernetes.reports import Condition
from podgate.targets.kubernetes.state import State
from podgate.telling import Telling, Told
from tests.support.fake_target import FakeTarget

BLUE, POD_REF = ObjectRef("Namespace", "blue"), ObjectRef("Pod", "p", "default")
NODE_1, NODE_2 = ObjectRef("Node", "node-1"), ObjectRef("Node", "node-2")
WATCHES = (Watch(NODE), Watch(POD), Watch(NAMESPACE))
PROBLEMS = [
    Problem(BLUE, "error", "Ugly", "spec", "choose another"),
    Problem(BLUE, "warning", "NoPaint", "", "there is none here"),
    Problem(POD_REF, "error", "NoAddress", "", "give it one"),
    Problem(NODE_1, "warning", "Odd", "", "look at it"),
    Problem(NODE_2, "warning", "Odd", "", "look at it"),
    Problem(ObjectRef("File", "/etc/x"), "error", "BadSyntax", "", "no YAML"),
]


class States(Frozen, frozen=True):
    color: str


class ColorTelling:
    kind: Kind[Any] = NAMESPACE

    def conditions(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, tuple[Condition, ...]]:
        return {ref: (Condition("Accepted", True, compiled.states.color),) for ref in inputs.objects.objects(NAMESPACE)}

    def instead(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, str]:
        return {BLUE: "NoPaint"}


class Said(NamedTuple):
    """What is told; None where nobody knows what to say."""

    own: States
    node: State | None
    cluster: State | None


def taken(key: Key, why: str) -> Problem | None:
    return Problem(BLUE, "error", "Taken", "", f"{key}: {why}") if key == "port 1" else None


def told(
    reports: Listed[Any] | Absent,
    *,
    tells: bool = True,
    node: bool = True,
    blue: Absent | None = None,
    refused: Mapping[Key, str] = {},
    names: Listed[Any] | Absent | None = None,
) -> Said:
    """Tell; ``names``: of all Nodes, where the feature watches its own alone."""
    nodes = {NODE_2: Node(ObjectMeta("node-2"))} if names is None else {}
    nodes |= {NODE_1: Node(ObjectMeta("node-1", uid="uid-1"))} if node else {}
    kinds: dict[str, Listed[Any] | Absent] = {
        "Node": Listed(Table.of(nodes)),
        "Namespace": blue or Listed(Table.of({BLUE: Namespace(ObjectMeta("blue", generation=2))})),
        "NodeReport": reports,
    }
    kinds |= {"NodeName": names} if names is not None else {}
    watches = WATCHES if names is None else (*WATCHES[1:], Watch(NODE, field_selector="metadata.name=node-1"))
    inputs = Inputs(objects=Snapshot(kinds), refused=refused)
    compiled = Compiled(States("blue"), problems_by_object(PROBLEMS), problem_of=taken)
    telling = Telling("the_color", ColorTelling() if tells else None, watches, Access("http://localhost"), "node-1")
    found = telling.compiler(lambda _inputs: compiled)(inputs).states
    steps: tuple[Step[Told[States], Any, Any], ...] = telling.steps(())
    of_node, of_cluster = (step.want(found) if step.knows(found) else None for step in steps)
    return Said(found.own, of_node, of_cluster)


def reasons(state: State | None) -> list[tuple[str, str]]:
    assert state is not None
    return sorted((str(notice.ref), notice.reason) for notice in state.notices)


def bodies(state: State | None) -> dict[str, bytes]:
    assert state is not None
    return {str(part): fields.body for part, fields in state.parts.items()}


def listed(*reports: tuple[str, str, int]) -> Listed[NodeReport]:
    """Give reports: feature, node and the generation of ``blue`` that it applies, 0 for none."""
    found = {}
    for feature, node, generation in reports:
        applied = (Applied("Namespace", "blue", "", generation),) if generation else ()
        report = NodeReport(ReportMeta(f"{feature}.{node}"), feature, node, applied)
        found[ObjectRef("NodeReport", f"{feature}.{node}")] = report
    return Listed(Table.of(found))


REPORTS = listed(("the-color", "node-1", 2), ("the-color", "node-2", 0))


def test_a_node_tells_of_itself_and_its_pods_whoever_leads() -> None:
    for reports in (REPORTS, Absent("not leading")):
        state = told(reports)
        assert state.own == States("blue")
        assert list(bodies(state.node)) == ["NodeReport/the-color.node-1"]
        assert reasons(state.node) == [("Node/node-1", "Odd"), ("Pod/default/p", "NoAddress")]


def test_the_leader_tells_all_else_but_what_is_so_on_its_own_node_alone() -> None:
    cluster = told(REPORTS).cluster
    assert list(bodies(cluster)) == ["status of Namespace/blue"]
    assert b'"summary":"1/2"' in bodies(cluster)["status of Namespace/blue"]
    assert reasons(cluster) == [("Namespace/blue", "Ugly"), ("Node/node-2", "Odd")]


HOSTILE = listed(
    ("the-color", "node-1", 2),
    ("the-color", "nobody", 1),  # of no node that there is
    ("the-color", "nobody-2", 2),
    ("another", "node-2", 2),  # in the name of another feature, with the label of this one
)
NAMES = Listed(Table.of({ObjectRef("NodeName", name): NodeName() for name in ("node-1", "node-2")}))


@pytest.mark.parametrize("names", [None, NAMES], ids=["all Nodes are watched", "their names alone"])
def test_only_nodes_that_there_are_and_the_features_own_reports_count(names: Listed[Any] | None) -> None:
    assert b'"summary":"1/1"' in bodies(told(HOSTILE, names=names).cluster)["status of Namespace/blue"]


def test_where_nobody_may_see_which_nodes_there_are_all_that_report_count() -> None:
    assert b'"summary":"2/3"' in bodies(told(HOSTILE, names=Absent("forbidden")).cluster)["status of Namespace/blue"]


def test_nothing_is_said_until_it_is_known_which_nodes_there_are() -> None:
    assert told(REPORTS, names=Absent("not leading")).cluster is None


def test_what_a_target_refuses_here_is_told_by_this_node_whoever_leads() -> None:
    for reports in (REPORTS, Absent("not leading")):
        state = told(reports, refused={"port 1": "it is taken", "port 2": "nobody's"})
        assert ("Namespace/blue", "Taken") in reasons(state.node)
        assert state.cluster is None or ("Namespace/blue", "Taken") not in reasons(state.cluster)


def test_who_does_not_lead_says_nothing_of_the_cluster() -> None:
    assert told(Absent("not leading")).cluster is None


@pytest.mark.parametrize("why", ["forbidden", "not installed"])
def test_a_leader_that_cannot_see_reports_tells_the_rest(why: Any) -> None:
    cluster = told(Absent(why)).cluster
    assert b"summary" not in bodies(cluster)["status of Namespace/blue"]
    assert reasons(cluster)


def test_a_machine_that_is_no_node_of_the_cluster_reports_nothing() -> None:
    assert told(REPORTS, node=False).node is None


def test_a_feature_without_objects_of_its_own_has_events_alone() -> None:
    state = told(REPORTS, tells=False)
    assert bodies(state.cluster) == {}
    assert ("Namespace/blue", "NoPaint") in reasons(state.cluster)
    assert b"applied" not in bodies(state.node)["NodeReport/the-color.node-1"]


def test_the_two_steps_wait_for_the_rules_and_hold_up_nothing() -> None:
    def step(name: str, *, essential: bool) -> Step[States, Any, Any]:
        return Step(name, FakeTarget(), lambda states: {"a": states.color}, {}, essential=essential)

    telling = Telling("color", None, (Watch(POD),), Access("http://localhost"), "node-1")
    own = (step("rules", essential=True), step("old rules", essential=False))
    steps = telling.steps(own)
    assert [(each.name, each.after, each.essential) for each in steps] == [
        ("rules", (), True),
        ("old rules", (), False),
        ("kubernetes/node", ("rules",), False),
        ("kubernetes/status", (), False),
    ]
    assert steps[0].want(NOTHING) == {"a": "red"}
    # A start waits for the kernel alone, and nothing is taken back while nobody knows what to say.
    assert [each.recovers for each in steps] == [True, True, False, False]
    assert [each.knows(NOTHING) for each in steps] == [True, True, False, False]


def test_a_step_that_is_told_beside_is_asked_by_its_own_states_and_changed_in_nothing() -> None:
    own: Step[States, Any, Any] = Step(
        "rules",
        FakeTarget(),
        want=lambda states: {"a": states.color},
        empty={},
        after=("other",),
        resync=lambda states: len(states.color),
        essential=False,
        in_process=True,
        live=list,
        spread=lambda states: len(states.color),
        knows=lambda states: states.color == "red",
        recovers=False,
        transient=True,
        gap=lambda states: len(states.color),
        committed=lambda _generation, _seconds, _whole: None,
        failed=lambda _whole: None,
    )
    defaults = Step("", own.target, own.want, own.empty)
    fields = [field for field in Step.__struct_fields__ if field != "followers"]
    assert [field for field in fields if getattr(own, field) == getattr(defaults, field)] == ["target", "want", "empty"]
    asked = {field for field, hint in get_type_hints(Step).items() if "Callable[[~StatesT]" in str(hint)}
    assert len(asked) == 5
    lifted = Telling("color", None, (Watch(POD),), Access("http://localhost"), "node-1").steps((own,))[0]
    for field in fields:
        inner, outer = getattr(own, field), getattr(lifted, field)
        if field in asked:
            inner, outer = inner(NOTHING.own), outer(NOTHING)
        assert inner == outer, field


NOTHING = Told(States("red"), Compiled(States("red")), Inputs())


@pytest.mark.parametrize("why", ["forbidden", "not installed"])
def test_while_nobody_knows_which_objects_there_are_nothing_is_taken_back(why: Any) -> None:
    said = told(REPORTS, blue=Absent(why))
    assert (said.node, said.cluster) == (None, None)


def test_its_own_node_is_watched_where_the_feature_watches_none() -> None:
    def watched(*watches: Watch) -> set[tuple[str, str]]:
        found = Telling("color", None, watches, Access("http://localhost"), "node-1").watches
        return {(watch.kind.kind, watch.field_selector) for watch in found if not watch.by_leader}

    assert watched(Watch(POD)) == {("Pod", ""), ("Node", "metadata.name=node-1")}
    assert watched(Watch(NODE)) == {("Node", "")}


def test_a_leader_watches_reports_and_which_nodes_there_are() -> None:
    def led(*watches: Watch) -> list[Watch]:
        return [each for each in Telling("a_b", None, watches, Access("http://x"), "n").watches if each.by_leader]

    reports = Watch(NODE_REPORT, label_selector="podgate.dev/feature=a-b", by_leader=True)
    assert led(Watch(NODE)) == [reports]
    assert led() == led(Watch(NODE, field_selector="metadata.name=n")) == [reports, Watch(NODE_NAME, by_leader=True)]
