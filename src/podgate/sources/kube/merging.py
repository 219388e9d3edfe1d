"""Merging: several watches of one kind become the one entry that a snapshot has for it. Pure.

Here: the union of tables, kept up incrementally. Not here: the watches (watching.py).
Invariant: an object is there while any watch has it; of two watches the first one's value counts; the union is the same
table while no watch changed.
"""

from collections.abc import Sequence
from typing import Any

from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Absent, Listed
from podgate.model.table import Table, changes
from podgate.sources.kube.watching import Watching


class Merging:
    """The union of some watches of one kind."""

    def __init__(self) -> None:
        self._tables: tuple[Table[ObjectRef, Any], ...] = ()
        self._entry: Listed[Any] | Absent = Listed(Table())
        self._union: Table[ObjectRef, Any] = Table()

    def __call__(self, watchings: Sequence[Watching]) -> Listed[Any] | Absent:
        """Give the kind's entry. It is Absent only when no watch of it is listed, and one is sure to be absent."""
        absent = next((watching.absent for watching in watchings if watching.absent is not None), None)
        if absent is not None and not any(watching.listed for watching in watchings):
            union, entry = Table[ObjectRef, Any](), Absent(absent)
            self._tables = ()
        else:
            union = self._united(tuple(watching.objects for watching in watchings))
            entry = self._entry if isinstance(self._entry, Listed) and union is self._union else Listed(union)  # type: ignore[assignment]
        self._union, self._entry = union, entry
        return entry

    def _united(self, tables: tuple[Table[ObjectRef, Any], ...]) -> Table[ObjectRef, Any]:
        before, self._tables = self._tables, tables
        if len(tables) == 1:
            return tables[0]
        if len(before) != len(tables):
            before = (Table[ObjectRef, Any](),) * len(tables)
            union = Table[ObjectRef, Any]()
        else:
            union = self._union
        touched = {change.key for old, new in zip(before, tables, strict=True) for change in changes(old, new)}
        put: dict[ObjectRef, Any] = {}
        for ref in touched:
            found = next((table[ref] for table in tables if ref in table), None)
            if found is not None:
                put[ref] = found
        return union.updated(put, touched - put.keys())
