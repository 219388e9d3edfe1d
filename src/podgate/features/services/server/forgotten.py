"""forgotten: looks now and then whether clients of Services with affinity could not be remembered.

Here: the target that reads the counts. Not here: what is said of it (sticky.py), the rules that count (to_nftables.py).
Invariant: a look is one short chain of each family, whatever the number of clients; what was counted before this
process began is nobody's news.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from podgate.features.services.intent import FAMILIES
from podgate.features.services.sticky import Plan, State, Unremembered, why
from podgate.features.services.to_nftables import NOT_REMEMBERED
from podgate.joints import ApplyError, Key, Signal
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, DumpInterruptedError
from podgate.linux.nftables import FAMILIES as NUMBERS
from podgate.linux.nftables import rule_counts
from podgate.linux.waiting import silent
from podgate.model.machine import Family

CALM: Final = 600.0
"""Seconds without another one after which it is over: where clients come and go, some find room."""


def counts(table: str) -> dict[Family, int]:
    """Give how many connections' clients could not be remembered. Raises OSError, DumpInterruptedError."""
    with Connection(NETLINK_NETFILTER) as connection:
        return {
            family: sum(each.packets for each in rule_counts(connection, NUMBERS[family], table, NOT_REMEMBERED))
            for family in FAMILIES
        }


class ForgottenTarget:
    """Tells of families whose clients are not remembered, in this process's network namespace.

    Args:
        table: our table of nftables.
        clock: monotonic seconds.
    """

    def __init__(self, table: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._counted: dict[Family, int] = {}
        self._until: dict[Family, float] = {}

    async def read(self) -> State:
        """Give the families of which a client was not remembered lately. Raises ApplyError."""
        try:
            found = counts(self._table)
        except (OSError, DumpInterruptedError) as error:
            raise ApplyError(f"cannot count clients that were not remembered: {error}", "ReadFailed") from error
        now = self._clock()
        for family, count in found.items():
            before = self._counted.get(family, count)
            if count > before or 0 < count < before:  # rules that were written anew begin at 0
                self._until[family] = now + CALM
        self._counted = found
        return State(frozenset(Unremembered(family) for family, until in self._until.items() if now < until))

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return Plan(tuple(sorted(have.families - want.families)))

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Refuse all: there is no room."""
        return {key: why(key) for key in plan.families}

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever: the kernel tells nobody."""
        return silent()
