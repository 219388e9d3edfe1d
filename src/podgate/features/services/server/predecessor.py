"""predecessor: kube-proxy's nftables tables, which are taken away once ours are in and kube-proxy has stopped.

Here: the target that removes what it left, where a start is refused. Not here: whether kube-proxy still works on this
node (proxy_at_work.py), its iptables chains, which are ours by their names (to_iptables.py).
Invariant: while kube-proxy may be at work nothing of it is touched, and that is said; our tables do not wait for it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final

from podgate.features.services.server.proxy_at_work import NAME
from podgate.joints import ApplyError, Key, Signal
from podgate.linux.netlink import Connection
from podgate.linux.nftables import FAMILIES, NETLINK_NETFILTER, find_table
from podgate.linux.nftables_batch import delete_table
from podgate.linux.nftables_watch import refused
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.tally import tally

_FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
_WHAT: Final = "looking for kube-proxy's tables"
_ANSWER_SECONDS: Final = 2.0
_BACK: Final = (
    "its tables stay beside ours: they came back after they had been removed, so it is at work where nothing shows it; "
    "stop it and restart podgate, and they go"
)


class Left(Frozen, frozen=True):
    """Which families have a table of kube-proxy, or should: none; ``ignored`` where it is nobody's business."""

    families: tuple[Family, ...] = ()
    ignored: bool = False


NOTHING_LEFT: Final = Left()
IGNORED: Final = Left(ignored=True)


class Plan(Frozen, frozen=True):
    """The families whose table goes."""

    families: tuple[Family, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.families)

    def __str__(self) -> str:
        return "\n".join(f"- table {family} {NAME}: left by kube-proxy" for family in self.families)

    def brief(self) -> str:
        """Say how many."""
        return tally({"table": len(self.families)})

    def touches(self) -> Collection[str]:
        """Give the one key that may be refused."""
        return (NAME,)

    def without(self, refused: Collection[str], /) -> "Plan":
        """Give what is left: nothing, where that key is refused."""
        return Plan() if NAME in refused else self


class PredecessorTarget:
    """Removes kube-proxy's nftables tables, in this process's network namespace.

    Args:
        at_work: says why kube-proxy may still be at work; empty when it is not.
    """

    def __init__(self, at_work: Callable[[], Awaitable[str]]) -> None:
        self._at_work = at_work
        self._has_removed = False

    async def read(self) -> Left:
        """Give the families that have such a table. Raises ApplyError."""
        with refused(_WHAT, ApplyError), Connection(NETLINK_NETFILTER) as connection:
            return Left(tuple(family for family in _FAMILIES if find_table(connection, FAMILIES[family], NAME)))

    def diff(self, have: Left, want: Left) -> Plan:
        """Give the plan."""
        return Plan() if want.ignored else Plan(have.families)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Remove them, unless kube-proxy may be at work. Raises ApplyError.

        Only a kube-proxy makes them again: one that was seen since has come and gone, another is somewhere.
        """
        reason = await self._at_work()
        if reason:
            self._has_removed = False
            return {NAME: f"its tables stay beside ours: {reason}; stop it, and they go"}
        if self._has_removed:
            return {NAME: _BACK}
        with refused(_WHAT, ApplyError), Connection(NETLINK_NETFILTER) as connection:
            for family in plan.families:
                delete_table(connection, FAMILIES[family], NAME)
        self._has_removed = True
        return {}

    async def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever: while it is at work it changes its tables all the time."""
        await asyncio.get_running_loop().create_future()
        yield  # type: ignore[misc]  # pragma: no cover - what makes this a generator


def obstacle(environ: Mapping[str, str], *, has_source: bool) -> str:
    """Say why this process cannot start on a node without rules; empty when it can.

    A Pod's own account leads to the API server by the address of the Service ``kubernetes``, which nobody leads
    anywhere before there are rules for it: kube-proxy's, or ours of an earlier run.

    Args:
        environ: the environment.
        has_source: whether an option says where objects come from.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if has_source or not host or environ.get("PODGATE_SOURCE"):
        return ""
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return ""
    except (OSError, ValueError):
        return (
            f"the API server does not answer at {host}:{port}, a Service's address, and nobody leads there before "
            "there are rules: give --kubeconfig with the API server's own address"
        )
