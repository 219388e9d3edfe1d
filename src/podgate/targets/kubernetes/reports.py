"""Reports: what each node says that it applies, and what becomes of that in the status of objects. Pure.

Here: a node's report, the status that a leader makes of all reports, Events of problems. Not here: which conditions an
object has (features/<name>/to_kubernetes.py), who leads (leading.py).
Invariant: a node writes its own report alone and a leader the statuses, so that the number of writes to one object does
not grow with the number of nodes.

Conventions: kubernetes.io, "API conventions", on conditions and ``observedGeneration``.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from podgate.joints import Compiled, Inputs
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ApiObject
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.reports import FEATURE_LABEL, MOST, NODE_REPORT, Applied, NodeReport, report_name
from podgate.model.problems import Problem
from podgate.model.snapshot import Kind
from podgate.targets.kubernetes.state import Fields, Notice, Part, Subject, own_object, status_of

NAMED: Final = 10
"""Nodes that a status names: it says who is missing, and stays small with thousands of nodes."""

PENDING: Final = "Pending"


class Condition(Frozen, frozen=True):
    """One condition of an object.

    Attributes:
        type: as ``Accepted``.
        holds: its status.
        reason: a CamelCase word.
        message: for people; empty where the reason says it all.
    """

    type: str
    holds: bool
    reason: str
    message: str = ""


def accepted(problems: Iterable[Problem]) -> Condition:
    """Say whether an object is accepted: not with an error; what is wrong or doubtful is in the message."""
    found = tuple(problems)
    errors = [problem for problem in found if problem.severity == "error"]
    said = "; ".join(f"{problem.field}: {problem.message}" for problem in errors or found)
    return Condition("Accepted", not errors, errors[0].reason if errors else "Valid", said)


class Tells(Protocol):
    """What a feature declares whose own objects have a status."""

    kind: Kind[Any]

    def conditions(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, tuple[Condition, ...]]:
        """Give the conditions of each object, as far as they are the same on every node. The leader alone asks."""
        ...

    def instead(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, str]:
        """Give the objects that this node does not do as they say, and why, as a CamelCase word."""
        ...


class Reporter(Frozen, frozen=True):
    """The Node that a report is about."""

    name: str
    uid: str


def report_of(
    manager: str,
    feature: str,
    node: Reporter,
    objects: Mapping[ObjectRef, ApiObject],
    instead: Mapping[ObjectRef, str],
) -> tuple[Part, Fields]:
    """Say what a node applies. The report belongs to the Node, and goes with it.

    Args:
        manager: our field manager.
        feature: its name.
        node: who reports.
        objects: those of the feature's own kind, as this node has dealt with them; the first ``MOST`` are named.
        instead: why it does not do what some of them say.
    """
    applied = [_applied(ref, objects[ref].metadata.generation, instead.get(ref, "")) for ref in sorted(objects)[:MOST]]
    owner = {"apiVersion": NODE.api_version, "kind": NODE.kind, "name": node.name, "uid": node.uid}
    fields = {
        "metadata": {"labels": {FEATURE_LABEL: feature}, "ownerReferences": [owner]},
        "feature": feature,
        "node": node.name,
        # An empty list would be no field of ours.
        **({"applied": applied} if applied else {}),
    }
    return own_object(ObjectRef(NODE_REPORT.kind, report_name(feature, node.name)), fields, manager)


def _applied(ref: ObjectRef, generation: int, instead: str) -> Mapping[str, Any]:
    entry = {"kind": ref.kind, "name": ref.name, "namespace": ref.namespace, "instead": instead}
    return {**{name: value for name, value in entry.items() if value}, "generation": generation}


class Heard(Frozen, frozen=True):
    """What one node says.

    Attributes:
        feature: of which feature.
        node: its name.
        digest: the same for nodes that say the same.
        applied: by object the generation that it has dealt with, and what it does instead.
    """

    feature: str
    node: str
    digest: bytes
    applied: Mapping[ObjectRef, tuple[int, str]]


Said = tuple[bytes, Mapping[ObjectRef, tuple[int, str]]]
"""A digest, and the objects."""


def said(entries: tuple[Applied, ...]) -> Said:
    """Read what a report says of objects."""
    applied = {ObjectRef(each.kind, each.name, each.namespace): (each.generation, each.instead) for each in entries}
    return hashlib.sha256(msgspec.json.encode(entries)).digest(), applied


def heard(report: NodeReport, read: Callable[[tuple[Applied, ...]], Said] = said) -> Heard:
    """Read a report; ``read`` may remember what other nodes said."""
    return Heard(report.feature, report.node, *read(report.applied))


class _Group(Frozen, frozen=True):
    """Nodes that say the same; thousands do, so that each is not asked about each object."""

    applied: Mapping[ObjectRef, tuple[int, str]]
    nodes: list[str]


def _grouped(told: Iterable[Heard]) -> list[_Group]:
    groups: dict[bytes, _Group] = {}
    for each in told:
        groups.setdefault(each.digest, _Group(each.applied, [])).nodes.append(each.node)
    for group in groups.values():
        group.nodes.sort()
    return list(groups.values())


def statuses(
    objects: Mapping[ObjectRef, ApiObject],
    conditions: Mapping[ObjectRef, tuple[Condition, ...]],
    told: Iterable[Heard] | None,
) -> list[tuple[Part, Fields]]:
    """Give the status of each object.

    Args:
        objects: those of the feature's own kind.
        conditions: what is so on every node.
        told: what the nodes say; None where that is not to be had.
    """
    groups = None if told is None else _grouped(told)
    return [_status(ref, objects[ref].metadata.generation, conditions.get(ref, ()), groups) for ref in sorted(objects)]


def _status(
    ref: ObjectRef, generation: int, conditions: tuple[Condition, ...], groups: list[_Group] | None
) -> tuple[Part, Fields]:
    status: dict[str, Any] = {"observedGeneration": generation}
    if groups is not None:
        reporting = sum(len(group.nodes) for group in groups)
        behind = [(group, why) for group in groups if (why := _why_not(group.applied.get(ref), generation))]
        applying = reporting - sum(len(group.nodes) for group, _ in behind)
        first = sorted((node, why) for group, why in behind for node in group.nodes[:NAMED])[:NAMED]
        nodes = {"applying": applying, "reporting": reporting, "summary": f"{applying}/{reporting}"}
        others = [{"node": node, "why": why} for node, why in first]
        status["nodes"] = {**nodes, **({"others": others} if others else {})}
        conditions = (*conditions, _everywhere(applying, reporting))
    status["conditions"] = [_condition(each, generation) for each in sorted(conditions, key=lambda each: each.type)]
    return status_of(ref, status)


def _why_not(said: tuple[int, str] | None, generation: int) -> str:
    """Say why nodes do not apply an object as it is now; empty where they do."""
    return said[1] if said is not None and said[0] == generation else PENDING


def _everywhere(applying: int, reporting: int) -> Condition:
    if not reporting:
        return Condition("Applied", holds=False, reason="NoReports", message="no node has reported")
    reason = "OnAllNodes" if applying == reporting else "NotOnAllNodes"
    return Condition("Applied", applying == reporting, reason, f"{applying} of {reporting} nodes apply it")


def _condition(condition: Condition, generation: int) -> Mapping[str, Any]:
    return {
        "type": condition.type,
        "status": "True" if condition.holds else "False",
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
    }


def notices(
    problems: Mapping[ObjectRef, tuple[Problem, ...]],
    objects: Mapping[str, tuple[Kind[Any], Mapping[ObjectRef, ApiObject]]],
    *,
    skipped: Mapping[ObjectRef, str],
) -> list[tuple[Notice, Subject]]:
    """Give an Event for each problem of an object of the API: one for each object, reason and message.

    Args:
        problems: complaints; those about files, options and objects of other kinds have no Event.
        objects: by kind, what an API gave.
        skipped: problems that are only so on this node, as object to reason: the status counts them.
    """
    found: dict[Notice, Subject] = {}
    for ref in sorted(problems):
        if ref.kind not in objects:
            continue
        kind, known = objects[ref.kind]
        uid = known[ref].metadata.uid if ref in known else ""
        for problem in problems[ref]:
            if problem.reason != skipped.get(ref):
                message = f"{problem.field}: {problem.message}" if problem.field else problem.message
                found[Notice(ref, problem.reason, message)] = Subject(kind.api_version, uid)
    return list(found.items())
