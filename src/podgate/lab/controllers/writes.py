"""Writes: what a controller wants to change, as values, and their effect on a mapping of objects. Pure.

Here: the three writes and ``performed``. Not here: files (lab/objects.py), deciding (the controllers).
Invariant: a write names its object; the effect of a sequence of writes is that of ``net`` of the sequence.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from podgate.lab.kinds import Object, ref_of
from podgate.model.frozen import Frozen, ObjectRef

Objects = Mapping[ObjectRef, Object]


class Put(Frozen, frozen=True):
    """Create or replace an object; a status in it is ignored."""

    obj: Object

    @property
    def ref(self) -> ObjectRef:
        """Which object."""
        return ref_of(self.obj)


class PutStatus(Frozen, frozen=True):
    """Merge top-level keys into an object's status; None removes a key; ``conditions`` merge by type."""

    ref: ObjectRef
    status: Mapping[str, Any]


class Remove(Frozen, frozen=True):
    """Delete an object as a user's delete does: the containers of a Pod end first."""

    ref: ObjectRef


Write = Put | PutStatus | Remove


def merged_status(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """Merge a status: top-level keys are replaced, None removes one; conditions are only ever replaced by type."""
    fresh = {**before, **after}
    if "conditions" in fresh:
        conditions = (*(before.get("conditions") or ()), *(after.get("conditions") or ()))
        fresh["conditions"] = list({one["type"]: one for one in conditions}.values())
    return {key: value for key, value in fresh.items() if value is not None}


def performed(objects: Objects, writes: Iterable[Write]) -> Objects:
    """Give the objects as they are after the writes. A deleted object is gone at once."""
    fresh = dict(objects)
    for write in writes:
        have = fresh.get(write.ref)
        if isinstance(write, Remove):
            fresh.pop(write.ref, None)
        elif isinstance(write, Put):
            plain = {key: value for key, value in write.obj.items() if key != "status"}
            fresh[write.ref] = {**plain, "status": have["status"]} if have and "status" in have else plain
        elif have is not None:
            fresh[write.ref] = {**have, "status": merged_status(have.get("status") or {}, write.status)}
    return fresh


def net(writes: Iterable[Write]) -> tuple[Write, ...]:
    """Give at most one Put or Remove and one PutStatus per object: the last Put, the merged statuses.

    A removal wins over everything else about its object, so that nothing brings it back.
    """
    bodies: dict[ObjectRef, Put | Remove] = {}
    statuses: dict[ObjectRef, PutStatus] = {}
    for write in writes:
        if isinstance(write, PutStatus):
            have = statuses.get(write.ref)
            # None still has to reach the store, so plain merging of the keys it is.
            merged = {**merged_status(have.status, write.status), **_nones(have.status, write.status)} if have else None
            statuses[write.ref] = PutStatus(write.ref, merged) if merged else write
        elif not isinstance(bodies.get(write.ref), Remove):
            bodies[write.ref] = write
    removed = {ref for ref, write in bodies.items() if isinstance(write, Remove)}
    return (*bodies.values(), *(write for ref, write in statuses.items() if ref not in removed))


def _nones(before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, None]:
    return {key: None for key, value in {**before, **after}.items() if value is None}
