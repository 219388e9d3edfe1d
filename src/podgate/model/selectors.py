"""Selectors: the API's label and field selectors in their text form, and what they match. Pure.

Here: parsing and matching, for sources that do themselves what an API server does. Not here: selectors inside objects.
Invariant: an empty selector matches everything; a text that an API server refuses raises ValueError, since selectors
of watches are written by features, not by users.

Grammar: kubernetes.io, "Labels and Selectors" and "Field Selectors".
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from podgate.model.frozen import Frozen

_KEY: Final = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?|"
_SET: Final = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\(\s*(?P<values>[^()]*?)\s*\)")
_EQUAL: Final = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|=|!=)\s*(?P<values>{_VALUE})")
_EXISTS: Final = re.compile(rf"(?P<operator>!?)\s*(?P<key>{_KEY})")
_COMMA: Final = re.compile(r",(?![^()]*\))")
_FIELD: Final = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9.]*)\s*(?P<operator>==|=|!=)\s*(?P<values>[^=!,]*)")

FIELDS: Final = ("metadata.name", "metadata.namespace", "spec.nodeName")
"""The fields that a field selector may name. An API server knows some more, by kind."""


class Requirement(Frozen, frozen=True):
    """One condition on a label or field.

    Attributes:
        operator: ``in``; ``notin``, which an absent key fulfils too; ``exists``; ``absent``.
    """

    key: str
    operator: Literal["in", "notin", "exists", "absent"]
    values: frozenset[str] = frozenset()

    def holds(self, value: str | None) -> bool:
        """Say whether a value, None for an absent key, fulfils it."""
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None


Selector = tuple[Requirement, ...]
"""All must hold."""


def label_selector(text: str) -> Selector:
    """Parse as ``app=web,tier in (front, back),!canary``; raises ValueError with the part that is wrong."""
    return tuple(_label(part.strip()) for part in _COMMA.split(text)) if text.strip() else ()


def _label(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(found["key"], "in" if found["operator"] == "in" else "notin", values)
    elif found := _EQUAL.fullmatch(part):
        return _equality(found)
    elif found := _EXISTS.fullmatch(part):
        return Requirement(found["key"], "absent" if found["operator"] else "exists")
    raise ValueError(f"not a label selector: {part!r}; write key=value, key!=value, key in (a, b), key or !key")


def field_selector(text: str) -> Selector:
    """Parse as ``spec.nodeName=node-1,metadata.namespace!=kube-system``; raises ValueError with the bad part."""
    return tuple(_field(part.strip()) for part in text.split(",")) if text.strip() else ()


def _field(part: str) -> Requirement:
    found = _FIELD.fullmatch(part)
    if found is None or found["key"] not in FIELDS:
        raise ValueError(f"not a field selector: {part!r}; write FIELD=value or FIELD!=value of {', '.join(FIELDS)}")
    return _equality(found)


def _equality(found: re.Match[str]) -> Requirement:
    return Requirement(
        found["key"], "notin" if found["operator"] == "!=" else "in", frozenset({found["values"].strip()})
    )


def matches_labels(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Say whether all requirements hold for an object's labels."""
    return all(requirement.holds(labels.get(requirement.key)) for requirement in selector)


def matches_fields(selector: Selector, obj: Mapping[str, Any]) -> bool:
    """Say whether all requirements hold for an object as API JSON; a field that is absent is the empty text."""
    return all(requirement.holds(_value(obj, requirement.key)) for requirement in selector)


def _value(obj: Any, path: str) -> str:
    for key in path.split("."):
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj if isinstance(obj, str) else ""
