"""The objects of a fake API server: versions, history, selection, and writes with their conflicts.

Here: what kube-apiserver and etcd do to objects, as far as podgate can see it. Not here: HTTP (fake_apiserver.py).
Invariant: each write gets the next resource version, and one that changes nothing is none.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from podgate.model.selectors import field_selector, label_selector, matches_fields, matches_labels
from tests.support.fake_fields import Fields, fields_of, fields_v1, from_fields_v1, merged, shown, value_at, without

Obj = dict[str, Any]
Name = tuple[str, str]


class ApiError(Exception):
    """An answer of 400 and above."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                       "reason": reason, "message": message, "details": details}  # fmt: skip


class Resource(NamedTuple):
    """A kind that is installed."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Selection(NamedTuple):
    """What a list or watch asks for."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def matcher(self) -> Callable[[Obj], bool]:
        labels, fields = label_selector(self.labels), field_selector(self.fields)
        return lambda obj: (
            self.namespace in ("", obj["metadata"].get("namespace", ""))
            and matches_labels(labels, obj["metadata"].get("labels", {}))
            and matches_fields(fields, obj)
        )


class Change(NamedTuple):
    """One entry of the history."""

    version: int
    old: Obj | None
    new: Obj | None

    def event(self, matches: Callable[[Obj], bool]) -> tuple[str, Obj] | None:
        """Give what a watcher with this selection hears of it."""
        was, now = (obj is not None and matches(obj) for obj in (self.old, self.new))
        if now:
            return "MODIFIED" if was else "ADDED", self.new  # type: ignore[return-value]
        if was:
            last = self.new or self.old or {}
            return "DELETED", {**last, "metadata": {**last["metadata"], "resourceVersion": str(self.version)}}
        return None


