"""apply: deletes tracked connections: those that a change concerns, or those that must not be there at all.

Here: listing, asking the judge, deleting. Not here: the judgement.
Invariant: nothing is deleted before the new rules are in (a follower is called after the commit), and never an entry
that the judge did not name.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final, Generic, TypeVar

from podgate.joints import ApplyError
from podgate.linux.conntrack import Entry, delete, entries
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.linux.refusals import refused
from podgate.linux.rtnetlink import addresses
from podgate.model.machine import Family
from podgate.model.tally import tally
from podgate.targets.conntrack.state import PROTOCOLS, Barred, Flow

DELETING: Final = "deleting tracked connections"
"""What is done, in an error."""

_SHOWN: Final = 5
"""Connections that a log line names; the others are counted."""

StatesT = TypeVar("StatesT")

Judge = Callable[[Flow], bool]
"""Says whether a connection must go."""

_NUMBERS: Final[dict[Family, int]] = {"ip": socket.AF_INET, "ip6": socket.AF_INET6}
_PAUSE_EVERY: Final = 500
"""Entries after which other tasks have their turn, some 10 ms: a busy node tracks hundreds of thousands."""


class ConntrackFollower(Generic[StatesT]):
    """Deletes what a judge names, in this process's network namespace.

    Args:
        family: ``ip`` or ``ip6``.
        judge: makes the judge of a change; None where no connection can be concerned. Its last argument says whether
            others had changed the rules, so that connections may have begun without them.
    """

    from_start = False

    def __init__(
        self,
        family: Family,
        judge: Callable[[StatesT, StatesT, bool], Judge | None],
    ) -> None:
        self._family: Family = family
        self._judge = judge

    async def follow(self, before: StatesT | None, after: StatesT, found: object) -> str:
        """Delete the connections that the change concerns; say how many.

        Raises:
            ApplyError: the kernel refused; some may have been deleted.
        """
        judge = None if before is None else self._judge(before, after, found is not None)
        if judge is None:
            return ""
        with refused(DELETING, ApplyError):
            count = await delete_all(self._family, lambda entry: judge(flow_of(entry)))
        return f"{tally({'tracked connection': count})} deleted" if count else ""


class BarredFollower(Generic[StatesT]):
    """Deletes connections that must not go on, in this process's network namespace.

    It acts after each commit of its step, the first one and one that healed too: what was opened before the rules were
    in, or while they were not, is deleted.

    Args:
        barred: picks what must not go on out of the feature's states.
    """

    from_start = True

    def __init__(self, barred: Callable[[StatesT], Sequence[Barred]]) -> None:
        self._barred = barred

    async def follow(self, before: StatesT | None, after: StatesT, found: object) -> str:  # noqa: ARG002 - whatever was
        """Delete them; say which.

        Raises:
            ApplyError: the kernel refused; some may have been deleted.
        """
        barred, cut = self._barred(after), []
        if not barred:
            return ""
        with refused(DELETING, ApplyError):
            with Connection(socket.NETLINK_ROUTE) as asking:
                own = frozenset(each.address for each in addresses(asking))

            def must_go(entry: Entry) -> bool:
                flow = flow_of(entry)
                return any(each.bars(flow, own) for each in barred)

            for address in sorted({each.destination for each in barred}, key=str):
                family: Family = "ip" if address.version == 4 else "ip6"
                await delete_all(family, must_go, address.packed, lambda entry: cut.append(str(flow_of(entry))))
        return f"cut {_listed(cut)}" if cut else ""


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join([*words[:_SHOWN], *([f"{more} more"] if more > 0 else [])])


async def delete_all(
    family: Family,
    must_go: Callable[[Entry], bool],
    destination: bytes = b"",
    told: Callable[[Entry], object] = lambda _entry: None,
) -> int:
    """Delete the entries that must go; give how many were still there.

    Args:
        family: of the entries that are looked at.
        must_go: says it of one.
        destination: look at entries to this packed address alone, as far as the kernel can; empty for all.
        told: of each that was deleted.

    Raises:
        OSError: the kernel refused; some may have been deleted.
        DumpInterruptedError: not all entries may have been looked at.
    """
    count = 0
    # Two, since a socket that gives a list can be asked for nothing else until its end.
    with Connection(NETLINK_NETFILTER) as listing, Connection(NETLINK_NETFILTER) as deleting:
        for number, entry in enumerate(entries(listing, _NUMBERS[family], destination)):
            if must_go(entry) and delete(deleting, entry):
                count += 1
                told(entry)
            if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                await asyncio.sleep(0)
    return count


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
