"""ManifestSource: a folder or file of manifests, or a lab's folder of objects, as a source of Kubernetes objects.

Here: which files are read, what stays when one goes bad, the snapshot that follows. Not here: parsing (objects.py),
which file wins (claims.py), following files (following.py).
Invariant: a file that cannot be read or parsed keeps the objects that it gave last, to this process or to the one
before it (earlier.py), and has a Problem; a file that is gone gives none. A kind without any object is Listed and
empty.

A folder is read with the folders in it: ``.yaml``, ``.yml``, ``.json``, ``.jsonl``; hidden names are left out. A folder
with the marker ``.podgate-lab`` is a lab's: its files are only ever renamed into place, so nothing waits, and
``NAME.status.json`` holds the status of the object in ``NAME.json``.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from podgate.model.documents import parse_json
from podgate.model.fieldpath import field_path
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot, Watch
from podgate.sources.claims import Claims, conflict_problem
from podgate.sources.earlier import EarlierTexts
from podgate.sources.following import Root, followed, load
from podgate.sources.objects import FileObjects, Place, Wanted, objects_in, parsed_file, raw_ref, read_objects
from podgate.sources.settling import AT_ONCE, Settling

SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl")
MARKER: Final = ".podgate-lab"
MAX_BYTES: Final = 256 << 20
"""A larger file is Unreadable: 30,000 objects in one List stay well below."""

_STATUS: Final = ".status.json"


class ManifestSource:
    """The objects below a path that some watches ask for.

    Args:
        path: a folder or a file.
        watches: kinds, namespaces and selectors; raises ValueError for a selector that an API server would refuse.
        state_dir: where copies of what files said last are, for the next process; empty: none.
    """

    def __init__(self, path: str, watches: tuple[Watch, ...], state_dir: str = "") -> None:
        self._path = path
        self.reader = SnapshotReader(path, watches, EarlierTexts(state_dir))

    async def values(self) -> AsyncIterator[Snapshot]:
        """Give the objects now, and again whenever one, or a complaint about one, differs.

        Raises:
            SourceError: the kernel refuses to watch.
        """
        given: Snapshot | None = None
        async for contents in followed(_roots(self._path)):
            snapshot = self.reader.snapshot(contents)
            if snapshot != given:
                given = snapshot
                yield snapshot


def load_manifests(path: str) -> Mapping[str, FileContent]:
    """Give the files of a folder of manifests, or the one file, by path."""
    return load(_roots(path))


def written_objects(path: str, contents: Mapping[str, FileContent]) -> Iterator[Any]:
    """Give the objects in the files of a source as they are written, those of a lab with their status."""
    for file, (content, status) in _with_status(contents, lab=is_lab(path)):
        if isinstance(content, Present):
            stands = _status_in(status)
            for _, obj in objects_in(parsed_file(file, content.data)):
                yield {**obj, "status": stands} if isinstance(stands, dict) and isinstance(obj, dict) else obj


def _with_status(
    contents: Mapping[str, FileContent], *, lab: bool
) -> Iterator[tuple[str, tuple[FileContent, FileContent | None]]]:
    """Give each file with that of its object's status, which only a lab has."""
    for path, content in contents.items():
        if isinstance(content, Directory) or (lab and path.endswith(_STATUS)):
            continue
        beside = path.removesuffix(".json") + _STATUS
        yield path, (content, contents.get(beside) if lab and path.endswith(".json") else None)


def _roots(path: str) -> tuple[Root, ...]:
    settling = AT_ONCE if is_lab(path) else Settling()
    return (Root(path=path, wanted=_is_manifest, recursive=True, limit=MAX_BYTES, settling=settling),)


def is_lab(path: str) -> bool:
    """Say whether this is a lab's folder of objects."""
    return os.path.exists(os.path.join(path, MARKER))


def _is_manifest(name: str, is_directory: bool) -> bool:
    return not name.startswith(".") and (is_directory or name.endswith(SUFFIXES))


