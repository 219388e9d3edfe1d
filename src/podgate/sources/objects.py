"""Objects in a manifest file: the text of one file becomes the objects that some watches ask for. Pure.

Here: documents, Lists, kinds, namespaces, selectors, decoding; and where an object stands. Not here: several files
(claims.py), and following them (manifests.py).
Invariant: nothing raises on any text; what cannot be used is a Problem, on the object where it has a name, else on the
file, with the document's index in front of the field: ``[2].spec.podCIDR``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from podgate.model.converting import invalid, without_nulls
from podgate.model.documents import Fault, Parsed, each_json_line, json_line, parse, parse_json, parse_json_lines
from podgate.model.fieldpath import Part, field_path
from podgate.model.frozen import Frozen, ObjectRef, file_ref
from podgate.model.kinds.meta import ApiObject
from podgate.model.problems import Problem
from podgate.model.selectors import Selector, field_selector, label_selector, matches_fields, matches_labels
from podgate.model.snapshot import Kind, Watch
from podgate.sources.meant import Meant, meant

_READERS: Final = {".json": parse_json, ".jsonl": parse_json_lines}


class Place(Frozen, frozen=True):
    """Where in a file an object stands: the document's index, and the parts that lead to it inside (of a List)."""

    document: int
    parts: tuple[Part, ...] = ()


class FileObjects(Frozen, frozen=True):
    """What a file gives.

    Attributes:
        objects: the watched objects; of two with one reference the first.
        places: where each of them stands, and each that is broken.
        problems: what is wrong with the file, or with objects in it.
        broken: objects that are there and cannot be decoded: what they were before still counts.
        others: how many objects nobody asks for.
        parsed: False when the text is not YAML or JSON to its end, so that what it gave before still counts.
    """

    objects: Mapping[ObjectRef, ApiObject] = {}
    places: Mapping[ObjectRef, Place] = {}
    problems: tuple[Problem, ...] = ()
    broken: frozenset[ObjectRef] = frozenset()
    others: int = 0
    parsed: bool = True


Asked = tuple[Watch, Selector, Selector]
"""A watch, and its selectors of labels and fields."""


class Wanted:
    """Which objects some watches ask for."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        self._by_type: dict[tuple[str, str], list[Asked]] = {}
        self.kinds: dict[str, Kind[Any]] = {}
        for watch in watches:
            selectors = (label_selector(watch.label_selector), field_selector(watch.field_selector))
            self._by_type.setdefault((watch.kind.api_version, watch.kind.kind), []).append((watch, *selectors))
            self.kinds[watch.kind.kind] = watch.kind
        self._meant: dict[tuple[str, str], Meant | None] = {}

    def asked_for(self, api_version: str, kind: str) -> Sequence[Asked]:
        """Give the watches of a kind, with what they select by."""
        return self._by_type.get((api_version, kind), ())

    def meant(self, api_version: str, kind: str) -> Meant | None:
        """Give what an object of a kind that nobody watches was probably meant to be; None for something else."""
        written = (api_version, kind)
        if written not in self._meant:
            self._meant[written] = meant(api_version, kind, self.kinds.values())
        return self._meant[written]


def _is_selected(asked: Sequence[Asked], obj: Mapping[str, Any], ref: ObjectRef) -> bool:
    """Say whether a watch selects an object, from its JSON, before it is decoded."""
    labels = obj["metadata"].get("labels")
    labels = labels if isinstance(labels, dict) else {}
    for watch, wanted, fields in asked:
        if (
            (not watch.namespace or watch.namespace == ref.namespace)
            and matches_labels(wanted, labels)
            and (not fields or matches_fields(fields, _completed(obj, ref)))
        ):
            return True
    return False


def read_objects(path: str, data: bytes, wanted: Wanted, status: Any = None) -> FileObjects:
    """Read a manifest file.

    Args:
        path: its name says the format: ``.json`` and ``.jsonl`` are strict, anything else is YAML.
        data: its content.
        wanted: which objects are asked for.
        status: what to put under ``status`` of the object (a lab keeps it in a file of its own).
    """
    # Most of what a large file costs is to look for null everywhere; JSON has one word for it.
    clean = without_nulls if b"null" in data or _suffix(path) not in _READERS else _as_it_is
    faults: list[Fault] = []
    problems: list[Problem] = []
    objects: dict[ObjectRef, ApiObject] = {}
    places: dict[ObjectRef, Place] = {}
    broken: set[ObjectRef] = set()
    slips: dict[Meant, list[tuple[Place, ObjectRef | None]]] = {}
    others = 0
    for place, obj in _objects_of(_parts(path, data), faults):
        if isinstance(status, dict) and isinstance(obj, dict):
            obj = {**obj, "status": status}  # noqa: PLW2901 - the object, completed
        read = _read(path, place, obj, wanted, clean)
        if isinstance(read, Problem):
            problems.append(read)
            if read.ref.kind != "File":
                broken.add(read.ref)
                places.setdefault(read.ref, place)
        elif read is None:
            others += 1
        elif isinstance(read, Meant):
            others += 1
            slips.setdefault(read, []).append((place, raw_ref({**obj, "kind": read.kind.kind}, read.kind)))
        else:
            ref, decoded = read
            if ref in objects:
                problems.append(_twice(path, place, ref))
            else:
                objects[ref], places[ref] = decoded, place
    for slip, placed in slips.items():
        problems.append(_slipped(path, slip, placed))
        there = {ref: place for place, ref in placed if ref is not None and ref not in objects}
        broken.update(there)
        places = {**there, **places}
    found = (*(_syntax(path, fault) for fault in faults), *problems)
    parsed = not any(fault.fatal for fault in faults)
    return FileObjects(objects, places, found, frozenset(broken), others, parsed)


def parsed_file(path: str, data: bytes) -> Parsed:
    """Parse by the file's name."""
    return _READERS.get(_suffix(path), parse)(data)


