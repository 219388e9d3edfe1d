"""Room: what a watch holds of a kind whose objects others may make in any number. Pure.

Here: what objects weigh, whether there is room for one more, what they say alike. Not here: what becomes of one without
room (watching.py), the bounds themselves (model/kinds/).
Invariant: what is held never weighs more than the bounds of its kind say; what objects say alike is held once.
"""

from collections.abc import Hashable
from typing import Any

import msgspec

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import Bounds
from podgate.model.snapshot import Kind


class _Said:
    """What objects say in the field ``alike``, and how many hold it."""

    __slots__ = ("holders", "value", "weight")

    def __init__(self, value: Hashable) -> None:
        self.value = value
        self.weight = _weight(value)
        self.holders = 0


class Room:
    """The objects of one kind that are held; a kind without bounds has all the room that there is."""

    def __init__(self, kind: Kind[Any]) -> None:
        self._bounds: Bounds | None = getattr(kind.decodes_to, "bounds", None)
        self._alike: str = getattr(kind.decodes_to, "alike", "")
        self._held: dict[ObjectRef, Any] = {}
        self._said: dict[Hashable, _Said] = {}
        self._weight = 0
        self._missing: int | None = None

    @property
    def has_come_back(self) -> bool:
        """Whether there would be room now for the lightest of what found none."""
        if self._bounds is None or self._missing is None:
            return False
        return self._weight + self._missing <= self._bounds.size

    def taken(self, ref: ObjectRef, obj: Any) -> Any | None:
        """Hold an object in the place of the one before it, and give it; without room None, and that one is held on."""
        if self._bounds is None:
            return obj
        before = self._held.get(ref)
        self.lets_go(ref)
        held = self._hold(ref, obj)
        if self._weight <= self._bounds.size:
            return held
        weight = self._weight
        self.lets_go(ref)
        if before is not None:
            self._hold(ref, before)
        more = weight - self._weight
        self._missing = more if self._missing is None else min(more, self._missing)
        return None

    def lets_go(self, ref: ObjectRef) -> None:
        """Hold an object no more."""
        obj = self._held.pop(ref, None)
        if obj is None:
            return
        self._weight -= _weight(self._own(obj))
        if self._alike:
            said = self._said[getattr(obj, self._alike)]
            said.holders -= 1
            if not said.holders:
                del self._said[said.value]
                self._weight -= said.weight

    def _hold(self, ref: ObjectRef, obj: Any) -> Any:
        self._weight += _weight(self._own(obj))
        if self._alike:
            value = getattr(obj, self._alike)
            said = self._said.get(value)
            if said is None:
                said = self._said[value] = _Said(value)
                self._weight += said.weight
            said.holders += 1
            obj = obj if said.value is value else msgspec.structs.replace(obj, **{self._alike: said.value})
        self._held[ref] = obj
        return obj

    def _own(self, obj: Any) -> Any:
        """Give an object without what it says like others."""
        return msgspec.structs.replace(obj, **{self._alike: ()}) if self._alike else obj


def _weight(value: Any) -> int:
    return len(msgspec.json.encode(value))
