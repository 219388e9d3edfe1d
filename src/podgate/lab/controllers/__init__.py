"""Controllers: what a cluster's controllers, its scheduler and its address management would do, as one pure function.

Here: ``reconcile``: objects in, writes out; and the writes as values. Not here: files, processes, time.
Invariant: pure, and it settles: after the writes are done, calling again gives fewer or none, and none in the end as
long as nobody else changes anything. Objects with ``metadata.deletionTimestamp`` are treated as terminating.

The caller (the lab's daemon) loads, reconciles, performs and loads again until there are no writes:

* ``Put(obj)``: ``Store.put``. * ``PutStatus(ref, status)``: ``Store.put_status``. * ``Remove(ref)``: ``Store.delete``,
  which lets a Pod's containers end first.
"""

from collections.abc import Mapping
from typing import Any

from podgate.model.frozen import Frozen, ObjectRef


class Put(Frozen, frozen=True):
    """Create or replace an object (without its status)."""

    obj: dict[str, Any]


class PutStatus(Frozen, frozen=True):
    """Merge top-level keys into an object's status; ``conditions`` merge by type."""

    ref: ObjectRef
    status: Mapping[str, Any]


class Remove(Frozen, frozen=True):
    """Delete an object, as a user's delete does."""

    ref: ObjectRef


Write = Put | PutStatus | Remove


def reconcile(objects: Mapping[ObjectRef, dict[str, Any]]) -> tuple[Write, ...]:
    """Give what all controllers want to change, given every object with its status under ``status``."""
    raise AssertionError
