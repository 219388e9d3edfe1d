"""State: the fields of API objects that are ours, by object, and the Events that should have been sent.

Here: the values and how they are made. Not here: requests (render.py), differences (diff.py), I/O.
Invariant: two sets of fields are equal exactly when their canonical JSON is, so what the API returns compares with what
was wanted, byte by byte.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.table import Table

Subresource = Literal["", "status"]

OWN_LABEL: Final = "app.kubernetes.io/managed-by"
"""On objects that are ours as a whole; its value is our field manager."""


class Part(Frozen, frozen=True, order=True):
    """Names what is written: an object, or its status."""

    ref: ObjectRef
    subresource: Subresource = ""

    def __str__(self) -> str:
        """Show ``Kind/namespace/name``, or ``status of …``."""
        return f"status of {self.ref}" if self.subresource else str(self.ref)


class Fields(Frozen, frozen=True):
    """The fields of one part that are ours.

    Attributes:
        body: canonical JSON, without type and name. Make it with ``canonical``.
        own: the object itself is ours: it is made where it is missing, and deleted when it is no longer wanted.
        force: take fields that another field manager owns. Without it, such a conflict is a refused key.
    """

    body: bytes
    own: bool = False
    force: bool = True


class Notice(Frozen, frozen=True, order=True):
    """Something that is wrong with an object, to be told once, as an Event.

    Attributes:
        ref: the object.
        reason: a CamelCase word from a small fixed set.
        message: for people.
    """

    ref: ObjectRef
    reason: str
    message: str


class Subject(Frozen, frozen=True):
    """What an Event says about its object beside its name: only the object's own uid leads from it to its Events."""

    api_version: str = ""
    uid: str = ""


class State(Frozen, frozen=True):
    """What is ours in the API.

    Attributes:
        parts: the fields, by part.
        notices: what should have been told. It is never read back: Events end by themselves.
        standby: somebody else leads, so that nothing is known and nothing may be written.
    """

    parts: Table[Part, Fields] = Table()
    notices: Table[Notice, Subject] = Table()
    standby: bool = False


EMPTY: Final = State()
STANDBY: Final = State(standby=True)


def canonical(fields: Mapping[str, Any]) -> bytes:
    """Give the one JSON text of some fields; keys in order."""
    return msgspec.json.encode(fields, order="deterministic")


def status_of(ref: ObjectRef, status: Mapping[str, Any]) -> tuple[Part, Fields]:
    """Say that these fields of an object's status are ours."""
    return Part(ref, "status"), Fields(canonical({"status": status}))


def labels_of(ref: ObjectRef, labels: Mapping[str, str], *, force: bool = False) -> tuple[Part, Fields]:
    """Say that these labels of an object of somebody else are ours. The object is never made."""
    return Part(ref), Fields(canonical({"metadata": {"labels": labels}}), force=force)


def own_object(ref: ObjectRef, fields: Mapping[str, Any], manager: str) -> tuple[Part, Fields]:
    """Say that an object is ours as a whole."""
    metadata = fields.get("metadata", {})
    labels = {**metadata.get("labels", {}), OWN_LABEL: manager}
    whole = {**fields, "metadata": {**metadata, "labels": labels}}
    return Part(ref), Fields(canonical(whole), own=True)


def state_of(parts: Iterable[tuple[Part, Fields]], notices: Iterable[tuple[Notice, Subject]] = ()) -> State:
    """Make a state; of two entries of one part the last counts."""
    return State(Table.of(parts), Table.of(notices))
