"""Watch frames: the bytes of a watch, cut anywhere, become events of one kind. Pure.

Here: lines out of chunks, and frames out of lines. Not here: what an event changes (sources/kube/watching.py), I/O.
Invariant: the events do not depend on where the bytes were cut; a line that is no frame raises NotAFrame, since what
follows it cannot be trusted.

A watch answers one JSON object per line, ``{"type": "ADDED", "object": {…}}``: kubernetes.io, "API Concepts".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from podgate.kubeapi.answers import Refusal, refusal
from podgate.model.converting import invalid, without_nulls
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ApiObject, ApiStruct, ref_of
from podgate.model.problems import Problem
from podgate.model.snapshot import Kind

T = TypeVar("T")

INITIAL_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the last initial event (KEP-3157)."""

LONGEST: Final = 64 << 20
"""Bytes of one line. etcd takes 1.5 MB per request by default; an endless line must not fill the memory."""


class NotAFrame(Exception):  # noqa: N818 - says what it is
    """What came over a watch is no frame; the message shows how it began."""


class LineSplitter:
    """Cuts a stream of chunks into lines without their ends."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """Give the lines that this chunk completes; raises NotAFrame when a line is too long."""
        if b"\n" not in chunk:
            self._hold(chunk)
            return []
        lines = chunk.split(b"\n")
        self._hold(lines[0])
        lines[0] = b"".join(self._parts)
        self._parts, self._held = [], 0
        self._hold(lines.pop())
        return [line for line in lines if line]

    def _hold(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._held += len(part)
        if self._held > self._longest:
            raise NotAFrame(f"a line of a watch is longer than {self._longest} bytes")


class Put(Frozen, Generic[T], frozen=True):
    """An object is there, or changed."""

    ref: ObjectRef
    obj: T


class Gone(Frozen, frozen=True):
    """An object is gone, or no longer selected."""

    ref: ObjectRef


class Broken(Frozen, frozen=True):
    """An object does not fit its kind: what it was before still counts."""

    problem: Problem


class Bookmark(Frozen, frozen=True):
    """The server has told everything up to a resource version; ``initial_end``: all initial events too."""

    initial_end: bool = False


class Batch(Frozen, frozen=True):
    """The events of some lines, in order.

    Attributes:
        events: the events.
        resource_version: the newest among them; empty for none.
        object_version: that of the last one which is about an object; empty for none.
    """

    events: "tuple[Event, ...]"
    resource_version: str = ""
    object_version: str = ""


class ListPage(Frozen, frozen=True):
    """One page of a list: ``token`` leads to the next one, empty on the last."""

    events: "tuple[Put[Any] | Broken, ...]"
    resource_version: str
    token: str = ""


Event = Put[Any] | Gone | Broken | Bookmark | Refusal


class _Version(ApiStruct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(ApiStruct, frozen=True, rename="camel"):
    metadata: _Version = _Version()


class _VersionedFrame(ApiStruct, frozen=True, rename="camel"):
    object: _Versioned = _Versioned()


class _Marks(ApiStruct, frozen=True, rename="camel"):
    annotations: Mapping[str, str] = {}


class _Marked(ApiStruct, frozen=True, rename="camel"):
    metadata: _Marks = _Marks()


class _MarkedFrame(ApiStruct, frozen=True, rename="camel"):
    object: _Marked = _Marked()


class _Unread(ApiStruct, frozen=True, rename="camel"):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _ListMarks(ApiStruct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _UnreadList(ApiStruct, frozen=True, rename="camel"):
    metadata: _ListMarks = _ListMarks()
    items: tuple[msgspec.Raw, ...] | None = ()


_version: Final = msgspec.json.Decoder(_VersionedFrame)
_marked: Final = msgspec.json.Decoder(_MarkedFrame)
_unread: Final = msgspec.json.Decoder(_Unread)
_unread_list: Final = msgspec.json.Decoder(_UnreadList)


class Decoding(Protocol):
    """Reads what the API answers about one kind."""

    def batch(self, lines: Iterable[bytes]) -> Batch:
        """Read some lines of a watch; raises NotAFrame."""
        ...

    def page(self, body: bytes) -> ListPage:
        """Read one page of a list; raises NotAFrame."""
        ...


class Decoder:
    """Decodes the frames and pages of one kind, straight from bytes to the kind's struct.

    An object of which its struct's ``misfit`` says something does not fit the kind.
    """

    def __init__(self, kind: Kind[Any]) -> None:
        self._kind = kind
        self._misfit: Callable[[Any], str] = getattr(kind.decodes_to, "misfit", _fits)
        fields: list[Any] = [("type", str), ("object", kind.decodes_to)]
        frame = msgspec.defstruct("Frame", fields, gc=False)
        self._frame: msgspec.json.Decoder[Any] = msgspec.json.Decoder(frame)
        self._object: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind.decodes_to)
        self._items: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct(
                "ListPage",
                [("metadata", _ListMarks, _ListMarks()), ("items", tuple[kind.decodes_to, ...], ())],  # type: ignore[name-defined]
                gc=False,
            )
        )

    def batch(self, lines: Iterable[bytes]) -> Batch:
        """Decode some lines; raises NotAFrame. Only the last resource version is read: it is the newest."""
        events: list[Event] = []
        last, of_object, line = b"", b"", b""
        try:
            for line in lines:
                event = self._event(line)
                events.append(event)
                if not isinstance(event, Refusal):
                    last = line
                    if not isinstance(event, Bookmark):
                        of_object = line
            version = _version_in(last)
            object_version = version if of_object is last else _version_in(of_object)
        except msgspec.DecodeError as error:
            raise NotAFrame(f"no frame in a watch of {self._kind.kind}: {_start(line)}") from error
        return Batch(tuple(events), version, object_version)

    def _event(self, line: bytes) -> Event:
        try:
            frame = self._frame.decode(line)
        except msgspec.ValidationError as error:
            return self._odd(line, str(error))
        word = frame.type
        if word in {"ADDED", "MODIFIED"}:
            return self._put(frame.object)
        return self._rare(word, line)

    def _put(self, obj: ApiObject) -> Put[Any] | Broken:
        if not obj.metadata.name:
            raise NotAFrame(f"an object of {self._kind.kind} without a name")
        ref = ref_of(self._kind, obj.metadata)
        if why := self._misfit(obj):
            return Broken(Problem(ref, "warning", "Invalid", "metadata.name", why))
        return Put(ref, obj)

    def _rare(self, word: str, line: bytes) -> Event:
        if word == "DELETED":
            return Gone(self._ref(line))
        if word == "BOOKMARK":
            return Bookmark(_marked.decode(line).object.metadata.annotations.get(INITIAL_END) == "true")
        if word == "ERROR":
            return refusal(500, bytes(_unread.decode(line).object))
        raise NotAFrame(f"a watch of {self._kind.kind} sent the type {word!r}: {_start(line)}")

    def _odd(self, line: bytes, complaint: str) -> Event:
        """Read a frame whose object does not fit: a Status, an object with nulls, or a bad object."""
        frame = _unread.decode(line)
        if frame.type not in {"ADDED", "MODIFIED"}:
            return self._rare(frame.type, line)
        return self._mended(bytes(frame.object), complaint.replace("$.object", "$"))

    def _mended(self, data: bytes, complaint: str) -> Put[Any] | Broken:
        plain = msgspec.json.decode(data)
        metadata = plain.get("metadata") if isinstance(plain, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise NotAFrame(f"an object of {self._kind.kind} without a name: {_start(data)}")
        namespace = metadata.get("namespace") or ""
        ref = ObjectRef(self._kind.kind, metadata["name"], namespace if self._kind.namespaced else "")
        try:
            obj = msgspec.convert(without_nulls(plain), self._kind.decodes_to)
        except msgspec.ValidationError as error:
            return Broken(invalid(ref, str(error) or complaint))
        return self._put(obj)

    def _ref(self, line: bytes) -> ObjectRef:
        metadata = _named.decode(line).object.metadata
        return ObjectRef(self._kind.kind, metadata.name, metadata.namespace if self._kind.namespaced else "")

    def page(self, body: bytes) -> ListPage:
        """Decode one page of a list; raises NotAFrame when the body is no list."""
        try:
            page = self._items.decode(body)
        except msgspec.ValidationError:
            return self._odd_page(body)
        except msgspec.DecodeError as error:
            raise NotAFrame(f"no JSON in a list of {self._kind.kind}: {_start(body)}") from error
        puts = tuple(map(self._put, page.items))
        return ListPage(puts, page.metadata.resource_version, page.metadata.continue_)

    def _odd_page(self, body: bytes) -> ListPage:
        try:
            page = _unread_list.decode(body)
        except msgspec.ValidationError as error:
            raise NotAFrame(f"no list of {self._kind.kind}: {_start(body)}") from error
        return ListPage(
            tuple(self._one(bytes(item)) for item in page.items or ()),
            page.metadata.resource_version,
            page.metadata.continue_,
        )

    def _one(self, data: bytes) -> Put[Any] | Broken:
        try:
            obj: ApiObject = self._object.decode(data)
        except msgspec.ValidationError as error:
            return self._mended(data, str(error))
        return self._put(obj)


class _Name(ApiStruct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""


class _Named(ApiStruct, frozen=True, rename="camel"):
    metadata: _Name = _Name()


class _NamedFrame(ApiStruct, frozen=True, rename="camel"):
    object: _Named


_named: Final = msgspec.json.Decoder(_NamedFrame)


def _version_in(line: bytes) -> str:
    return _version.decode(line).object.metadata.resource_version if line else ""


def _fits(_obj: object) -> str:
    """Find nothing wrong."""
    return ""


def _start(data: bytes) -> str:
    return repr(data[:80].decode("utf-8", "replace"))
