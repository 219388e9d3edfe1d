"""selecting: which Pods of a node a policy's selectors find.

Here: label selectors as they stand inside objects (matchLabels, matchExpressions), and what a pair of them matches.
Not here: selectors in their text form (model/selectors.py), which Pods are this node's (own_pods.py).
Invariant: an empty selector matches everything; a selector that an API server refuses raises NotASelector.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from podgate.features.masquerade.cidrs import shown
from podgate.model.frozen import Frozen
from podgate.model.selectors import OPERATORS, Requirement, Selector, matches_labels
from podgate.model.spelling import did_you_mean

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""What API servers put on every namespace, with its name (since Kubernetes 1.22)."""

_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_PART}")
_VALUE: Final = re.compile(rf"(?:{_PART})?")


class NotASelector(ValueError):  # noqa: N818 - it is the user's, and the message is for the user
    """What is no label selector.

    Attributes:
        parts: the path below the selector to what is wrong.
    """

    def __init__(self, message: str, *parts: str | int) -> None:
        super().__init__(message)
        self.parts = parts


class Labelled(Frozen, frozen=True):
    """A Pod of this node as selectors see it."""

    labels: Mapping[str, str] = {}
    namespace: str = "default"
    namespace_labels: Mapping[str, str] = {}


class PodSelection(Frozen, frozen=True):
    """Both must match: ``pods`` a Pod's labels, ``namespaces`` those of its namespace."""

    pods: Selector = ()
    namespaces: Selector = ()

    def selects(self, pod: Labelled) -> bool:
        """Say whether a Pod is selected."""
        return matches_labels(self.pods, pod.labels) and (
            not self.namespaces or matches_labels(self.namespaces, {**pod.namespace_labels, NAME_LABEL: pod.namespace})
        )


def read_selector(value: Any) -> Selector:
    """Read ``{matchLabels: {…}, matchExpressions: [{key, operator, values}]}``.

    Raises:
        NotASelector: with the first mistake.
    """
    known = ("matchLabels", "matchExpressions")
    if not isinstance(value, Mapping):
        raise NotASelector(f"{shown(value)} is not a selector: write matchLabels or matchExpressions below it")
    for key in value:
        if key not in known:
            hint = did_you_mean(key, known) or f": write labels below {known[0]}"
            raise NotASelector(f"unknown field{hint}", key)
    labels = value.get("matchLabels") or {}
    if not isinstance(labels, Mapping):
        raise NotASelector(f"{shown(labels)} is not a map of labels: write KEY: VALUE below it", "matchLabels")
    found = [_label(key, text) for key, text in labels.items()]
    expressions = value.get("matchExpressions") or ()
    if not isinstance(expressions, list | tuple):
        raise NotASelector(f"{shown(expressions)} is not a list: write key, operator, values", "matchExpressions")
    return (*found, *(_expression(item, index) for index, item in enumerate(expressions)))


def _label(key: str, value: Any) -> Requirement:
    _checked(key, (value,), "matchLabels", key)
    return Requirement(key, "In", frozenset({value}))


def _checked(key: Any, values: tuple[Any, ...], *parts: str | int) -> None:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise NotASelector(f"{shown(key)} can be no label's key: correct it", *parts)
    for value in values:
        if not isinstance(value, str):
            raise NotASelector(f"{shown(value)} is not text: write it in quotes", *parts)
        if not _VALUE.fullmatch(value):
            raise NotASelector(f"{shown(value)} can be no label's value: correct it", *parts)


def _expression(item: Any, index: int) -> Requirement:
    place = ("matchExpressions", index)
    if not isinstance(item, Mapping) or not item.keys() <= {"key", "operator", "values"}:
        raise NotASelector(f"{shown(item)} is no expression: write key, operator and values", *place)
    operator: Any = item.get("operator")
    values = item.get("values") or ()
    if operator not in tuple(OPERATORS):  # what is written may be a list, which has no hash
        guess = did_you_mean(operator, OPERATORS) if isinstance(operator, str) else ""
        raise NotASelector(f"{shown(operator)} is no operator{guess}: write one of {', '.join(OPERATORS)}", *place)
    if not isinstance(values, list | tuple):
        raise NotASelector(f"{shown(values)} is not a list: write values as list items", *place, "values")
    _checked(item.get("key"), tuple(values), *place)
    if operator in ("In", "NotIn"):
        if not values:
            raise NotASelector(f"{operator} needs values: write at least one", *place, "values")
        return Requirement(item["key"], operator, frozenset(values))
    if values:
        raise NotASelector(f"{operator} takes no values: remove them", *place, "values")
    return Requirement(item["key"], operator)
