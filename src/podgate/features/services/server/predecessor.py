"""predecessor: what kube-proxy left beside chains of iptables, taken away once ours is in and kube-proxy has stopped.

Here: the target that removes its nftables tables, and its device of mode ipvs where all is to go.
Not here: whether kube-proxy still works on this node (proxy_at_work.py), its iptables chains, which are ours by their
names (to_iptables.py).
Invariant: while kube-proxy may be at work nothing of it is touched, and that is said; our tables do not wait for it.
"""

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final, Literal

from podgate.features.services.node import IPVS_DEVICE
from podgate.features.services.server.proxy_at_work import NAME
from podgate.joints import ApplyError, Key, Signal
from podgate.linux import refusals
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.linux.nftables import FAMILIES, find_table
from podgate.linux.nftables_batch import delete_table
from podgate.linux.nftables_watch import refused
from podgate.linux.rtnetlink import delete_link
from podgate.linux.waiting import silent
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.tally import tally

_FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
_WHAT: Final = "looking for kube-proxy's tables"
_BACK: Final = (
    "its tables stay beside ours: they came back after they had been removed, so it is at work where nothing shows it; "
    "stop it and restart podgate, and they go"
)


_SAME_CHAINS: Final = "writes the same chains of iptables as podgate"


class Left(Frozen, frozen=True):
    """What there is of kube-proxy, or should be: nothing.

    Attributes:
        families: those that have a table.
        device: the number of its device of mode ipvs; 0 for none.
        beside: why it may be at work, where it writes the same chains of iptables as we; empty when it does not.
        ignored: of a wanted state: what of it stays, whatever there is.
    """

    families: tuple[Family, ...] = ()
    device: int = 0
    beside: str = ""
    ignored: frozenset[Literal["tables", "device"]] = frozenset()


NOTHING_LEFT: Final = Left()
DEVICE_STAYS: Final = Left(ignored=frozenset(("device",)))
"""What ``run`` wants: connections that IPVS leads need the device, and new ones it does not harm (node.py)."""
IGNORED: Final = Left(ignored=frozenset(("tables", "device")))


class Plan(Frozen, frozen=True):
    """The families whose table goes, the device that does, and what is to be told of a kube-proxy beside us."""

    families: tuple[Family, ...] = ()
    device: int = 0
    beside: str = ""

    def __bool__(self) -> bool:
        return bool(self.families or self.device or self.beside)

    def __str__(self) -> str:
        lines = [f"- table {family} {NAME}: left by kube-proxy" for family in self.families]
        if self.device:
            lines.append(f"- device {IPVS_DEVICE}: left by kube-proxy; virtual servers of IPVS stay (ipvsadm --clear)")
        if self.beside:
            lines.append(f"! {NAME} {_SAME_CHAINS}: {self.beside}")
        return "\n".join(lines)

    def brief(self) -> str:
        """Say how many."""
        return tally({"table": len(self.families), "device": 1 if self.device else 0})

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
        shares: whether the chains that we write are kube-proxy's too.
    """

    def __init__(self, at_work: Callable[[], Awaitable[str]], *, shares: bool = False) -> None:
        self._at_work = at_work
        self._shares = shares
        self._has_removed = False

    async def read(self) -> Left:
        """Give what there is. Raises ApplyError."""
        with refused(_WHAT, ApplyError), Connection(NETLINK_NETFILTER) as connection:
            families = tuple(family for family in _FAMILIES if find_table(connection, FAMILIES[family], NAME))
        beside = await self._at_work() if self._shares else ""
        with contextlib.suppress(OSError):
            return Left(families, socket.if_nametoindex(IPVS_DEVICE), beside)
        return Left(families, 0, beside)

    def diff(self, have: Left, want: Left) -> Plan:
        """Give the plan."""
        device = 0 if "device" in want.ignored else have.device
        return Plan((), device) if "tables" in want.ignored else Plan(have.families, device, have.beside)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Remove them, unless kube-proxy may be at work. Raises ApplyError.

        Only a kube-proxy makes them again: one that was seen since has come and gone, another is somewhere.
        """
        reason = await self._at_work()
        if reason:
            self._has_removed = False
            if plan.beside and not plan.families:
                return {NAME: f"it {_SAME_CHAINS}: {reason}; stop one of them"}
            return {NAME: f"its tables stay beside ours: {reason}; stop it, and they go"}
        if self._has_removed and plan.families:
            return {NAME: _BACK}
        with refused(_WHAT, ApplyError), Connection(NETLINK_NETFILTER) as connection:
            for family in plan.families:
                delete_table(connection, FAMILIES[family], NAME)
        if plan.device:
            deleting = refusals.refused(f"deleting {IPVS_DEVICE}", ApplyError)
            with deleting, Connection(socket.NETLINK_ROUTE) as connection:
                delete_link(connection, plan.device)
        self._has_removed = self._has_removed or bool(plan.families)
        return {}

    def signals(self) -> AsyncIterator[Signal]:
        """Give none: while it is at work it changes its tables all the time."""
        return silent()
