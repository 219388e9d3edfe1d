"""Selectors: the API's label and field selectors in their text form, and what selectors of any form match. Pure.

Here: parsing and matching, for sources that do themselves what an API server does; what the operators of selectors
inside objects mean. Not here: reading those, each in its own kind.
Invariant: an empty selector matches everything; a text that an API server refuses raises ValueError, since selectors
of watches are written by features, not by users.

Grammar: kubernetes.io, "Labels and Selectors" and "Field Selectors".
"""

import re
from collections.abc import Callable, Collection, Mapping
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


Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

OPERATORS: Final[Mapping[str, Callable[[str | None, Collection[str]], bool]]] = {
    "In": lambda have, values: have in values,
    "NotIn": lambda have, values: have not in values,
    "Exists": lambda have, _values: have is not None,
    "DoesNotExist": lambda have, _values: have is None,
}
"""Whether a value, None for an absent key, fulfils an operator of ``matchExpressions``; ``NotIn`` takes absent ones."""


class Requirement(Frozen, frozen=True):
    """One condition on a label or field."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, value: str | None) -> bool:
        """Say whether a value, None for an absent key, fulfils it."""
        return OPERATORS[self.operator](value, self.values)


Selector = tuple[Requirement, ...]
"""All must hold."""


def label_selector(text: str) -> Selector:
    """Parse as ``app=web,tier in (front, back),!canary``; raises ValueError with the part that is wrong."""
    return tuple(_label(part.strip()) for part in _COMMA.split(text)) if text.strip() else ()


def _label(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(found["key"], "In" if found["operator"] == "in" else "NotIn", values)
    elif found := _EQUAL.fullmatch(part):
        return _equality(found)
    elif found := _EXISTS.fullmatch(part):
        return Requirement(found["key"], "DoesNotExist" if found["operator"] else "Exists")
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
        found["key"], "NotIn" if found["operator"] == "!=" else "In", frozenset({found["values"].strip()})
    )


def matches_labels(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Say whether all requirements hold for an object's labels."""
    for requirement in selector:  # noqa: SIM110 - for each of 10,000 objects a generator costs more than what it does
        if not requirement.holds(labels.get(requirement.key)):
            return False
    return True


def matches_fields(selector: Selector, obj: Mapping[str, Any]) -> bool:
    """Say whether all requirements hold for an object as API JSON; a field that is absent is the empty text."""
    return all(requirement.holds(_value(obj, requirement.key)) for requirement in selector)


def _value(obj: Any, path: str) -> str:
    for key in path.split("."):
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj if isinstance(obj, str) else ""
