"""Claims: several files that may give the same object, and which of them does. Pure.

Here: the objects of all files by kind, updated file by file. Not here: reading files.
Invariant: an object is that of the first file by path that gives it; the tables are what a fresh build from the same
files gives, and an object that did not change is the same value as before.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.meta import ApiObject
from podgate.model.problems import Problem
from podgate.model.table import Table


class Claims:
    """What each file gives, and the tables that follow from it."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._files: dict[str, Mapping[ObjectRef, ApiObject]] = {}
        self._claims: dict[ObjectRef, dict[str, ApiObject]] = {}
        self._contested: set[ObjectRef] = set()
        self.tables: dict[str, Table[ObjectRef, Any]] = {kind: Table() for kind in kinds}

    def update(self, files: Mapping[str, Mapping[ObjectRef, ApiObject]]) -> None:
        """Set what some files give; nothing at all for a file that is gone."""
        touched: set[ObjectRef] = set()
        for path, objects in files.items():
            before = self._files.get(path, {})
            for ref in before.keys() - objects.keys():
                self._claims[ref].pop(path)
                touched.add(ref)
            for ref, obj in objects.items():
                if before.get(ref) != obj:
                    self._claims.setdefault(ref, {})[path] = obj
                    touched.add(ref)
            if objects:
                self._files[path] = objects
            else:
                self._files.pop(path, None)
        self._decide(touched)

    def _decide(self, touched: set[ObjectRef]) -> None:
        entries: dict[str, dict[ObjectRef, ApiObject]] = {}
        removed: dict[str, list[ObjectRef]] = {}
        for ref in touched:
            claims = self._claims[ref]
            if claims:
                entries.setdefault(ref.kind, {})[ref] = claims[min(claims)]
            else:
                del self._claims[ref]
                removed.setdefault(ref.kind, []).append(ref)
            if len(claims) > 1:
                self._contested.add(ref)
            else:
                self._contested.discard(ref)
        for kind in entries.keys() | removed.keys():
            self.tables[kind] = self.tables[kind].updated(entries.get(kind, {}), removed.get(kind, ()))

    def winner(self, ref: ObjectRef) -> str | None:
        """Give the file whose object counts; None where no file gives it."""
        return min(self._claims.get(ref, ()), default=None)

    def conflicts(self) -> tuple[tuple[str, ObjectRef, str], ...]:
        """Give each (file, object, file that wins it) where a file gives an object for nothing, in order."""
        return tuple(
            (path, ref, winner)
            for ref in sorted(self._contested)
            for winner in [min(self._claims[ref])]
            for path in sorted(self._claims[ref])
            if path != winner
        )


def conflict_problem(path: str, ref: ObjectRef, winner: str, field: str) -> Problem:
    """Complain about an object that an earlier file gives too; ``field`` is where its name stands."""
    message = f"{ref} is in {winner} too, and that one counts: remove one of the two"
    return Problem(file_ref(path), "warning", "Duplicate", field, message)
