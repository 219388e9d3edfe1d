"""fake: a cell that remembers every value that it held, for tests of a feature.

Here: the history. Not here: a server that reads it.
Invariant: it refuses what is not frozen, which the real cell could not hold safely.
"""

from collections.abc import AsyncIterator, Mapping

from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.model.frozen import Frozen
from podgate.targets.cell.diff import Plan, diff
from podgate.targets.cell.state import State


class FakeCell:
    """Executes plans in memory."""

    def __init__(self) -> None:
        self.history: list[State] = [State()]

    async def read(self) -> State:
        """Give the newest value."""
        return self.history[-1]

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Hold another value.

        Raises:
            TypeError: the value can change, or the plan does not begin at what is held. Both are bugs.
        """
        value = plan.want.value
        if value is not None and not isinstance(value, Frozen):
            raise TypeError(f"a cell holds frozen values, not a {type(value).__name__}")
        if plan.have != self.history[-1]:
            raise TypeError("the plan begins at a value that the cell does not hold")
        self.history.append(plan.want)
        return {}

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever."""
        return silent()
