"""Stores: what a lab needs of whoever holds its objects.

Here: the protocol. Not here: files (objects.py), a Kubernetes API (kubestore.py).
Invariant: a write counts in the next ``load``, whether or not it has reached the disk or the API yet; one that cannot
reach it is told as a warning, and what it meant is decided anew.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from podgate.lab.kinds import Object
from podgate.model.frozen import ObjectRef


class ObjectStore(Protocol):
    """The objects of a lab."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Objects that were left out of the last load, with why."""
        ...

    def load(self) -> Mapping[ObjectRef, Object]:
        """Give all objects, each with its status."""
        ...

    def seen(self, ref: ObjectRef, version: int) -> bool:
        """Whether an object that somebody wrote is known, at that resource version or a later one."""
        ...

    def confirmed(self, ref: ObjectRef) -> bool:
        """Whether a Pod may start: nobody can refuse any more that it is on its node."""
        ...

    async def changed(self) -> None:
        """Wait until something changed since the last call; the first call returns at once."""
        ...

    def put(self, obj: Object) -> None:
        """Create or replace an object without its status."""
        ...

    def put_status(self, ref: ObjectRef, status: Mapping[str, Any]) -> None:
        """Merge top-level keys into an object's status; None removes a key; ``conditions`` merge by type."""
        ...

    def delete(self, ref: ObjectRef) -> bool:
        """Do what a user's ``delete`` does: the containers of a Pod end first. False if there is no such object."""
        ...

    def remove(self, ref: ObjectRef) -> None:
        """Remove an object now."""
        ...
