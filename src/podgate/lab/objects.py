"""The objects of a lab as files: ``objects/<plural.group>/<namespace or _>/<name>.json``, status beside them. I/O.

Here: ``Store``: load, put, put_status, delete, remove, and waiting for changes. Not here: reading users' manifests
(manifests.py), what objects mean (controllers/), who calls whom (daemon).
Invariant: every write is a rename of a whole file, so a reader never sees half an object; each file has one writer:
objects (``NAME.json``) are written by the lab's daemon alone, and a status (``NAME.status.json``) by whoever acts on
the object: the daemon, or for custom resources an agent.

Only a directory that ``Store.create`` made carries the marker ``.podgate-lab``; agents write status files nowhere else.
"""

import contextlib
import datetime as dt
import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

import msgspec

from podgate.lab.applying import applied
from podgate.lab.controllers.writes import merged_status
from podgate.lab.kinds import Kinds, Object, Resource, defined_by, known, placed, ref_of
from podgate.lab.validity import fault_of
from podgate.linux.inotify import Directories
from podgate.model.frozen import ObjectRef

MARKER: Final = ".podgate-lab"
NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Namespaces that are there from the start, as in any cluster."""

_STATUS: Final = ".status.json"
_KEPT_METADATA: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_DEFAULT_GRACE: Final = 30
"""Seconds that a Pod has to end when its spec does not say (the API's default)."""

_Stamp = tuple[int, int, int]


class _Entry(NamedTuple):
    """An object at the last load: its file, what the two files hold, and both as one."""

    ref: ObjectRef
    obj: Object
    status: Object | None
    whole: Object


def utc_now() -> str:
    """Give the time as the API writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def random_uid() -> str:
    """Give a new UID as the API makes them."""
    return str(uuid.uuid4())


class Store:
    """The objects in ``path/objects``.

    Args:
        path: the lab's state directory, made by ``Store.create``.
        now: the clock, for creationTimestamp and deletionTimestamp.
        new_uid: randomness, for metadata.uid.
    """

    def __init__(self, path: str, now: Callable[[], str] = utc_now, new_uid: Callable[[], str] = random_uid) -> None:
        self.root = os.path.join(path, "objects")
        self.faults: tuple[str, ...] = ()
        self._incoming = os.path.join(path, "incoming")
        self._now, self._new_uid = now, new_uid
        self._numbers = itertools.count()
        self._files: dict[str, tuple[_Stamp, Object]] = {}
        self._entries: dict[str, _Entry] = {}
        self._paths: dict[ObjectRef, str] = {}
        self._kinds = Kinds()
        self._directories: Directories | None = None

    @classmethod
    def create(cls, path: str, now: Callable[[], str] = utc_now, new_uid: Callable[[], str] = random_uid) -> Self:
        """Make the directory with its marker and the namespaces of every cluster; what is there already stays."""
        store = cls(path, now, new_uid)
        for folder in (store.root, store._incoming):
            os.makedirs(folder, exist_ok=True)
        with open(os.path.join(store.root, MARKER), "a", encoding="utf-8"):
            pass
        for name in NAMESPACES:
            store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return store

    @property
    def kinds(self) -> Kinds:
        """The kinds known at the last load: built in, and defined by the objects."""
        return self._kinds

    def load(self) -> Mapping[ObjectRef, Object]:
        """Give all objects, each with its status under ``status``, ordered by file.

        Only files that changed since the last load are read; an untouched object is the same dict as before. What
        cannot be read as an object is left out, and named with file and reason in ``faults``.
        """
        faults: list[str] = []
        files = {path: self._read(path, faults) for path in self._listed()}
        self._files = {path: self._files[path] for path in files if path in self._files}
        entries: dict[str, _Entry] = {}
        for path, obj in files.items():
            if obj is not None and not path.endswith(_STATUS):
                entry = self._entry(path, obj, files.get(_status_file(path)), faults)
                if entry is not None:
                    entries[path] = entry
        self._entries = entries
        self._paths = {entry.ref: path for path, entry in entries.items()}
        self._kinds = known(entry.whole for entry in entries.values())
        self.faults = tuple(faults)
        return {entry.ref: entry.whole for entry in entries.values()}

    def seen(self, ref: ObjectRef, version: int) -> bool:  # noqa: ARG002 - a file has no version
        """Whether an object that somebody wrote is known: what is in a file is."""
        return ref in self._paths

    def confirmed(self, ref: ObjectRef) -> bool:
        """Whether a Pod may start: whatever is in a file holds."""
        return ref in self._paths

    async def changed(self) -> None:
        """Wait until a file changed since the last call. The first call starts watching and returns at once."""
        if self._directories is None:
            self._directories = Directories()
        else:
            await self._directories.events()
        # A folder that appears while the watches are set would be missed: look again until nothing new is there.
        folders: set[str] = set()
        while (found := set(self._folders())) != folders:
            folders = found
            self._directories.follow(folders)

    def put(self, obj: Object) -> None:
        """Create or replace an object without its status; ``status`` in it is ignored.

        metadata.uid and creationTimestamp stay as they are, or are set when the object is new; a deletion once begun
        stays. Nothing is written when nothing differs.

        Raises:
            KeyError: the kind is not known (see ``kinds``); callers check that first.
        """
        obj = placed(obj, self._kinds.of(obj))
        path = self._path(ref_of(obj), self._kinds.of(obj))
        before = self._current(path)
        if before is not None and fault_of(before) is not None:
            before = None  # somebody wrote nonsense: replace it as a whole
        kept = before["metadata"] if before else {"uid": self._new_uid(), "creationTimestamp": self._now()}
        metadata = {**obj["metadata"], **{key: kept[key] for key in _KEPT_METADATA if key in kept}}
        if before is None:
            _unlink(_status_file(path))  # left by a crash in the middle of a removal
        fresh = {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
        if fresh != before:
            self._write(path, fresh)
        if obj["kind"] == "CustomResourceDefinition":
            defined = defined_by(obj)
            self._kinds = self._kinds.plus(*([defined] if defined else []))

    def apply(self, obj: Object) -> None:
        """Do what a user's ``apply`` does: ``put``, and more.

        What controllers filled in stays unless the user sets it (applying.py). A namespace that is missing is made.
        ``status`` in it is merged in, for Nodes' addresses.

        Raises:
            KeyError: the kind is not known.
        """
        obj = placed(obj, self._kinds.of(obj))
        ref = ref_of(obj)
        if ref.namespace:
            namespace = ObjectRef("Namespace", ref.namespace)
            if self._current(self._path(namespace, self._kinds.of_ref(namespace))) is None:
                self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ref.namespace}})
        path = self._path(ref, self._kinds.of(obj))
        before = self._current(path)
        if before is not None and fault_of(before) is None:
            obj = applied({**before, "status": self._current(_status_file(path))}, obj)
        self.put(obj)
        if isinstance(obj.get("status"), dict):
            self.put_status(ref, obj["status"])

    def put_status(self, ref: ObjectRef, status: Mapping[str, Any]) -> None:
        """Merge top-level keys into an object's status; None removes a key; ``conditions`` merge by ``type``.

        Nothing is written when nothing differs, or when there is no such object.
        """
        path = self._find(ref)
        if path is None:
            return
        file = _status_file(path)
        before = self._current(file) or {}
        fresh = merged_status(before, status)
        if fresh != before:
            self._write(file, fresh)

    def delete(self, ref: ObjectRef) -> bool:
        """Do what a user's ``delete`` does: False if there is no such object.

        A Pod on a node gets deletionTimestamp and deletionGracePeriodSeconds; whoever runs it calls ``remove`` when
        its containers have ended. Anything else is removed at once; what it owns follows (controllers/garbage.py).
        """
        path = self._find(ref)
        obj = self._current(path) if path else None
        if path is None or obj is None:
            return False
        spec = obj.get("spec") or {}
        if ref.kind == "Pod" and spec.get("nodeName"):
            grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
            marks = {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": grace}
            if "deletionTimestamp" not in obj["metadata"]:
                self._write(path, {**obj, "metadata": {**obj["metadata"], **marks}})
        else:
            self.remove(ref)
        return True

    def remove(self, ref: ObjectRef) -> None:
        """Remove an object and its status now, if it is there."""
        path = self._find(ref)
        if path is not None:
            _unlink(path)
            _unlink(_status_file(path))

    def close(self) -> None:
        """Stop watching."""
        if self._directories is not None:
            self._directories.__exit__(None, None, None)
            self._directories = None

    def _path(self, ref: ObjectRef, resource: Resource | None) -> str:
        if resource is None:
            raise KeyError(f"the kind of {ref} is not known")
        return os.path.join(self.root, resource.folder, ref.namespace or "_", f"{ref.name}.json")

    def _find(self, ref: ObjectRef) -> str | None:
        """Give the file of an object that is there."""
        path = self._paths.get(ref)
        if path is None:
            resource = self._kinds.of_ref(ref)
            path = self._path(ref, resource) if resource else ""
        return path if path and os.path.exists(path) else None

    def _folders(self) -> Iterator[str]:
        yield self.root
        for folder in _entries(self.root):
            if folder.is_dir():
                yield folder.path
                yield from (namespace.path for namespace in _entries(folder.path) if namespace.is_dir())

    def _listed(self) -> Iterator[str]:
        for folder in self._folders():
            if folder.count("/") == self.root.count("/") + 2:
                yield from (file.path for file in _entries(folder) if file.name.endswith(".json"))

    def _read(self, path: str, faults: list[str]) -> Object | None:
        try:
            have = self._files.get(path)
            if have is None or have[0] != _stamp(os.stat(path)):
                with open(path, "rb") as file:
                    # The stamp of what is read, which may be newer than what stat saw.
                    have = (_stamp(os.fstat(file.fileno())), msgspec.json.decode(file.read(), type=dict[str, Any]))
                self._files[path] = have
            return have[1]
        except FileNotFoundError:
            self._files.pop(path, None)
        except (OSError, msgspec.DecodeError) as error:
            self._files.pop(path, None)
            faults.append(f"{path}: not an object: {error}; remove the file or apply the object again")
        return None

    def _current(self, path: str) -> Object | None:
        return self._read(path, [])

    def _entry(self, path: str, obj: Object, status: Object | None, faults: list[str]) -> _Entry | None:
        """Give an object with its status, the same dict as before where both are the same as before."""
        have = self._entries.get(path)
        if have is not None and have.obj is obj and have.status is status:
            return have
        whole = obj if status is None else {**obj, "status": status}
        fault = fault_of(whole)
        if fault is not None:
            file = _status_file(path) if fault.field.startswith("status") else path
            faults.append(f"{file}: {fault.field}: {fault.message}; remove the file or apply the object again")
            return None
        whole = placed(whole, self._kinds.of(whole))
        return _Entry(ref_of(whole), obj, status, whole)

    def _write(self, path: str, value: Object) -> None:
        fresh = os.path.join(self._incoming, f"{os.getpid()}-{next(self._numbers)}")
        try:
            with open(fresh, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(fresh, path)
        except OSError:
            _unlink(fresh)
            raise


def _status_file(path: str) -> str:
    return path.removesuffix(".json") + _STATUS


def _stamp(state: os.stat_result) -> _Stamp:
    return state.st_mtime_ns, state.st_ino, state.st_size


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
