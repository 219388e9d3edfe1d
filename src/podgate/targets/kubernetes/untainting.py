"""untainting: the target that takes a taint away from Nodes.

Here: the I/O, and what an answer means. Not here: the state and its requests (taints.py).
Invariant: a Node that refuses never keeps another waiting; it is tried again, in its newest form.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final

from podgate.joints import ApplyError, Key, Signal
from podgate.kubeapi.connection import AccessError, Connection, UnreachableError
from podgate.linux.waiting import silent
from podgate.targets.kubernetes.taints import Plan, Taints, removal

_GONE: Final = 404


class TaintsTarget:
    """The taints of Nodes.

    Args:
        connection: to the API; opened whenever it is used.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self) -> Taints:
        """Give that nothing was done: what is wanted says itself which Nodes have the taint still."""
        return Taints()

    def diff(self, have: Taints, want: Taints) -> Plan:
        """Give the plan."""
        return Plan(tuple(sorted(want.nodes - have.nodes)))

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Free the Nodes; one that is gone is no failure. Raises ApplyError with all failures, after all were tried."""
        failures: list[str] = []
        try:
            async with self._connection:
                for request in map(removal, plan.nodes):
                    answer = await self._connection.send(request)
                    if answer.refused is not None and answer.refused.code != _GONE:
                        failures.append(f"{request.what}: {answer.refused}")
        except (UnreachableError, AccessError) as error:
            raise ApplyError(str(error), "Unreachable") from error
        if failures:
            raise ApplyError("\n".join(failures), "UntaintRefused")
        return {}

    def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever: what others do to Nodes is watched as objects."""
        return silent()
