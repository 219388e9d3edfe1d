"""What nodes report, and what becomes of it in the status of an object: tables of input and output."""

from typing import Any

import msgspec
import pytest

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, NAMESPACE, Namespace
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.reports import NODE_REPORT, Applied, NodeReport, report_name
from podgate.model.problems import Problem, problems_by_object
from podgate.targets.kubernetes.reports import (
    NAMED,
    Condition,
    Reporter,
    heard,
    notices,
    report_of,
    statuses,
)
from podgate.targets.kubernetes.state import Notice, Part, Subject

BLUE, RED = ObjectRef("Namespace", "blue"), ObjectRef("Namespace", "red")
OBJECTS = {
    BLUE: Namespace(ObjectMeta("blue", uid="uid-blue", generation=3)),
    RED: Namespace(ObjectMeta("red", generation=1)),
}
ACCEPTED = Condition("Accepted", holds=True, reason="Valid")


def test_a_report_belongs_to_its_node_and_says_what_became_of_each_object() -> None:
    node = Reporter("node-1", "uid-1")
    part, fields = report_of("podgate-color", "color", node, OBJECTS, {RED: "NoPaint"})
    assert part == Part(ObjectRef("NodeReport", "color.node-1"))
    body = msgspec.json.decode(fields.body)
    assert fields.own
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"}
    ]
    assert body["metadata"]["labels"]["podgate.dev/feature"] == "color"
    report = msgspec.json.decode(fields.body, type=NODE_REPORT.decodes_to)
    assert (report.feature, report.node) == ("color", "node-1")
    assert report.applied == (
        Applied("Namespace", "blue", generation=3),
        Applied("Namespace", "red", generation=1, instead="NoPaint"),
    )


def test_names_of_reports_are_names_of_objects_however_long_the_nodes_is() -> None:
    assert report_name("color", "node-1") == "color.node-1"
    long = ["n" * 253, "n" * 252 + "m", "n" * 230 + "." * 1 + "x" * 22]
    names = [report_name("color", each) for each in long]
    assert all(len(name) <= 253 for name in names)
    assert len(set(names)) == len(names)


def reports(**nodes: tuple[int, str] | None) -> list[NodeReport]:
    """Give reports about ``blue``: generation and deviation by node, or None for a report without it."""
    return [
        NodeReport(node=name, applied=() if told is None else (Applied("Namespace", "blue", "", *told),))
        for name, told in nodes.items()
    ]


COUNTS: dict[str, tuple[list[NodeReport], dict[str, Any], tuple[str, str]]] = {
    "everywhere": (
        reports(a=(3, ""), b=(3, "")),
        {"applying": 2, "reporting": 2, "summary": "2/2"},
        ("True", "OnAllNodes"),
    ),
    "one node is behind, one has not seen it, one does something else": (
        reports(d=(3, ""), c=(2, ""), b=None, a=(3, "NoPaint")),
        {
            "applying": 1,
            "reporting": 4,
            "summary": "1/4",
            "others": [
                {"node": "a", "why": "NoPaint"},
                {"node": "b", "why": "Pending"},
                {"node": "c", "why": "Pending"},
            ],
        },
        ("False", "NotOnAllNodes"),
    ),
    "nobody has reported": ([], {"applying": 0, "reporting": 0, "summary": "0/0"}, ("False", "NoReports")),
}


@pytest.mark.parametrize(("told", "nodes", "applied"), COUNTS.values(), ids=COUNTS.keys())
def test_a_status_counts_the_nodes(told: list[NodeReport], nodes: dict[str, Any], applied: tuple[str, str]) -> None:
    status = status_of_blue(told)
    assert status["observedGeneration"] == 3
    assert status["nodes"] == nodes
    accepted, everywhere = status["conditions"]
    expected = {"type": "Accepted", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 3}
    assert accepted == expected
    assert (everywhere["type"], everywhere["status"], everywhere["reason"]) == (
        "Applied",
        *applied,
    )


def test_a_status_names_a_few_nodes_and_stays_small_with_thousands() -> None:
    told = [NodeReport(node=f"node-{number:05}") for number in range(5000)]
    status = status_of_blue(told)
    assert [each["node"] for each in status["nodes"]["others"]] == [f"node-{number:05}" for number in range(NAMED)]
    assert len(msgspec.json.encode(status)) < 2000


def test_without_reports_a_status_says_nothing_about_nodes() -> None:
    status = status_of_blue(None)
    assert "nodes" not in status
    assert [each["type"] for each in status["conditions"]] == ["Accepted"]


def status_of_blue(told: list[NodeReport] | None) -> dict[str, Any]:
    heard_of = None if told is None else map(heard, told)
    found = dict(statuses({BLUE: OBJECTS[BLUE]}, {BLUE: (ACCEPTED,)}, heard_of))
    status: dict[str, Any] = msgspec.json.decode(found[Part(BLUE, "status")].body)["status"]
    return status


def test_problems_of_objects_become_events_and_no_others() -> None:
    file, gone = ObjectRef("File", "/etc/config"), ObjectRef("Namespace", "gone")
    problems = problems_by_object(
        [
            Problem(BLUE, "error", "Ugly", "spec.color", "choose another"),
            Problem(BLUE, "error", "Ugly", "spec.color", "choose another"),
            Problem(BLUE, "warning", "Pale", "", "add paint"),
            Problem(RED, "warning", "NoPaint", "", "there is none here"),
            Problem(RED, "error", "Ugly", "", "choose another"),
            Problem(gone, "error", "Odd", "", "it does not decode"),
            Problem(file, "error", "BadSyntax", "", "no YAML"),
            Problem(ObjectRef("ConfigMap", "c", "ns"), "error", "BadSyntax", "", "not watched"),
        ]
    )
    known = {"Namespace": (NAMESPACE, OBJECTS)}
    assert dict(notices(problems, known, skipped={RED: "NoPaint"})) == {
        Notice(BLUE, "Ugly", "spec.color: choose another"): Subject("v1", "uid-blue"),
        Notice(BLUE, "Pale", "add paint"): Subject("v1", "uid-blue"),
        Notice(RED, "Ugly", "choose another"): Subject("v1", ""),
        Notice(gone, "Odd", "it does not decode"): Subject("v1", ""),
    }
    assert notices(problems, {"ConfigMap": (CONFIG_MAP, {})}, skipped={})[0][0].ref.namespace == "ns"
