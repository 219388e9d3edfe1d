"""fake: addresses in memory, for tests of a feature.

Here: plans executed on a set, as the kernel would. Not here: devices.
Invariant: what the kernel refuses, a place that is taken or a device that is not there, is an error here too.
"""

from collections.abc import AsyncIterator, Collection, Mapping

from podgate.joints import ApplyError, Key, Signal
from podgate.linux.waiting import silent
from podgate.targets.addresses.diff import Plan, diff
from podgate.targets.addresses.state import Assigned, Place, State


class FakeAddresses:
    """Executes plans in memory.

    Args:
        places: where ours are.
        devices: those that there are.
        present: what is there to begin with, others' addresses too.
    """

    def __init__(
        self, places: Collection[Place], devices: Collection[str] = ("lo",), present: Collection[Assigned] = ()
    ) -> None:
        self._places = frozenset(places)
        self._devices = frozenset(devices)
        self.present = {each.place: each for each in present}

    async def read(self) -> State:
        """Give what is ours."""
        return State(frozenset(each for place, each in self.present.items() if place in self._places))

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Remove, then add. Raises ApplyError for a device that is not there, ValueError for a place that is taken."""
        for each in plan.removed:
            self.present.pop(each.place, None)
        for each in plan.added:
            if each.place.device not in self._devices:
                raise ApplyError(f"there is no device {each.place.device}", "NoDevice")
            if each.place in self.present:
                raise ValueError(f"{each.place} is there already")
            self.present[each.place] = each
        return {}

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever."""
        return silent()
