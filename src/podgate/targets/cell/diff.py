"""diff: whether a cell's reference has to be swapped.

Here: the plan. Not here: doing it (apply.py).
Invariant: equal values are no plan, so what a server remembers about a value outlives a compile that changed nothing.
"""

from collections.abc import Collection

from podgate.model.frozen import Frozen
from podgate.targets.cell.render import listing
from podgate.targets.cell.state import State


class Plan(Frozen, frozen=True):
    """From one value to another."""

    have: State
    want: State

    def __bool__(self) -> bool:
        return self.have.value is not self.want.value and self.have.value != self.want.value

    def __str__(self) -> str:
        before, after = listing(self.have), listing(self.want)
        # A value that shows itself as before is nothing to tell: it may be another one with each change.
        return f"{before} -> {after}" if self and before != after else ""

    def brief(self) -> str:
        """Say what is in it now."""
        return listing(self.want)

    def touches(self) -> Collection[object]:
        """Give no key: a cell takes any value."""
        return ()

    def without(self, _refused: Collection[object], /) -> "Plan":
        """Give it as it is: no key of it is refused by itself."""
        return self


def diff(have: State, want: State) -> Plan:
    """Give the plan."""
    return Plan(have, want)
