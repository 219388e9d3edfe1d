"""apply: deletes tracked connections that an earlier state translated and the present one would not, or otherwise.

Here: listing, asking the judge, deleting. Not here: the judgement.
Invariant: nothing is deleted before the new rules are in (a follower is called after the commit), and never an entry
that the judge did not name.
"""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Generic, TypeVar

from podgate.joints import ApplyError
from podgate.linux.conntrack import NETLINK_NETFILTER, Entry, delete, entries
from podgate.linux.netlink import Connection, DumpInterruptedError
from podgate.model.machine import Family
from podgate.targets.conntrack.state import PROTOCOLS, Flow

StatesT = TypeVar("StatesT")

Judge = Callable[[Flow], bool]
"""Says whether a connection must go."""

_PAUSE_EVERY: Final = 500
"""Entries after which other tasks have their turn, some 10 ms: a busy node tracks hundreds of thousands."""


class ConntrackFollower(Generic[StatesT]):
    """Deletes what a judge names, in this process's network namespace.

    Args:
        family: ``ip`` or ``ip6``.
        judge: makes the judge of a change; None where no connection can be concerned.
    """

    def __init__(
        self,
        family: Family,
        judge: Callable[[StatesT, StatesT], Judge | None],
    ) -> None:
        self._family = socket.AF_INET if family == "ip" else socket.AF_INET6
        self._judge = judge

    async def follow(self, before: StatesT, after: StatesT) -> str:
        """Delete the connections that the change concerns; say how many.

        Raises:
            ApplyError: the kernel refused; some may have been deleted.
        """
        judge = self._judge(before, after)
        if judge is None:
            return ""
        count = 0
        try:
            # Two, since a socket that gives a list can be asked for nothing else until its end.
            with Connection(NETLINK_NETFILTER) as listing, Connection(NETLINK_NETFILTER) as deleting:
                for number, entry in enumerate(entries(listing, self._family)):
                    if judge(flow_of(entry)):
                        count += delete(deleting, entry)
                    if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                        await asyncio.sleep(0)
        except DumpInterruptedError as problem:
            raise ApplyError(f"connections cannot be listed: {problem}", "ReadInterrupted") from problem
        except OSError as problem:
            raise ApplyError(f"connections cannot be deleted: {problem.strerror}", "ConntrackRefused") from problem
        return f"{count} tracked connection{'' if count == 1 else 's'} deleted" if count else ""


def flow_of(entry: Entry) -> Flow:
    """Give an entry as a judge sees it."""
    return Flow(
        source=ip_address(entry.original.source),
        destination=ip_address(entry.original.destination),
        answerer=ip_address(entry.reply.source),
        seen_as=ip_address(entry.reply.destination),
        protocol=PROTOCOLS.get(entry.original.protocol, str(entry.original.protocol)),
        source_port=entry.original.source_port,
        destination_port=entry.original.destination_port,
    )
