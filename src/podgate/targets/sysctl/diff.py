"""diff: which parameters to set.

Here: the plan. Not here: doing it (apply.py).
Invariant: what is not wanted is left as it is: nobody knows what it was before.
"""

from collections.abc import Collection, Mapping

from podgate.model.frozen import Frozen
from podgate.model.tally import tally
from podgate.targets.sysctl.state import State


class Plan(Frozen, frozen=True):
    """What to set, and what it was; None for a parameter that the kernel lacks."""

    to_set: Mapping[str, int] = {}
    was: Mapping[str, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self.to_set)

    def __str__(self) -> str:
        def before(name: str) -> str:
            value = self.was.get(name)
            return "which this kernel lacks" if value is None else f"was {value}"

        return "\n".join(f"~ {name} = {value}, {before(name)}" for name, value in sorted(self.to_set.items()))

    def brief(self) -> str:
        """Say how many."""
        return tally({"parameter": len(self.to_set)})

    def touches(self) -> Collection[str]:
        """Give every parameter of the plan: each may be refused by itself."""
        return self.to_set.keys()

    def without(self, refused: Collection[str], /) -> "Plan":
        """Give what is left without these keys."""
        return Plan({name: value for name, value in self.to_set.items() if name not in refused}, self.was)


def diff(have: State, want: State) -> Plan:
    """Give the plan."""
    to_set = {
        name: value
        for name, value in want.values.items()
        if (current := have.values.get(name)) != value
        and not (name in want.at_least and current is not None and current > value)
    }
    return Plan(to_set, {name: have.values.get(name) for name in to_set})
