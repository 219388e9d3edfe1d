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
        # Who gives each object, in order. Nearly all are given by one file, and share the value that says so.
        self._paths: dict[ObjectRef, tuple[str, ...]] = {}
        self._contested: set[ObjectRef] = set()
        self.tables: dict[str, Table[ObjectRef, Any]] = {kind: Table() for kind in kinds}

    def update(self, files: Mapping[str, Mapping[ObjectRef, ApiObject]]) -> None:
        """Set what some files give; nothing at all for a file that is gone."""
        touched: set[ObjectRef] = set()
        for path, objects in files.items():
            before, alone = self._files.get(path, {}), (path,)
            for ref in before.keys() - objects.keys():
                self._paths[ref] = tuple(each for each in self._paths[ref] if each != path)
                touched.add(ref)
            for ref, obj in objects.items():
                known = before.get(ref)
                if known is None:
                    others = self._paths.get(ref)
                    self._paths[ref] = tuple(sorted((*others, path))) if others else alone
                elif known is obj or known == obj:
                    continue
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
            paths = self._paths[ref]
            if paths:
                entries.setdefault(ref.kind, {})[ref] = self._files[paths[0]][ref]
            else:
                del self._paths[ref]
                removed.setdefault(ref.kind, []).append(ref)
            if len(paths) > 1:
                self._contested.add(ref)
            else:
                self._contested.discard(ref)
        for kind in entries.keys() | removed.keys():
            self.tables[kind] = self.tables[kind].updated(entries.get(kind, {}), removed.get(kind, ()))

    def winner(self, ref: ObjectRef) -> str | None:
        """Give the file whose object counts; None where no file gives it."""
        return next(iter(self._paths.get(ref, ())), None)

    def conflicts(self) -> tuple[tuple[str, ObjectRef, str], ...]:
        """Give each (file, object, file that wins it) where a file gives an object for nothing, in order."""
        return tuple(
            (path, ref, self._paths[ref][0]) for ref in sorted(self._contested) for path in self._paths[ref][1:]
        )


def conflict_problem(path: str, ref: ObjectRef, winner: str, field: str) -> Problem:
    """Complain about an object that an earlier file gives too; ``field`` is where its name stands."""
    message = f"{ref} is in {winner} too, and that one counts: remove one of the two"
    return Problem(file_ref(path), "warning", "Duplicate", field, message)
