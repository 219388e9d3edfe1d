"""Folder: manifests become add-ons, or complaints with file and line. Pure.

Here: which objects of a folder count, and what stays of a file that went bad. Not here: reading files, which kinds the
API has (cluster.py), what is to be done (plan.py).
Invariant: a folder with any complaint is not whole, and nothing is ever removed because of a folder that is not whole.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from podgate.model.converting import without_nulls
from podgate.model.documents import Lines
from podgate.model.fieldpath import field_path
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import Frozen
from podgate.model.spelling import did_you_mean
from podgate.sources.objects import objects_in, parsed_file

Object = dict[str, Any]
Mode = Literal["Reconcile", "EnsureExists"]

MODE_LABEL: Final = "addonmanager.kubernetes.io/mode"
_VERSION: Final = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[a-z0-9]+")
_NO_NAME: Final = re.compile(r"^\.{1,2}$|[/%]")
"""What no part of a path may be (k8s.io/apimachinery, IsValidPathSegmentName)."""

MODES: Final = ("Reconcile", "EnsureExists")
"""Kept as it is written, or made once and then its users' (kubernetes, cluster/addons/addon-manager)."""


class Addon(Frozen, frozen=True):
    """One object of the folder.

    Attributes:
        mode: what is done with it.
        body: the whole object, without nulls and without status; its label says the mode.
        place: ``FILE:LINE``.
    """

    mode: Mode
    body: Object
    place: str

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return _group(self.body)

    @property
    def kind(self) -> str:
        """The kind's name."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.body["metadata"]["name"])


class Unlabelled(Frozen, frozen=True):
    """An object of the folder that has no mode: nothing is done with it, and it has not left the folder.

    Attributes:
        group: its API group; empty for the core group.
        namespace: as it is written; empty where the manifest names none.
        place: ``FILE:LINE``.
    """

    group: str
    kind: str
    namespace: str
    name: str
    place: str

    def __str__(self) -> str:
        """Show ``FILE:LINE: KIND NAME has no label …``."""
        return f"{self.place}: {self.kind} {self.name} has no label {MODE_LABEL}"


class Folder(Frozen, frozen=True):
    """What a folder asks for.

    Attributes:
        addons: the objects, by file name and place in it; of a file that went bad, those that it gave last.
        by_file: the same by file, for the next reading.
        complaints: errors: what keeps the folder from being whole.
        unlabelled: objects without a mode, which are left alone.
    """

    addons: tuple[Addon, ...] = ()
    by_file: Mapping[str, tuple[Addon, ...]] = {}
    complaints: tuple[str, ...] = ()
    unlabelled: tuple[Unlabelled, ...] = ()


def understood(
    contents: Mapping[str, FileContent], before: Folder, mode: Mode | None = None, *, may_be_empty: bool = False
) -> Folder:
    """Read a folder.

    Args:
        contents: what is in it, by path: files and folders.
        before: the reading before, from which files that went bad keep their objects.
        mode: of objects that have no label; None: they are left alone.
        may_be_empty: a folder without any object means that nothing is wanted any more, and is no accident.
    """
    by_file: dict[str, tuple[Addon, ...]] = {}
    complaints: list[str] = []
    unlabelled: list[Unlabelled] = []
    for path, content in sorted(contents.items()):
        if isinstance(content, Directory):
            continue
        found: list[Addon] = []
        bad = list(_read(path, content, mode, found, unlabelled))
        complaints += bad
        by_file[path] = before.by_file.get(path, ()) if bad else tuple(found)
    addons = tuple(addon for found in by_file.values() for addon in found)
    complaints += _twice(addons)
    if not addons and not complaints and not may_be_empty:
        complaints.append("no add-on is in this folder: nothing is removed; --allow-empty says that this is meant")
    return Folder(addons, by_file, tuple(complaints), tuple(unlabelled))


def _read(
    path: str, content: FileContent, mode: Mode | None, found: list[Addon], unlabelled: list[Unlabelled]
) -> Iterator[str]:
    """Give the complaints about a file; what is well in it is added to ``found``, or ``unlabelled``."""
    if isinstance(content, Unreadable | Missing):
        why = content.why if isinstance(content, Unreadable) else "there is no such file or folder"
        yield f"{path}: cannot be read: {why}"
        return
    if not isinstance(content, Present):
        return
    parsed = parsed_file(path, content.data)
    for fault in parsed.faults:
        if fault.fatal:
            yield f"{path}:{fault.line}: {fault.message}"
    lines = Lines(content.data)
    for place, value in objects_in(parsed):
        field, message = _wrong(value) or _wrong_mode(value)
        line = lines.of(place.document, f"{field_path(place.parts)}.{field}".strip(".")) or 1
        if message:
            yield f"{path}:{line}: {field}{': ' if field else ''}{message}"
            continue
        labelled = _labels(value).get(MODE_LABEL) or mode
        if labelled is None:
            unlabelled.append(_unlabelled(value, f"{path}:{line}"))
        else:
            found.append(Addon(labelled, _completed(value, labelled), f"{path}:{line}"))


def _wrong(value: Any) -> tuple[str, str] | None:
    """Give field and message of what keeps a value from being an object of the API."""
    if not isinstance(value, dict):
        return "", f"an object is a map, not {type(value).__name__}: is this a manifest?"
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            return name, f"an object needs {name}, as a text"
    if not _VERSION.fullmatch(value["apiVersion"]):
        return "apiVersion", f'"{value["apiVersion"]}" is no version: write GROUP/VERSION, as apps/v1, or v1'
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return "metadata", "an object needs metadata.name, as a text"
    for key in ("name", "namespace"):
        if not isinstance(metadata.get(key) or "", str) or _NO_NAME.search(metadata.get(key) or ""):
            return f"metadata.{key}", f"{metadata[key]!r} is no name that an object can have"
    labels = metadata.get("labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(each, str) for each in labels.values()):
        return "metadata.labels", "labels are a map of texts: put quotes around true, false and numbers"
    return None


def _wrong_mode(value: Object) -> tuple[str, str]:
    mode = _labels(value).get(MODE_LABEL)
    if mode is None or mode in MODES:
        return "", ""
    return "metadata.labels", f'{MODE_LABEL}: "{mode}" is no mode: {" or ".join(MODES)}{did_you_mean(mode, MODES)}'


def _labels(value: Object) -> Mapping[str, Any]:
    return value["metadata"].get("labels") or {}


def _unlabelled(value: Object, place: str) -> Unlabelled:
    metadata = value["metadata"]
    return Unlabelled(_group(value), value["kind"], metadata.get("namespace") or "", metadata["name"], place)


def _group(value: Object) -> str:
    group, slash, _ = str(value["apiVersion"]).partition("/")
    return group if slash else ""


def _completed(value: Object, mode: str) -> Object:
    """Give an object as it is sent: with its label, and without what only the API writes."""
    plain = without_nulls({key: part for key, part in value.items() if key != "status"})
    labels = {**_labels(value), MODE_LABEL: mode}
    return {**plain, "metadata": {**plain["metadata"], "labels": labels}}


def _twice(addons: tuple[Addon, ...]) -> Iterator[str]:
    """Complain about an object that stands in two places: which one counts would be chance."""
    seen: dict[tuple[str, ...], str] = {}
    for addon in addons:
        key = (addon.group, addon.kind, str(addon.body["metadata"].get("namespace", "")), addon.name)
        if key in seen:
            yield f"{addon.place}: {addon.kind} {addon.name} stands at {seen[key]} too: take one of them out"
        seen.setdefault(key, addon.place)
