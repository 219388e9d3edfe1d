"""Composing: the parts of one document, in the order in which they are read, become one plain value.

Here: maps, lists, anchors, aliases, merge keys, duplicate keys, the bounds, and the lines of the fields that are asked
for. Not here: the syntax of YAML or JSON (documents.py), the meaning of plain scalars (scalars.py).
Invariant: time and memory are linear in the bytes read, plus at most ``MAX_ALIASED``; nothing nests deeper than
``MAX_DEPTH``, so whoever walks the value may recurse.
"""

from typing import Any, Final

from podgate.model.fieldpath import Part, field_path
from podgate.model.frozen import Frozen
from podgate.model.scalars import Scalar, key_text

MAX_DEPTH: Final = 100
"""Maps and lists inside one another. Kubernetes' own objects stay below 30."""

MAX_ALIASED: Final = 1 << 20
"""Characters that all aliases of a stream may add, a map or list counted as 16: as much as a whole object may have
in a cluster (etcd refuses requests above 1.5 MiB)."""

MAX_WARNINGS: Final = 100
"""Warnings kept of one stream; further ones say nothing new."""

_CONTAINER_SIZE: Final = 16

Position = tuple[int, int]
"""A line and a column in it, in characters, both from 1."""


class Fault(Frozen, frozen=True):
    """Something wrong with the text itself.

    Attributes:
        line: where, from 1.
        column: where in the line, in characters from 1.
        message: what is wrong and what to do; without the position.
        fatal: whether reading stopped here. If not, it is a warning.
    """

    line: int
    column: int
    message: str
    fatal: bool

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


