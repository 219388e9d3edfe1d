"""fake: listening sockets in memory, for tests of a feature.

Here: plans executed on a set, ports that are taken on demand. Not here: sockets.
Invariant: what the kernel would refuse, an address that is taken, is refused with the words of the real target.
"""

from collections.abc import AsyncIterator, Collection, Mapping

from podgate.joints import Key, Signal
from podgate.linux.waiting import silent
from podgate.targets.listeners.diff import Plan, diff
from podgate.targets.listeners.state import Endpoint, State


class FakeListeners:
    """Executes plans in memory.

    Args:
        serves: the names of the protocols that there are; another one is a bug.
        taken: ports that somebody else holds, with the holder.
    """

    def __init__(self, serves: Collection[str], taken: Mapping[int, str] | None = None) -> None:
        self.serves = frozenset(serves)
        self.taken = dict(taken or {})
        self.open: set[Endpoint] = set()

    async def read(self) -> State:
        """Give what is open."""
        return State(frozenset(self.open))

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Close, then open. Raises KeyError for a protocol that nobody serves."""
        self.open.difference_update(plan.closed)
        refused: dict[Key, str] = {}
        for endpoint in plan.opened:
            if endpoint.serves not in self.serves:
                raise KeyError(endpoint.serves)
            holder = self.taken.get(endpoint.port)
            if holder is None:
                self.open.add(endpoint)
            else:
                refused[endpoint] = f"port {endpoint.port} is in use by {holder}: stop it, or listen elsewhere"
        return refused

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever."""
        return silent()
