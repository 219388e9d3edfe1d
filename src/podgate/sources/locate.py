"""Locate: the file and line of what a message is about, found when the message is printed.

Here: ``Locator``: ``where`` for explanations, ``place`` and ``describe`` for problems, ``written`` and ``others`` for
what reading drops. Not here: where an object stands in its file (manifests.py), lines of a text (model/documents.py).
Invariant: nothing is read again but the text that a message is about; what cannot be found is named without a line,
never with a wrong one of another file.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podgate.model.documents import Lines, json_line
from podgate.model.fieldpath import Part, field_path, split_path
from podgate.model.files import FileContent, Present
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem
from podgate.sources.manifests import SnapshotReader
from podgate.sources.objects import Place, object_at, parsed_file

_BLOCK: Final = re.compile(rb":[ \t]*[|](?:[+-]?[1-9]?|[1-9][+-])[ \t]*(?:#.*)?\r?$")
"""The end of a line that begins a literal block (YAML 1.1, 9.3.4): its text starts on the next line, line by line."""

_MOST_READ: Final = 1 << 18
"""Bytes of a text above which no lines are looked for: reading it anew for a message would hold up everything else, and
the last text is kept with its lines, in up to some 20 times its length. Of a ``.jsonl`` only one line is read."""

Files = Mapping[str, FileContent]


class _Found(NamedTuple):
    """Where an object stands."""

    path: str
    data: bytes
    place: Place


class Locator:
    """Finds lines in node-local files, and in manifests.

    Args:
        manifests: what has read the files that objects come from; None: they come from elsewhere.
    """

    def __init__(self, manifests: SnapshotReader | None = None) -> None:
        self._manifests = manifests
        # Problems come in groups, of one file.
        self._lines = functools.lru_cache(maxsize=1)(Lines)
        self._parsed = functools.lru_cache(maxsize=1)(parsed_file)

    def where(self, ref: ObjectRef, field: str, files: Files) -> str:
        """Give ``PATH:LINE`` for a field of a file, ``Kind/NS/NAME:field`` for one of an object."""
        if ref.kind != "File":
            return f"{ref}:{field}" if field else str(ref)
        line = self.line(ref, field, files)
        return f"{ref.name}:{line}" if line else ref.name

    def line(self, ref: ObjectRef, field: str, files: Files) -> int | None:
        """Give the line of a field of a file; None if the file, or the object, is not in a file that can be read."""
        return self._line_in_file(ref.name, field, "", files) if ref.kind == "File" else None

    def place(self, problem: Problem, files: Files) -> str:
        """Give where a problem is, as ``describe`` says it; of an object that is in no file as ``where`` does."""
        return self._placed(problem, files)[0] or self.where(problem.ref, problem.field, files)

    def describe(self, problem: Problem, files: Files) -> str:
        """Give ``PATH:LINE: error: field: message``; of an object its name too, and no place if it is in no file.

        Args:
            problem: the problem.
            files: node-local files by path, as the inputs hold them.
        """
        place, exact = self._placed(problem, files)
        message = problem.message.removeprefix(_position(problem.message)) if exact else problem.message
        name, field = str(problem.ref), problem.field
        if problem.ref.kind == "File":
            name, field = "", _shown(field)
        elif not place:
            place, name = name, ""
        return ": ".join(part for part in (place, problem.severity, name, field, message) if part)

    def written(self) -> Mapping[ObjectRef, Any]:
        """Give the objects of the manifests as they are written; one without a namespace is in none."""
        return self._manifests.written() if self._manifests is not None else {}

    def others(self) -> int:
        """Give how many objects of the manifests nobody asked for."""
        return self._manifests.others if self._manifests is not None else 0

    def _line_in_file(self, path: str, field: str, message: str, files: Files) -> int | None:
        content = files.get(path)
        if content is None and self._manifests is not None:
            content = self._manifests.content(path)
        if not isinstance(content, Present):
            return None
        parts = split_path(field)
        document = 0
        if parts and isinstance(parts[0], int):  # of a manifest: the index of the document comes first
            document, parts = parts[0], parts[1:]
        fault = None if parts else _line_told(message)
        return fault or self._line(path, content.data, document, field_path(parts))

    def _line(self, path: str, data: bytes, document: int, field: str) -> int | None:
        """Give the line of a field of a document."""
        above = 0
        if path.endswith(".jsonl"):
            found = json_line(data, document)
            if found is None:
                return None
            number, data = found
            above, document = number - 1, 0
        if len(data) > _MOST_READ:
            return None
        line = self._lines(data).of(document, field)
        return line and line + above

    def _found(self, ref: ObjectRef) -> _Found | None:
        found = None if self._manifests is None else self._manifests.stands(ref)
        return None if found is None else _Found(*found)

    def _placed(self, problem: Problem, files: Files) -> tuple[str, bool]:
        """Give a problem's place, empty in no file; and whether it says what the message's own position says."""
        ref = problem.ref
        if ref.kind == "File":
            line = self._line_in_file(ref.name, problem.field, problem.message, files)
            return (f"{ref.name}:{line}", True) if line else (ref.name, False)
        found = self._found(ref)
        return ("", False) if found is None else self._place_of(found, problem)

    def _place_of(self, found: _Found, problem: Problem) -> tuple[str, bool]:
        """Give the place of a field of an object, and whether it is that of a line inside of a text in the object."""
        if len(found.data) > _MOST_READ and not found.path.endswith(".jsonl"):
            return found.path, False
        outside, inside, text = _split(object_at(*found, self._parsed), split_path(problem.field))
        line = self._line(found.path, found.data, found.place.document, field_path((*found.place.parts, *outside)))
        if line is None:
            return found.path, False
        inner = None
        if text is not None:
            data = text.encode("utf-8", "surrogatepass")
            inner = Lines(data).of(0, field_path(inside)) if inside else _line_told(problem.message)
        if inner is None:
            return f"{found.path}:{line}", False
        if _BLOCK.search(found.data.split(b"\n")[line - 1]):
            return f"{found.path}:{line + inner}", True
        return f"{found.path}:{line} (line {inner} of {field_path(outside)})", True


def _shown(field: str) -> str:
    """Take the index of the document off: the line says which one."""
    parts = split_path(field)
    return field_path(parts[1:]) if parts and isinstance(parts[0], int) else field


def _split(obj: Any, parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[Part, ...], str | None]:
    """Split a field at a text on its way: (to the text, inside of it, the text); no text: all is outside."""
    here = obj
    for index, part in enumerate(parts):
        if isinstance(here, str):
            return parts[:index], parts[index:], here
        if isinstance(part, str) and isinstance(here, dict):
            here = here.get(part)
        elif isinstance(part, int) and isinstance(here, list) and part < len(here):
            here = here[part]
        else:
            return parts, (), None
    return parts, (), here if isinstance(here, str) else None


def _line_told(message: str) -> int | None:
    """Give the line that the text of a fault names (composing.Fault)."""
    found = re.search(r"(?:^|: )line (\d+), column \d+: ", message)
    return int(found[1]) if found else None


def _position(message: str) -> str:
    """Give the ``line 3, column 5: `` that a fault's text begins with."""
    found = re.match(r"line \d+, column \d+: ", message)
    return found[0] if found else ""
