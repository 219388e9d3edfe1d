"""sweep: a follower that deletes UDP flows by what their addresses are, packed, where there may be very many.

Here: when, and what the judge is asked. Not here: the judgement, deleting (apply.py); TCP, which is never touched.
Invariant: never an entry is deleted that the judge did not name; the first commit of a process sweeps too, since what
led elsewhere may have changed while nobody watched.
"""

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from podgate.joints import ApplyError
from podgate.linux.conntrack import Entry
from podgate.linux.netlink import Connection
from podgate.linux.refusals import refused
from podgate.linux.rtnetlink import addresses
from podgate.model.machine import Family
from podgate.model.tally import tally
from podgate.targets.conntrack.apply import DELETING, delete_all
from podgate.targets.conntrack.state import FlowJudge

StatesT = TypeVar("StatesT")
S = TypeVar("S")

Own = Callable[[], frozenset[bytes]]

_UDP: Final = 17


class UdpSweep(Generic[StatesT, S]):
    """Sweeps after each commit that its judge is concerned by, in this process's network namespace.

    Args:
        family: ``ip`` or ``ip6``.
        judge: makes the judge of a change out of what a follower is told: before (None at a start), after and found.
            Its last argument gives this machine's addresses, packed. It gives None where no flow is concerned.
    """

    from_start = True

    def __init__(
        self,
        family: Family,
        judge: Callable[[StatesT | None, StatesT, S | None, Own], FlowJudge | None],
        swept: Callable[[float, int], None] = lambda _seconds, _count: None,
    ) -> None:
        self._family: Family = family
        self._judge = judge
        self._swept = swept

    def telling(self, swept: Callable[[float, int], None]) -> "UdpSweep[StatesT, S]":
        """Give one that does the same, and tells of it."""
        return UdpSweep(self._family, self._judge, swept)

    async def follow(self, before: StatesT | None, after: StatesT, found: S | None) -> str:
        """Delete the flows that the change concerns; say how many.

        Raises:
            ApplyError: the kernel refused; some may have been deleted.
        """
        started = time.perf_counter()
        with refused(DELETING, ApplyError):
            judge = self._judge(before, after, found, _own)
            if judge is None:
                return ""
            count = await delete_all(self._family, partial(_must_go, judge))
        self._swept(time.perf_counter() - started, count)
        return f"{tally({'stale UDP flow': count})} deleted" if count else ""


def _must_go(judge: FlowJudge, entry: Entry) -> bool:
    first, reply = entry.original, entry.reply
    return first.protocol == _UDP and judge(first.destination, first.destination_port, reply.source, reply.source_port)


def _own() -> frozenset[bytes]:
    with Connection(socket.NETLINK_ROUTE) as asking:
        return frozenset(each.address.packed for each in addresses(asking))