class SnapshotReader:
    """From the contents of the files, again and again, to the snapshot: only files that differ are parsed again.

    What was read last stays, so that it can be told where an object stands. ``earlier`` is what a process before read.
    """

    def __init__(self, path: str, watches: tuple[Watch, ...], earlier: EarlierTexts | None = None) -> None:
        self._path = path
        # A lab's files are checked before they are written.
        self._earlier = EarlierTexts("") if earlier is None or is_lab(path) else earlier
        self._wanted = Wanted(watches)
        self._claims = Claims(self._wanted.kinds)
        self._contents: Mapping[str, tuple[FileContent, FileContent | None]] = {}
        self._files: dict[str, FileObjects] = {}
        self._lab = is_lab(path)

    def snapshot(self, contents: Mapping[str, FileContent]) -> Snapshot:
        """Give the snapshot for these contents; what cannot be read or parsed gives what it gave before."""
        root = contents[self._path]
        if isinstance(root, Missing | Unreadable):
            return self._without_root(root)
        fresh = dict(_with_status(contents, lab=self._lab))
        changed = {path: pair for path, pair in fresh.items() if self._contents.get(path) != pair}
        gone = self._contents.keys() - fresh.keys()
        is_first, self._contents = not self._contents, fresh
        for path, (content, status) in changed.items():
            self._files[path] = self._file(path, content, status)
        for path in gone:
            del self._files[path]
        if is_first or gone:
            self._earlier.only(fresh.keys())
        self._claims.update({path: self._files[path].objects for path in changed} | {path: {} for path in gone})
        return self._made(tuple(self._problems()))

    def load(self) -> Snapshot:
        """Read the files now, and give their snapshot."""
        return self.snapshot(load_manifests(self._path))

    def content(self, path: str) -> FileContent | None:
        """Give what a file held when it was read last; None for a file that is not among them."""
        return self._contents[path][0] if path in self._contents else None

    def stands(self, ref: ObjectRef) -> tuple[str, bytes, Place] | None:
        """Give where an object stands: the file, its text, the place in it.

        None where no file has the object, or that text has an error that hides its places.
        """
        path = self._claims.winner(ref)
        if path is None:
            path = min((path for path, file in self._files.items() if ref in file.broken), default=None)
        content = None if path is None else self.content(path)
        if path is None or not isinstance(content, Present) or not self._files[path].parsed:
            return None
        return path, content.data, self._files[path].places[ref]

    def written(self) -> Mapping[ObjectRef, Any]:
        """Give all objects as they are written, also of kinds that nobody watches; without a namespace is in none."""
        found: dict[ObjectRef, Any] = {}
        for path in sorted(self._contents):
            if isinstance(content := self.content(path), Present):
                for _, obj in objects_in(parsed_file(path, content.data)):
                    if (ref := raw_ref(obj, None)) is not None:
                        found.setdefault(ref, obj)
        return found

    @property
    def others(self) -> int:
        """How many objects the files have that no watch asks for."""
        return sum(file.others for file in self._files.values())

    def _file(self, path: str, content: FileContent, status: FileContent | None) -> FileObjects:
        if not isinstance(content, Present):
            why = content.why if isinstance(content, Unreadable) else "the link leads nowhere"
            problem = Problem(file_ref(path), "error", "Unreadable", "", f"cannot be read: {why}")
            return self._as_before(path, (problem,))
        now = read_objects(path, content.data, self._wanted, _status_in(status))
        if not now.parsed:
            return self._as_before(path, now.problems)
        if now.objects and not now.broken:
            self._earlier.keep(path, content.data)
        # An equal object stays the value that it was: whoever compares by identity sees no change.
        before = self._before(path) if path in self._files or now.broken else FileObjects()
        known, objects = before.objects, now.objects
        if known:
            objects = {ref: known[ref] if known.get(ref) == obj else obj for ref, obj in objects.items()}
        kept = {ref: known[ref] for ref in now.broken if ref in known and ref not in objects}
        places = {**{ref: before.places[ref] for ref in kept}, **now.places}
        return FileObjects({**objects, **kept}, places, now.problems, now.broken, now.others)

    def _as_before(self, path: str, problems: tuple[Problem, ...]) -> FileObjects:
        before = self._before(path)
        return FileObjects(before.objects, before.places, problems, others=before.others, parsed=False)

    def _before(self, path: str) -> FileObjects:
        """Give what a file gave last, to this process or to one before it."""
        if path in self._files:
            return self._files[path]
        text = self._earlier.of(path)
        return FileObjects() if text is None else read_objects(path, text, self._wanted)

    def _problems(self) -> Iterator[Problem]:
        for path in sorted(self._files):
            yield from self._files[path].problems
        if self._earlier.trouble:
            message = f"what files say cannot be kept for the next start: {self._earlier.trouble}: correct --state-dir"
            yield Problem(file_ref(self._path), "warning", "NotKept", "", message)
        for path, ref, winner in self._claims.conflicts():
            place = self._files[path].places[ref]
            field = field_path((place.document, *place.parts, "metadata", "name"))
            yield conflict_problem(path, ref, winner, field)

    def _without_root(self, root: Missing | Unreadable) -> Snapshot:
        """Keep what was there: a source that vanishes as a whole is a fault, not a wish."""
        why = root.why if isinstance(root, Unreadable) else "there is no such file or folder"
        message = f"no objects can be read here: {why}; correct --source, or put the files there"
        fault = Problem(file_ref(self._path), "error", "Unreadable", "", message)
        if not self._contents:
            return Snapshot(dict.fromkeys(self._wanted.kinds, Absent("no source")), (fault,))
        return self._made((fault,))

    def _made(self, faults: tuple[Problem, ...]) -> Snapshot:
        kinds = {kind: Listed(table) for kind, table in self._claims.tables.items()}
        return Snapshot(kinds, faults)


def _status_in(content: FileContent | None) -> Any:
    """Read a lab's status file; None if there is none, or it is no map, which only a foreign hand can have written."""
    if not isinstance(content, Present):
        return None
    documents = parse_json(content.data).documents
    return documents[0] if documents else None
