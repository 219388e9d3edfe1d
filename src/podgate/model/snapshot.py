"""Snapshot: every Kubernetes object that a feature watches, by kind, at one moment.

Here: kinds as values, Listed and Absent, the snapshot, what to watch. Not here: where objects come from (sources/).
Invariant: a snapshot holds each watched kind exactly once, as Listed or as Absent: never neither.
"""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.problems import Problem
from podgate.model.table import Table

T = TypeVar("T")


class Kind(Frozen, Generic[T], frozen=True):
    """A kind of object: its API names, and the struct that its JSON decodes to.

    The struct holds only the fields that podgate reads, each with the API's default, and has a ``ref``-giving
    ``metadata``. msgspec ignores other fields.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    decodes_to: type[T]

    @property
    def api_version(self) -> str:
        """``v1`` for the core group, else ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Watch(Frozen, frozen=True):
    """What a feature needs of one kind. Selectors use the API's syntax; empty selects all.

    Attributes:
        by_name: only single objects are needed, those that a compile names (``Compiled.wanted``), so that nobody needs
            the right to list all Secrets. A source that has everything at hand may give more.
        by_leader: only the one of many processes needs it that leads; for the others it is absent.
        dated: whoever reads it needs to know when it grows old (``Snapshot.unheard``).
    """

    kind: Kind[Any]
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    by_name: bool = False
    by_leader: bool = False
    dated: bool = False


class Listed(Frozen, Generic[T], frozen=True):
    """The objects of one kind, by reference."""

    objects: Table[ObjectRef, T]


class Absent(Frozen, frozen=True):
    """Why a kind cannot be listed; it is retried."""

    why: Literal["not installed", "forbidden", "no source", "not leading"]


class Snapshot(Frozen, frozen=True):
    """One entry per watched kind, keyed by the kind's name (as ``Pod``).

    Attributes:
        kinds: what there is of each kind, or why it cannot be listed.
        faults: complaints about what the source read: a file that does not parse, an object that does not decode.
        pending: objects wanted by name that the source has not heard about yet: whether they exist is unknown.
        unheard: the kinds that cannot be followed now, of those whose watch is ``dated``; for how many seconds by now.
    """

    kinds: Mapping[str, Listed[Any] | Absent] = {}
    faults: tuple[Problem, ...] = ()
    pending: frozenset[ObjectRef] = frozenset()
    unheard: Mapping[str, float] = {}

    @property
    def unread(self) -> tuple[Problem, ...]:
        """What is wrong with files of the source, so that what they say is not known."""
        return tuple(fault for fault in self.faults if fault.ref.kind == "File" and fault.severity == "error")

    def objects(self, kind: Kind[T]) -> Table[ObjectRef, T]:
        """Give the objects of a kind; an absent kind has none. Ask ``kinds`` where the difference matters."""
        found = self.kinds.get(kind.kind)
        return found.objects if isinstance(found, Listed) else Table()