def objects_in(parsed: Parsed) -> Iterator[tuple[Place, Any]]:
    """Give each object with its place; the items of a ``List`` one by one. Empty documents are skipped."""
    return _objects_of((parsed,), [])


def object_at(path: str, data: bytes, place: Place, parsed: Callable[[str, bytes], Parsed] = parsed_file) -> Any:
    """Give the object that stands at a place; None where the text has none there.

    Whoever asks for many of one file gives a ``parsed`` that remembers.
    """
    line = json_line(data, place.document) if _suffix(path) == ".jsonl" else None
    text, index = (line[1], 0) if line else (data, place.document)
    documents = parsed(path, text).documents
    found: Any = documents[index] if index < len(documents) else None
    for part in place.parts:
        found = found[part]
    return found


def _objects_of(parts: Iterable[Parsed], faults: list[Fault]) -> Iterator[tuple[Place, Any]]:
    """Give the objects of a file that comes in parts, and add the faults of each part that is through."""
    index = 0
    for part in parts:
        for document in part.documents:
            if isinstance(document, dict) and "items" not in document:
                yield Place(index), document
            elif document is not None:
                yield from _flat(Place(index), document)
            index += 1
        faults += part.faults


def _parts(path: str, data: bytes) -> Iterable[Parsed]:
    return each_json_line(data) if _suffix(path) == ".jsonl" else (parsed_file(path, data),)


def _suffix(path: str) -> str:
    return path[path.rfind(".") :] if "." in path else ""


def _syntax(path: str, fault: Fault) -> Problem:
    if fault.fatal:
        return Problem(file_ref(path), "error", "Syntax", "", str(fault))
    return Problem(file_ref(path), "warning", "Suspicious", "", str(fault))


def _flat(place: Place, obj: Any) -> Iterator[tuple[Place, Any]]:
    kind = _text(obj, "kind")
    items = obj.get("items") if isinstance(obj, dict) else None
    if not kind.endswith("List") or not isinstance(items, list):
        yield place, obj
        return
    # The API's own lists (PodList) leave type and version out of their items.
    implied = {"apiVersion": _text(obj, "apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    for index, item in enumerate(items):
        whole = {**implied, **item} if isinstance(item, dict) else item
        yield from _flat(Place(place.document, (*place.parts, "items", index)), whole)


def raw_ref(obj: Any, kind: Kind[Any] | None) -> ObjectRef | None:
    """Give the reference to an object that has not been decoded; None if it does not say enough."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    name, kind_name = _text(metadata, "name"), _text(obj, "kind")
    if not name or not kind_name:
        return None
    namespace = _text(metadata, "namespace")
    if kind is not None:
        namespace = (namespace or "default") if kind.namespaced else ""
    return ObjectRef(kind_name, name, namespace)


def _as_it_is(value: Any) -> Any:
    return value


def _read(
    path: str, place: Place, obj: Any, wanted: Wanted, clean: Callable[[Any], Any]
) -> tuple[ObjectRef, ApiObject] | Problem | Meant | None:
    """Decode one object: None if nobody asks for it; what it was meant to be if that is why."""
    if not isinstance(obj, dict):
        return _misplaced(path, place, (), "this is not a Kubernetes object: write apiVersion, kind and metadata")
    api_version, kind_name = _text(obj, "apiVersion"), _text(obj, "kind")
    if not api_version or not kind_name:
        key, example = ("kind", "Service") if api_version else ("apiVersion", "v1")
        return _misplaced(path, place, (key,), f"{key} is missing: write the object's own, as {key}: {example}")
    asked = wanted.asked_for(api_version, kind_name)
    if not asked:
        return wanted.meant(api_version, kind_name)
    kind = asked[0][0].kind
    ref = raw_ref(obj, kind)
    if ref is None:
        return _misplaced(path, place, ("metadata", "name"), "the object has no name: give it one")
    if not _is_selected(asked, obj, ref):
        return None
    try:
        return ref, msgspec.convert(_completed(clean(obj), ref), kind.decodes_to)
    except msgspec.ValidationError as error:
        return invalid(ref, str(error))


def _completed(plain: Mapping[str, Any], ref: ObjectRef) -> Any:
    """Do as an API server does: a namespaced object is in some namespace."""
    if plain["metadata"].get("namespace") == ref.namespace:
        return plain
    return {**plain, "metadata": {**plain["metadata"], "namespace": ref.namespace}}


def _misplaced(path: str, place: Place, parts: tuple[Part, ...], message: str) -> Problem:
    field = field_path((place.document, *place.parts, *parts))
    return Problem(file_ref(path), "error", "NotAnObject", field, message)


def _slipped(path: str, slip: Meant, placed: Sequence[tuple[Place, ObjectRef | None]]) -> Problem:
    """Complain once about all objects of a file with one slip: a dump of an old version may hold any number."""
    place, ref = placed[0]
    field = field_path((place.document, *place.parts, slip.key))
    message = slip.message(ref.name if ref else "", len(placed))
    return Problem(file_ref(path), "warning", slip.reason, field, message)


def _twice(path: str, place: Place, ref: ObjectRef) -> Problem:
    field = field_path((place.document, *place.parts, "metadata", "name"))
    return Problem(
        file_ref(path), "warning", "Duplicate", field, f"{ref} is in this file twice; the first one counts: remove one"
    )


def _text(obj: Any, key: str) -> str:
    value = obj.get(key) if isinstance(obj, dict) else None
    return value if isinstance(value, str) else ""
