"""diff: which sockets to open and which to close.

Here: the plan. Not here: doing it (apply.py).
Invariant: a socket that stays is not in the plan, so its connections and its backlog live on.
"""

from collections.abc import Collection

from podgate.model.frozen import Frozen
from podgate.model.tally import tally
from podgate.targets.listeners.state import ListenAddress, State


class Plan(Frozen, frozen=True):
    """What to open and to close, each sorted."""

    opened: tuple[ListenAddress, ...] = ()
    closed: tuple[ListenAddress, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.opened or self.closed)

    def __str__(self) -> str:
        lines = [f"open {where}" for where in self.opened] + [f"close {where}" for where in self.closed]
        return "\n".join(lines)

    def brief(self) -> str:
        """Say how many."""
        return tally({"opened socket": len(self.opened), "closed socket": len(self.closed)})

    def touches(self) -> Collection[ListenAddress]:
        """Give every address of the plan: each may be refused by itself."""
        return (*self.opened, *self.closed)

    def without(self, refused: Collection[ListenAddress], /) -> "Plan":
        """Give what is left without these keys."""
        opened, closed = (tuple(each for each in part if each not in refused) for part in (self.opened, self.closed))
        return Plan(opened, closed)


def diff(have: State, want: State) -> Plan:
    """Give the plan."""
    return Plan(tuple(sorted(want.addresses - have.addresses)), tuple(sorted(have.addresses - want.addresses)))