class Collection:
    """All objects of one kind."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.objects: dict[Name, Obj] = {}
        self.history: list[Change] = []
        self.installed = True

    def select(self, selection: Selection) -> Iterator[Obj]:
        matches = selection.matcher()
        return (obj for _, obj in sorted(self.objects.items()) if matches(obj))


class Kept(NamedTuple):
    """A copy of everything that was stored, by collection, and its version."""

    version: int
    objects: Mapping[tuple[str, str, str], Mapping[Name, Obj]]


class Objects:
    """Everything that is stored."""

    def __init__(self, resources: Iterator[Resource] | tuple[Resource, ...]) -> None:
        self.collections: dict[tuple[str, str, str], Collection] = {}
        self.version = 1000
        self.oldest = 1000
        self.on_change: Callable[[], None] = lambda: None
        for resource in resources:
            self.install(resource)

    def install(self, resource: Resource) -> None:
        key = (resource.group, resource.version, resource.plural)
        self.collections.setdefault(key, Collection(resource))

    def uninstall(self, plural: str) -> None:
        for key in [key for key in self.collections if key[2] == plural]:
            for name in list(self.collections[key].objects):
                self.delete(self.collections[key], name)
            # A server ends the watches of a kind that goes.
            self.collections.pop(key).installed = False
        self.on_change()

    def of(self, plural: str) -> Collection:
        return next(collection for key, collection in self.collections.items() if key[2] == plural)

    def compact(self) -> None:
        """Forget the history."""
        self.oldest = self.version
        for collection in self.collections.values():
            collection.history.clear()

    def kept(self) -> "Kept":
        """Copy all that is stored, as a snapshot of etcd does."""
        return Kept(self.version, {key: dict(collection.objects) for key, collection in self.collections.items()})

    def restore(self, kept: "Kept") -> None:
        """Have that again, its version included, without any history."""
        self.version = self.oldest = kept.version
        for key, collection in self.collections.items():
            collection.objects = dict(kept.objects[key])
            collection.history.clear()

    # Writes.

    @contextmanager
    def trial(self, collection: Collection, name: Name, *, dry: bool) -> Iterator[None]:
        """Undo what the block writes to one object, when it is a dry run."""
        old, version, events = collection.objects.get(name), self.version, len(collection.history)
        yield
        if dry:
            self.version = version
            del collection.history[events:]
            collection.objects.pop(name, None)
            if old is not None:
                collection.objects[name] = old

    def put(self, plural: str, obj: Obj) -> Obj:
        """Create or replace, as a test wants it."""
        collection = self.of(plural)
        name = _name(collection, obj)
        if name in collection.objects:
            return self.update(collection, name, obj, "test")
        return self.create(collection, obj, "test")

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        self.delete(self.of(plural), (namespace, name))

    def create(self, collection: Collection, obj: Obj, manager: str) -> Obj:
        name = _name(collection, obj)
        if name in collection.objects:
            raise ApiError(409, "AlreadyExists", f'{collection.resource.plural} "{name[1]}" already exists')
        fresh = _clean(obj)
        fresh.update(apiVersion=collection.resource.api_version, kind=collection.resource.kind)
        fresh["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z")
        return self._store(collection, name, None, fresh, {(manager, "Update", ""): fields_of(fresh)})

    def update(self, collection: Collection, name: Name, obj: Obj, manager: str, *, subresource: str = "") -> Obj:
        old = self.get(collection, name)
        wanted = obj["metadata"].get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise ApiError(
                409, "Conflict", "the object has been modified; please apply your changes to the latest version"
            )
        fresh = _clean(obj)
        kept = {"apiVersion": old["apiVersion"], "kind": old["kind"]}
        if subresource:
            new = {**_clean(old), "status": fresh.get("status", {})}
        else:
            new = {**fresh, **kept, **({"status": old["status"]} if "status" in old and "status" not in fresh else {})}
            if "status" in fresh and manager != "test":
                new["status"] = old.get("status", {})
        for key in ("uid", "creationTimestamp"):
            new["metadata"][key] = old["metadata"][key]
        owners = _owners(old)
        differing = {path for path in fields_of(new) if value_at(old, path) != value_at(new, path)}
        owners = {owner: fields & fields_of(new) - differing for owner, fields in owners.items()}
        mine = (manager, "Update", subresource)
        owners[mine] = owners.get(mine, frozenset()) | differing
        return self._store(collection, name, old, new, owners)

    def apply(
        self, collection: Collection, name: Name, body: Obj, manager: str, *, subresource: str, force: bool
    ) -> Obj:
        """Server-side apply."""
        old = collection.objects.get(name)
        if old is None and subresource:
            raise ApiError(404, "NotFound", f'{collection.resource.plural} "{name[1]}" not found')
        uid = body.get("metadata", {}).get("uid")
        if uid and uid != (old or {}).get("metadata", {}).get("uid"):
            raise ApiError(409, "Conflict", "Precondition failed: UID in precondition does not match")
        part = (
            {k: v for k, v in body.items() if k == "status"}
            if subresource
            else {k: v for k, v in body.items() if k != "status"}
        )
        if old is None:
            old = {**{k: body[k] for k in ("apiVersion", "kind")}, "metadata": {"name": name[1]}}
            if collection.resource.namespaced:
                old["metadata"]["namespace"] = name[0]
            old["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z")
        owners, mine, wanted = _owners(old), (manager, "Apply", subresource), fields_of(part)
        conflicts = []
        for owner, fields in owners.items():
            taken = {path for path in wanted & fields if value_at(old, path) != value_at(part, path)}
            if owner[0] != manager and taken and not force:
                conflicts += [(owner[0], shown(path)) for path in sorted(taken)]
            elif owner != mine:
                owners[owner] = fields - taken
        if conflicts:
            causes = [{"reason": "FieldManagerConflict", "message": f'conflict with "{who}"', "field": field}
                      for who, field in conflicts]  # fmt: skip
            message = f"Apply failed with {len(conflicts)} conflict(s): " + ", ".join(field for _, field in conflicts)
            raise ApiError(409, "Conflict", message, causes=causes)
        others: Fields = frozenset().union(*(fields for owner, fields in owners.items() if owner != mine))
        given_up = owners.get(mine, frozenset()) - wanted - others
        owners[mine] = wanted
        new = merged(without(_clean(old), given_up), _clean(part) if "metadata" in part else part)
        stored = old if name in collection.objects else None
        return self._store(collection, name, stored, new, owners)

    def delete(self, collection: Collection, name: Name, uid: str = "") -> Obj:
        old = self.get(collection, name)
        if uid and uid != old["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "the UID in the precondition does not match")
        del collection.objects[name]
        self.version += 1
        collection.history.append(Change(self.version, old, None))
        self.on_change()
        return old

    def get(self, collection: Collection, name: Name) -> Obj:
        if name not in collection.objects:
            raise ApiError(404, "NotFound", f'{collection.resource.plural} "{name[1]}" not found')
        return collection.objects[name]

    def _store(
        self,
        collection: Collection,
        name: Name,
        old: Obj | None,
        new: Obj,
        owners: Mapping[tuple[str, str, str], Fields],
    ) -> Obj:
        managed = [
            {"manager": manager, "operation": operation, "apiVersion": collection.resource.api_version,
             **({"subresource": subresource} if subresource else {}), "fieldsType": "FieldsV1",
             "fieldsV1": fields_v1(fields)}
            for (manager, operation, subresource), fields in owners.items() if fields
        ]  # fmt: skip
        new = {**new, "metadata": {**new["metadata"], "managedFields": managed}}
        if old is not None:
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            if new == old:
                return old
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        collection.objects[name] = new
        collection.history.append(Change(self.version, old, new))
        self.on_change()
        return new


def _name(collection: Collection, obj: Obj) -> Name:
    metadata = obj.setdefault("metadata", {})
    if not metadata.get("name"):
        raise ApiError(422, "Invalid", "metadata.name: Required value")
    if collection.resource.namespaced:
        return metadata.setdefault("namespace", "default"), metadata["name"]
    return "", metadata["name"]


def _clean(obj: Obj) -> Obj:
    copy: Obj = json.loads(json.dumps(obj))
    for key in ("managedFields", "resourceVersion"):
        copy["metadata"].pop(key, None)
    return copy


def _owners(obj: Obj) -> dict[tuple[str, str, str], Fields]:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): from_fields_v1(entry["fieldsV1"])
        for entry in obj["metadata"].get("managedFields", ())
    }
