"""fake: parameters in memory, for tests of a feature.

Here: plans executed on a mapping, parameters that refuse on demand. Not here: files.
Invariant: what the real target would refuse is refused with its words.
"""

import errno
from collections.abc import AsyncIterator, Collection, Mapping

from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.targets.sysctl.apply import why
from podgate.targets.sysctl.diff import Plan, diff
from podgate.targets.sysctl.state import State


class FakeSysctl:
    """Executes plans in memory; ``readonly`` names what cannot be written."""

    def __init__(self, values: Mapping[str, int], readonly: Collection[str] = ()) -> None:
        self.values = dict(values)
        self.readonly = frozenset(readonly)

    async def read(self) -> State:
        """Give the values."""
        return State(dict(self.values))

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Set what can be set."""
        refused: dict[Key, str] = {}
        for name, value in plan.to_set.items():
            code = errno.EROFS if name in self.readonly else 0 if name in self.values else errno.ENOENT
            if code:
                refused[name] = why(name, value, OSError(code, ""))
            else:
                self.values[name] = value
        return refused

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever."""
        return silent()
