"""sweep: a follower that deletes UDP flows by what their addresses are, packed, where there may be very many.

Here: listing, asking the judge, deleting. Not here: the judgement; TCP, which is never touched.
Invariant: never an entry is deleted that the judge did not name; the first commit of a process sweeps too, since what
led elsewhere may have changed while nobody watched.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from podgate.joints import ApplyError
from podgate.linux.conntrack import NETLINK_NETFILTER, delete, entries
from podgate.linux.netlink import Connection, DumpInterruptedError
from podgate.linux.rtnetlink import addresses
from podgate.model.machine import Family

StatesT = TypeVar("StatesT")

FlowJudge = Callable[[bytes, int, bytes, int], bool]
"""Says whether a flow must go: destination and port of its first packet, and who answers, with its port."""

Own = Callable[[], frozenset[bytes]]

_UDP: Final = 17
_NUMBERS: Final[dict[Family, int]] = {"ip": socket.AF_INET, "ip6": socket.AF_INET6}
_PAUSE_EVERY: Final = 1_000
"""Entries after which other tasks have their turn, some 10 ms."""


class UdpSweep(Generic[StatesT]):
    """Sweeps after each commit that its judge is concerned by, in this process's network namespace.

    Args:
        family: ``ip`` or ``ip6``.
        judge: makes the judge of a change; what was before is None at a start. Its third argument gives this machine's
            addresses, packed. It gives None where no flow is concerned.
    """

    from_start = True

    def __init__(
        self,
        family: Family,
        judge: Callable[[StatesT | None, StatesT, Own], FlowJudge | None],
        swept: Callable[[float, int], None] = lambda _seconds, _count: None,
    ) -> None:
        self._family: Family = family
        self._judge = judge
        self._swept = swept

    def telling(self, swept: Callable[[float, int], None]) -> "UdpSweep[StatesT]":
        """Give one that does the same, and tells of it."""
        return UdpSweep(self._family, self._judge, swept)

    async def follow(self, before: StatesT | None, after: StatesT) -> str:
        """Delete the flows that the change concerns; say how many.

        Raises:
            ApplyError: the kernel refused; some may have been deleted.
        """
        count, started = 0, time.perf_counter()
        try:
            judge = self._judge(before, after, _own)
            if judge is None:
                return ""
            # Two, since a socket that gives a list can be asked for nothing else until its end.
            with Connection(NETLINK_NETFILTER) as listing, Connection(NETLINK_NETFILTER) as deleting:
                for number, entry in enumerate(entries(listing, _NUMBERS[self._family])):
                    first, reply = entry.original, entry.reply
                    if first.protocol == _UDP and judge(
                        first.destination, first.destination_port, reply.source, reply.source_port
                    ):
                        count += delete(deleting, entry)
                    if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                        await asyncio.sleep(0)
        except DumpInterruptedError as problem:
            raise ApplyError(f"connections cannot be listed: {problem}", "ReadInterrupted") from problem
        except OSError as problem:
            raise ApplyError(f"connections cannot be deleted: {problem.strerror}", "ConntrackRefused") from problem
        self._swept(time.perf_counter() - started, count)
        return f"{count} stale UDP flow{'' if count == 1 else 's'} deleted" if count else ""


def _own() -> frozenset[bytes]:
    with Connection(socket.NETLINK_ROUTE) as asking:
        return frozenset(each.address.packed for each in addresses(asking))
