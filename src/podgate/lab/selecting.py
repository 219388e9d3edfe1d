"""Selecting: which labels a selector matches, and which nodes may take a Pod. Pure.

Here: label selectors, node selectors, required node affinity, taints and tolerations, as the API defines them.
Not here: choosing one node of several (controllers/scheduler.py).
Invariant: an operator that the API does not define matches nothing; validity.py refuses it before that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from podgate.lab.shapes import LabelSelector, Node, NodeSelectorTerm, PodSpec, Requirement, Taint, Toleration
from podgate.model import selectors

BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of a taint that keep a Pod off; ``PreferNoSchedule`` is only a wish."""

UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What a cordoned node counts as tainted with."""


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector matches; an empty one matches everything."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _requirement(one, labels) for one in selector.match_expressions
    )


def allows(spec: PodSpec, node: Node) -> bool:
    """Tell whether nodeSelector and required node affinity let a Pod onto a node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or any(_term(term, node) for term in required.node_selector_terms)


def untolerated(tolerations: Iterable[Toleration], node: Node, effects: frozenset[str] = BLOCKING) -> Taint | None:
    """Give the first taint of a node with one of these effects that no toleration covers; None if there is none."""
    known = tuple(tolerations)
    taints = (*node.spec.taints, *([UNSCHEDULABLE] if node.spec.unschedulable else []))
    for taint in taints:
        if taint.effect in effects and not any(tolerates(one, taint) for one in known):
            return taint
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether a toleration covers a taint; an empty key with ``Exists`` covers all, an empty effect any effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_requirement(one, node.metadata.labels) for one in term.match_expressions) and all(
        _requirement(one, fields) for one in term.match_fields
    )


def _requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    test = OPERATORS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else None


def _greater(have: str | None, values: tuple[str, ...]) -> bool:
    number, bound = _number(have), _number(values[0] if values else None)
    return number is not None and bound is not None and number > bound


def _less(have: str | None, values: tuple[str, ...]) -> bool:
    number, bound = _number(have), _number(values[0] if values else None)
    return number is not None and bound is not None and number < bound


OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    **selectors.OPERATORS,
    "Gt": _greater,
    "Lt": _less,
}
"""The API's operators; ``Gt`` and ``Lt`` are for nodes only."""
