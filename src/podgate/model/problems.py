"""Problem: a complaint about something that a user wrote, as data.

Here: the value and its severities. Not here: printing with line numbers (sources/locate.py), metrics, events.
Invariant: one bad object never blocks another, so a problem is returned beside a result, never raised.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.table import Table

Severity = Literal["error", "warning"]


class Problem(Frozen, frozen=True, order=True):
    """What is wrong with one field of one object.

    Attributes:
        ref: the object (or file) that the user can change.
        severity: ``error`` when the object or entry is not used as written, ``warning`` when it is.
        reason: a CamelCase word from a small fixed set per feature; a metric label and an event reason.
        field: the path of the field, as ``nonMasqueradeCIDRs[1]`` or ``spec.from.cidrs[0]``; empty for the whole.
        message: what was wrong, with the offending value, and what to do.
    """

    ref: ObjectRef
    severity: Severity
    reason: str
    field: str
    message: str


Problems = Table[ObjectRef, tuple[Problem, ...]]


def with_problems(table: Problems, more: Iterable[Problem]) -> Problems:
    """Add problems to a table, after those that an object has already."""
    added = problems_by_object(more)
    return table.updated({ref: (*table.get(ref, ()), *items) for ref, items in added.items()}) if added else table


def problems_by_object(problems: Iterable[Problem]) -> Problems:
    """Group problems by the object that they are about, keeping their order within one object."""
    found: dict[ObjectRef, list[Problem]] = {}
    for problem in problems:
        found.setdefault(problem.ref, []).append(problem)
    grouped: Mapping[ObjectRef, tuple[Problem, ...]] = {ref: tuple(items) for ref, items in found.items()}
    return Table.of(grouped)
