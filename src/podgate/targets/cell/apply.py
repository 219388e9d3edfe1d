"""apply: the cell, and the target that swaps what it holds.

Here: one reference. Not here: who reads it; a server takes ``cell.value`` once per request and keeps what it took.
Invariant: a swap is one assignment: a reader sees the old value or the new one, never a mixture.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.targets.cell.diff import Plan, diff
from podgate.targets.cell.state import State


class Cell:
    """Holds one frozen value for the servers of this process; ``value`` is None before the first one."""

    __slots__ = ("state", "value")

    def __init__(self) -> None:
        self.state = State()
        self.value: Any = None

    def swap(self, state: State) -> None:
        """Hold another value from now on."""
        self.state = state
        self.value = state.value


class CellTarget:
    """Programs a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    async def read(self) -> State:
        """Give what the cell holds."""
        return self._cell.state

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Swap; nothing is ever refused."""
        self._cell.swap(plan.want)
        return {}

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever: nobody else writes the cell."""
        return silent()
