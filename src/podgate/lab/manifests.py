"""Manifests: what a user gives to ``lab up`` and ``lab apply`` becomes objects, or complaints with file and line.

Here: ``understood`` (pure), and ``read_manifests``, which reads the files for it. Not here: storing (objects.py).
Invariant: an object that comes out is valid (validity.py) and complete: it has a namespace if its kind has one, no
nulls, and its kind is known; so the store takes it. When there is an error among the complaints, apply nothing.
"""

import base64
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from podgate.lab.kinds import Kinds, Object, defined_by, ref_of
from podgate.lab.validity import fault_of
from podgate.model.converting import without_nulls
from podgate.model.documents import Lines, field_path
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.problems import Severity
from podgate.sources.manifests import SUFFIXES
from podgate.sources.objects import Place, objects_in, parsed_file

_FIRST: Final = ("Namespace", "CustomResourceDefinition")


class Complaint(Frozen, frozen=True):
    """Something wrong in a file. ``line`` 0: the file as a whole."""

    file: str
    line: int
    severity: Severity
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.severity}: {self.message}"


class Manifests(Frozen, frozen=True):
    """The objects, definitions and namespaces first, otherwise in the order in which they were read."""

    objects: tuple[Object, ...] = ()
    complaints: tuple[Complaint, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether there is an error, so that nothing shall be applied."""
        return any(complaint.severity == "error" for complaint in self.complaints)


def read_manifests(paths: Iterable[str], kinds: Kinds, *, joined: bool = False) -> Manifests:
    """Read files and folders (``.yaml``, ``.yml``, ``.json``, ``.jsonl``; several documents, ``List``).

    Args:
        paths: as the user gave them; a folder's files come by name.
        kinds: what is known already; definitions among the manifests are added.
        joined: they are for a cluster, whose controllers run every kind.
    """
    files: dict[str, bytes] = {}
    complaints: list[Complaint] = []
    for path in paths:
        try:
            for file in _files(path):
                with open(file, "rb") as opened:
                    files[file] = opened.read()
        except OSError as error:
            complaints.append(Complaint(error.filename or path, 0, "error", f"cannot be read: {error.strerror}"))
    manifests = understood(files, kinds, joined=joined)
    return Manifests(manifests.objects, (*complaints, *manifests.complaints))


def _files(path: str) -> list[str]:
    """Give a file, or those of a folder that hold manifests; not those of folders inside it, as with kubectl."""
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith(SUFFIXES) and not name.startswith("."))
    return [os.path.join(path, name) for name in names if os.path.isfile(os.path.join(path, name))]


def understood(files: Mapping[str, bytes], kinds: Kinds, *, joined: bool = False) -> Manifests:
    """Do what ``read_manifests`` does with files that were read already. Pure."""
    complaints: list[Complaint] = []
    found: list[tuple[str, Place, Any]] = []
    for file, data in files.items():
        parsed = parsed_file(file, data)
        complaints += (
            Complaint(file, fault.line, "error" if fault.fatal else "warning", fault.message) for fault in parsed.faults
        )
        found += ((file, place, value) for place, value in objects_in(parsed))
    kinds = kinds.plus(*filter(None, (defined_by(obj) for _, _, obj in found if _is_definition(obj))))
    objects: dict[ObjectRef, Object] = {}
    lines = functools.cache(lambda file: Lines(files[file]))
    for file, place, raw in found:
        field, severity, message, obj = _understood(raw, kinds, joined)
        if obj is not None and ref_of(obj) in objects:
            field, severity, message = "metadata.name", "warning", f"{ref_of(obj)} is given before: this one counts"
        if message:
            path = f"{field_path(place.parts)}.{field}".strip(".")
            line = lines(file).of(place.document, path) or 0
            about = f"{raw['kind']}: " if isinstance(raw, dict) and isinstance(raw.get("kind"), str) else ""
            complaints.append(Complaint(file, line, severity, f"{about}{field}{': ' if field else ''}{message}"))
        if obj is not None:
            objects[ref_of(obj)] = obj
    ordered = sorted(objects.values(), key=lambda obj: obj["kind"] not in _FIRST)
    return Manifests(tuple(ordered), tuple(complaints))


def _is_definition(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == "CustomResourceDefinition"


def _understood(raw: Any, kinds: Kinds, joined: bool) -> tuple[str, Severity, str, Object | None]:
    """Give field, severity and message of a complaint (empty: none), and the object unless there is an error."""
    if not isinstance(raw, dict):
        return "", "error", f"an object is a map, not {type(raw).__name__}: is this a manifest?", None
    obj = without_nulls(raw)
    if not isinstance(obj.get("metadata", {}), dict):
        return "metadata", "error", "metadata is a map", None
    obj.setdefault("metadata", {})
    fault = fault_of(obj)
    if fault is not None:
        return fault.field, "error", fault.message, None
    resource = kinds.of(obj)
    if resource is None:
        return "kind", "error", kinds.unknown(obj), None
    namespace = obj["metadata"].pop("namespace", "")
    if resource.namespaced:
        obj["metadata"]["namespace"] = namespace or "default"
    elif namespace:
        return "metadata.namespace", "warning", f"a {resource.kind} is in no namespace: ignored; remove it", obj
    if obj["kind"] == "Secret":
        obj = _secret(obj)
    if not joined and resource.stored_only and resource.group.endswith(("apps", "batch", "autoscaling")):
        return "kind", "warning", "the lab keeps it, but runs nothing for it", obj
    return "", "warning", "", obj


def _secret(obj: Object) -> Object:
    """Fold ``stringData`` into ``data``, as the API server does."""
    plain = obj.get("stringData")
    if not plain:
        return obj
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
    rest = {key: value for key, value in obj.items() if key != "stringData"}
    return {**rest, "data": {**obj.get("data", {}), **coded}}
