"""Locate: the file and line of what a message is about, found when the message is printed.

Here: ``Locator``: ``where`` for explanations, ``describe`` for problems,
``written`` for what decoding drops. Not here: lines inside of a text
(podgate.model.documents).
Invariant: manifests are read only when something is asked about them; what cannot be found is named without a line,
never with a wrong one of another file.
"""

import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podgate.model.documents import Parsed, locate, parse
from podgate.model.fieldpath import Part, field_path, split_path
from podgate.model.files import FileContent, Present
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem
from podgate.sources.manifests import load_manifests
from podgate.sources.objects import Place, objects_in, parsed_file, raw_ref

_BLOCK: Final = re.compile(rb":[ \t]*[|](?:[+-]?[1-9]?|[1-9][+-])[ \t]*(?:#.*)?\r?$")
"""The end of a line that begins a literal block (YAML 1.1, 9.3.4): its text starts on the next line, line by line."""

_FRESH: Final = 1.0
"""Seconds for which manifests that were read answer further questions: problems come in groups."""

Files = Mapping[str, FileContent]


class _Found(NamedTuple):
    """Where an object stands."""

    path: str
    data: bytes
    place: Place
    obj: Any


class Locator:
    """Finds lines in node-local files, and in manifests.

    Args:
        manifests: the folder or file that objects come from; None: they come from elsewhere.
    """

    def __init__(self, manifests: str | None = None) -> None:
        self._path = manifests
        self._read_at = float("-inf")
        self._contents: Files = {}
        self._objects: Mapping[ObjectRef, _Found] | None = None

    def where(self, ref: ObjectRef, field: str, files: Files) -> str:
        """Give ``PATH:LINE`` for a field of a file, ``Kind/NS/NAME:field`` for one of an object."""
        if ref.kind != "File":
            return f"{ref}:{field}" if field else str(ref)
        line = self.line(ref, field, files)
        return f"{ref.name}:{line}" if line else ref.name

    def line(self, ref: ObjectRef, field: str, files: Files) -> int | None:
        """Give the line of a field of a file; None if the file, or the object, is not in a file that can be read."""
        return self._line_in_file(ref.name, field, "", files) if ref.kind == "File" else None

    def describe(self, problem: Problem, files: Files) -> str:
        """Give ``PATH:LINE: error: field: message``; of an object its name too, and no place if it is in no file.

        Args:
            problem: the problem.
            files: node-local files by path, as the inputs hold them.
        """
        ref, message = problem.ref, problem.message
        if ref.kind == "File":
            line = self._line_in_file(ref.name, problem.field, message, files)
            place, field = f"{ref.name}:{line}" if line else ref.name, _shown(problem.field)
            if line:
                message = message.removeprefix(_position(message))
            return ": ".join(part for part in (place, problem.severity, field, message) if part)
        found = self._found(ref)
        if found is None:
            return ": ".join(part for part in (str(ref), problem.severity, problem.field, message) if part)
        place, exact = _place_of(found, problem)
        if exact:
            message = message.removeprefix(_position(message))
        return ": ".join(part for part in (place, problem.severity, str(ref), problem.field, message) if part)

    def written(self) -> Mapping[ObjectRef, Any]:
        """Give the objects of the manifests as they are written; one without a namespace is in none."""
        return {ref: found.obj for ref, found in _objects(self._manifests()).items()}

    def _line_in_file(self, path: str, field: str, message: str, files: Files) -> int | None:
        content = files.get(path)
        if content is None:
            content = self._manifests().get(path)
        if not isinstance(content, Present):
            return None
        parts = split_path(field)
        document = 0
        if parts and isinstance(parts[0], int):  # of a manifest: the index of the document comes first
            document, parts = parts[0], parts[1:]
        fault = None if parts else _fault_line(parsed_file(path, content.data), message)
        return fault or locate(content.data, document, field_path(parts))

    def _found(self, ref: ObjectRef) -> _Found | None:
        contents = self._manifests()
        if self._objects is None:
            self._objects = _objects(contents)
        # Without its kind one cannot say whether an object without a namespace is cluster-wide or in ``default``.
        bare = ObjectRef(ref.kind, ref.name) if ref.namespace == "default" else ref
        return self._objects.get(ref) or self._objects.get(bare)

    def _manifests(self) -> Files:
        now = time.monotonic()
        if self._path is not None and now > self._read_at + _FRESH:
            self._read_at, self._contents, self._objects = now, load_manifests(self._path), None
        return self._contents


def _objects(contents: Files) -> Mapping[ObjectRef, _Found]:
    """Give where each object stands; of several the first by path, which is the one that counts."""
    found: dict[ObjectRef, _Found] = {}
    for path in sorted(contents):
        content = contents[path]
        if isinstance(content, Present):
            for place, obj in objects_in(parsed_file(path, content.data)):
                ref = raw_ref(obj, None)
                if ref is not None:
                    found.setdefault(ref, _Found(path, content.data, place, obj))
    return found


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


def _place_of(found: _Found, problem: Problem) -> tuple[str, bool]:
    """Give the place of a field of an object, and whether it is that of a line inside of a text in the object."""
    outside, inside, text = _split(found.obj, split_path(problem.field))
    line = locate(found.data, found.place.document, field_path((*found.place.parts, *outside)))
    if line is None:
        return found.path, False
    inner = None
    if text is not None:
        data = text.encode("utf-8", "surrogatepass")
        inner = locate(data, 0, field_path(inside)) if inside else _fault_line(parse(data), problem.message)
    if inner is None:
        return f"{found.path}:{line}", False
    if _BLOCK.search(found.data.split(b"\n")[line - 1]):
        return f"{found.path}:{line + inner}", True
    return f"{found.path}:{line} (line {inner} of {field_path(outside)})", True


def _fault_line(parsed: Parsed, message: str) -> int | None:
    """Give the line of a fault of a text itself, if the message tells it."""
    return next((fault.line for fault in parsed.faults if fault.message in message), None)


def _position(message: str) -> str:
    """Give the ``line 3, column 5: `` that a fault's text begins with."""
    found = re.match(r"line \d+, column \d+: ", message)
    return found[0] if found else ""
