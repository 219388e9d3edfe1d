"""diff: which addresses to add and which to remove.

Here: the plan. Not here: doing it (apply.py).
Invariant: an address whose scope is another one is removed before it is added: the kernel holds a place once.
"""

from collections.abc import Collection

from podgate.model.frozen import Frozen
from podgate.targets.addresses.state import Assigned, DeviceAddress, State


class Plan(Frozen, frozen=True):
    """What to remove and to add, each sorted; removing comes first."""

    removed: tuple[Assigned, ...] = ()
    added: tuple[Assigned, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)

    def __str__(self) -> str:
        return "\n".join([f"- {each}" for each in self.removed] + [f"+ {each}" for each in self.added])

    def brief(self) -> str:
        """Say how many."""
        return f"{len(self.removed)} removed, {len(self.added)} added"

    def touches(self) -> Collection[DeviceAddress]:
        """Give the places of what is added: each may be refused by itself."""
        return tuple(each.place for each in self.added)

    def without(self, refused: Collection[DeviceAddress], /) -> "Plan":
        """Give what is left without these keys."""
        return Plan(self.removed, tuple(each for each in self.added if each.place not in refused))


def diff(have: State, want: State) -> Plan:
    """Give the plan."""
    return Plan(_sorted(have.assigned - want.assigned), _sorted(want.assigned - have.assigned))


def _sorted(found: frozenset[Assigned]) -> tuple[Assigned, ...]:
    return tuple(sorted(found, key=str))