class ReadingEnded(Exception):  # noqa: N818 - not an error of the program: reading ends, and the fault says why
    """Ends the reading of a stream; never leaves the modules of this package."""

    def __init__(self, at: Position, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(*at, message, fatal=True)


class _Frame:
    """A map or list that is still open. ``size`` and ``height`` are what an alias to it would add."""

    __slots__ = ("anchor", "at", "height", "key", "lines", "merged", "merging", "size", "value")

    def __init__(self, value: Any, anchor: str | None, at: Position) -> None:
        self.value = value
        self.anchor = anchor
        self.at = at
        self.key: str | None = None
        self.lines: dict[str, int] = {}
        self.merging = False
        self.merged: list[Any] = []
        self.size = _CONTAINER_SIZE
        self.height = 1

    def part(self) -> Part:
        """Give the key or index of the value that is read now."""
        if isinstance(self.value, list):
            return len(self.value)
        return "<<" if self.key is None else self.key


class Composer:
    """Builds the documents of one stream.

    Args:
        records: whether the lines of all fields are recorded in ``lines``, by the document's index and the path in it.
    """

    def __init__(self, *, records: bool = False) -> None:
        self.documents: list[Any] = []
        self.warnings: list[Fault] = []
        self.lines: dict[tuple[Part, ...], int] = {}
        self._records = records
        self._open: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._aliased = 0

    def start_document(self) -> None:
        """Begin a document; anchors do not outlive one."""
        self._anchors.clear()
        self._open.clear()

    @property
    def is_plain(self) -> bool:
        """Whether nobody asks for lines, so that a document may be added as a whole."""
        return not self._records

    def whole(self, document: Any) -> None:
        """Add a document that somebody else has read, and found nothing to complain of."""
        self.documents.append(document)

    def open(self, value: Any, anchor: str | None, at: Position) -> None:
        """Begin a map (an empty dict) or a list (an empty list)."""
        if len(self._open) >= MAX_DEPTH:
            raise ReadingEnded(at, f"maps and lists nest deeper than {MAX_DEPTH}; write it flatter")
        if self._open and self._expects_key():
            raise ReadingEnded(at, "a map or list stands where a key must be; write the key as plain text")
        self._record(at)
        if anchor is not None:
            self._anchors.pop(anchor, None)
        self._open.append(_Frame(value, anchor, at))

    def close(self) -> None:
        """End the map or list that was opened last."""
        frame = self._open.pop()
        for merged in frame.merged:
            for key, value in merged.items():
                frame.value.setdefault(key, value)
        self._add(frame.value, frame.size, frame.height, frame.anchor, frame.at)

    def scalar(self, value: Scalar, anchor: str | None, at: Position) -> None:
        """Add a scalar: a map key, or a value."""
        if self._open and self._expects_key():
            key = key_text(value)
            if key is None:
                raise ReadingEnded(at, "a map key is empty or null; write a name before the colon")
            if anchor is not None:
                self._anchors[anchor] = (value, 1 + len(key), 0)
            self._key(key, at)
            return
        self._record(at)
        size = 1 + len(value) if isinstance(value, str) else 1
        self._add(value, size, 0, anchor, at)

    def merge_key(self, at: Position) -> bool:
        """Take a plain ``<<``: gives whether it stands where a key must be, and so is a merge key."""
        if not self._open or not self._expects_key():
            return False
        self._key("<<", at)
        frame = self._open[-1]
        frame.key, frame.merging = None, True
        return True

    def alias(self, anchor: str, at: Position) -> None:
        """Add a copy of what an anchor names."""
        if any(frame.anchor == anchor for frame in self._open):
            raise ReadingEnded(at, f"alias *{anchor} stands inside the value that &{anchor} names: an endless value")
        if anchor not in self._anchors:
            raise ReadingEnded(at, f"alias *{anchor} has no anchor &{anchor} before it in this document")
        value, size, height = self._anchors[anchor]
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise ReadingEnded(at, f"aliases expand to more than {MAX_ALIASED} characters; write the values out")
        if isinstance(value, Scalar):
            self.scalar(value, None, at)
            return
        if self._expects_key():
            raise ReadingEnded(at, f"alias *{anchor} is a map or list, and stands where a key must be")
        if len(self._open) + height > MAX_DEPTH:
            raise ReadingEnded(at, f"alias *{anchor} makes maps and lists nest deeper than {MAX_DEPTH}")
        self._record(at)
        self._add(_copied(value), size, height, None, at)

    def _expects_key(self) -> bool:
        frame = self._open[-1]
        return frame.key is None and not frame.merging and isinstance(frame.value, dict)

    def _key(self, key: str, at: Position) -> None:
        frame = self._open[-1]
        frame.key = key
        frame.size += 1 + len(key)
        first = frame.lines.get(key)
        if first is not None:
            self._twice(first, at)
        frame.lines[key] = at[0]
        self._record(at)

    def _twice(self, first: int, at: Position) -> None:
        """Warn of a key that is there twice, and forget the lines below its first one."""
        if len(self.warnings) == MAX_WARNINGS:
            return
        path = self._path()
        message = f"{field_path(path[1:])} is given twice, on lines {first} and {at[0]}: the last one counts"
        self.warnings.append(Fault(*at, f"{message}; remove one", fatal=False))
        for known in [known for known in self.lines if known[: len(path)] == path]:
            del self.lines[known]

    def _add(self, value: Any, size: int, height: int, anchor: str | None, at: Position) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size, height)
        if not self._open:
            self.documents.append(value)
            return
        frame = self._open[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.merging:
            frame.merging = False
            maps = value if isinstance(value, list) else [value]
            if not all(isinstance(one, dict) for one in maps):
                raise ReadingEnded(at, "the merge key << takes a map or a list of maps")
            frame.merged.extend(maps)
        elif frame.key is not None:
            frame.value[frame.key] = value
            frame.key = None

    def _path(self) -> tuple[Part, ...]:
        return (len(self.documents), *(frame.part() for frame in self._open))

    def _record(self, at: Position) -> None:
        """Note the line of what begins now, if lines are asked for; a value keeps the line of its key."""
        if self._records:
            self.lines.setdefault(self._path(), at[0])


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value
