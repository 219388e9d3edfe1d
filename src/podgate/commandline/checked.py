"""checked: what ``check`` says, as rows for a program and as lines for people.

Here: the row of a problem, the lines of several, which objects there were. Not here: what it looks for (check.py of
each feature), line numbers (sources/locate.py).
Invariant: rows come in the order of their places, by file and line; what has no line comes after, what a compile
complains about before the rest. Nothing is said twice.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem, Problems
from podgate.model.snapshot import Listed, Snapshot

_OPTIONS: Final = "Options"
_NO_SOURCE: Final = "no source"
_LINE: Final = re.compile(r"(?P<file>.+):(?P<line>[0-9]+)")


def options_ref(feature: str) -> ObjectRef:
    """Give what stands for a feature's command line in findings about it; a field of it is a flag, its own place."""
    return ObjectRef(_OPTIONS, feature)


def checked_rows(
    compiled: Problems, findings: Iterable[Problem], where: Callable[[Problem], str]
) -> list[dict[str, str]]:
    """Give a row for each problem of a compile and each finding, by place; ``where`` says where that is."""
    # A table has no order of its own: two runs would tell the same in another.
    problems = (problem for ref in sorted(compiled) for problem in compiled[ref])
    return sorted((_row(problem, where) for problem in dict.fromkeys((*problems, *findings))), key=_order)


def checked_text(rows: list[dict[str, str]], *notes: str) -> str:
    """Give a line for each row, then the notes, and how many rows there are."""
    lines = ["{shown}: {reason}: {message}".format(shown=_shown(row), **row) for row in rows]
    return "\n".join((*lines, *notes, f"{len(rows)} finding{'' if len(rows) == 1 else 's'}"))


def objects_seen(snapshot: Snapshot) -> dict[str, int | str]:
    """Say how many objects of each kind were looked at, or why none could be."""
    found = sorted(snapshot.kinds.items())
    return {kind: len(entry.objects) if isinstance(entry, Listed) else entry.why for kind, entry in found}


def objects_text(seen: Mapping[str, int | str], others: int = 0) -> str:
    """Give the same as words: ``2 Node, Namespace: forbidden, 3 others not looked at``, or ``no objects (no source)``.

    ``others`` is how many objects there were that were not looked at.
    """
    if seen and set(seen.values()) == {_NO_SOURCE}:
        return f"no objects ({_NO_SOURCE})"
    parts = [f"{found} {kind}" if isinstance(found, int) else f"{kind}: {found}" for kind, found in seen.items()]
    parts += [f"{others} other{'' if others == 1 else 's'} not looked at"] if others else []
    return ", ".join(parts) or "no objects"


def _order(row: Mapping[str, str]) -> tuple[bool, str, int]:
    """Give what sorts a row: whoever mends a file reads it from its top; rows without a line stay as they are."""
    in_no_file = row["place"] == f"{row['object']}:{row['field']}"
    found = None if in_no_file else _LINE.fullmatch(row["place"])
    return (False, found["file"], int(found["line"])) if found else (True, "", 0)


def _shown(row: Mapping[str, str]) -> str:
    """Give a row's place, and which object is meant where that is a line of its file."""
    place, ref, field = row["place"], row["object"], row["field"]
    if place in {field, ref, f"{ref}:{field}"}:
        return place
    if place.startswith(f"{ref}:"):  # a line of a file; where the file has many documents, [1].kind says less
        return f"{place}: {field}" if field and not field.startswith("[") else place
    return f"{place}: {ref}:{field}" if field else f"{place}: {ref}"


def _row(problem: Problem, where: Callable[[Problem], str]) -> dict[str, str]:
    return {
        "object": str(problem.ref),
        "field": problem.field,
        "place": problem.field if problem.ref.kind == _OPTIONS else where(problem),
        "reason": problem.reason,
        "message": problem.message,
    }
