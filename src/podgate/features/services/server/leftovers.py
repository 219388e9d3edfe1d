"""leftovers: chains of iptables where another back end is chosen: an earlier run's, or kube-proxy's.

Here: the target that takes them away. Not here: which chains they are (iptables_names.py), whether kube-proxy works
(proxy_at_work.py).
Invariant: while kube-proxy may be at work none of them is touched: nobody could say whose they are.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from podgate.features.services.server.proxy_at_work import NAME
from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.model.frozen import Frozen
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.state import State


class Leftovers(Frozen, frozen=True):
    """What there is of such chains, or should be: nothing.

    Attributes:
        held: as it was read; None for nothing.
        theirs: why kube-proxy may be at work; empty when it is not.
        yields: of a wanted state: leave them without a word while kube-proxy is at work.
    """

    held: State | None = None
    theirs: str = ""
    yields: bool = False


NOTHING: Leftovers = Leftovers()
OURS_ALONE: Leftovers = Leftovers(yields=True)
"""What ``clean`` wants: where kube-proxy works again, the chains are its."""


class LeftoversTarget:
    """Removes chains of one table of one program.

    Args:
        chains: reads and writes the table.
        at_work: says why kube-proxy may be at work; empty when it is not.
    """

    def __init__(self, chains: IptablesTarget, at_work: Callable[[], Awaitable[str]]) -> None:
        self._chains = chains
        self._at_work = at_work
        self._empty = State(chains.family, chains.binary, table=chains.table)
        self._is_gone = False

    def close(self) -> None:
        """Close the socket; the next call opens another."""
        self._chains.close()

    async def read(self) -> Leftovers:
        """Give what there is; what was found to be gone once is not looked for again. Raises ApplyError."""
        if self._is_gone:
            return NOTHING
        held, theirs = await self._chains.read(), await self._at_work()
        if self._chains.diff(held, self._empty):
            return Leftovers(held, theirs)
        self._is_gone = not theirs
        return NOTHING

    def diff(self, have: Leftovers, want: Leftovers) -> Plan:
        """Give the plan."""
        held = self._empty if have.held is None or (have.theirs and want.yields) else have.held
        return self._chains.diff(held, self._empty)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Remove them, unless kube-proxy may be at work. Raises ApplyError."""
        reason = await self._at_work()
        if reason:
            return {NAME: f"its chains in {plan.want.program} stay beside our rules: {reason}; stop it, and they go"}
        return await self._chains.apply(plan)

    def signals(self) -> AsyncIterator[Signal]:
        """Give none: nothing here is ours to be changed by others."""
        return silent()
