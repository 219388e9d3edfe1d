"""apply: deletes tracked connections: those that a change concerns, or those that must not be there at all.

Here: listing, asking the judge or the plan, deleting. Not here: the judgement.
Invariant: never an entry is deleted that was not named. A follower is called after the commit; a step with a target
waits for the steps whose rules must be in first.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import Final, Generic, TypeVar

from podgate.joints import ApplyError, Key, Signal
from podgate.linux.conntrack import NETLINK_NETFILTER, Entry, delete, entries
from podgate.linux.netlink import Connection, DumpInterruptedError
from podgate.linux.rtnetlink import addresses
from podgate.model.machine import Family, IPAddress
from podgate.targets.conntrack.diff import Plan, diff
from podgate.targets.conntrack.state import PROTOCOLS, Flow, State

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

    from_start = False

    def __init__(
        self,
        family: Family,
        judge: Callable[[StatesT, StatesT], Judge | None],
    ) -> None:
        self._family = socket.AF_INET if family == "ip" else socket.AF_INET6
        self._judge = judge

    async def follow(self, before: StatesT | None, after: StatesT) -> str:
        """Delete the connections that the change concerns; say how many.

        Raises:
            ApplyError: the kernel refused; some may have been deleted.
        """
        judge = None if before is None else self._judge(before, after)
        if judge is None:
            return ""
        count = 0
        # Two, since a socket that gives a list can be asked for nothing else until its end.
        with _mapped(), Connection(NETLINK_NETFILTER) as listing, Connection(NETLINK_NETFILTER) as deleting:
            for number, entry in enumerate(entries(listing, self._family)):
                if judge(flow_of(entry)):
                    count += delete(deleting, entry)
                if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                    await asyncio.sleep(0)
        return f"{count} tracked connection{'' if count == 1 else 's'} deleted" if count else ""


class ConntrackTarget:
    """What is tracked to some addresses, and must not be, in this process's network namespace.

    It says nothing of what comes later: once no connection is barred, the rules see to it that none is made.

    Args:
        destinations: the addresses that are looked at.
    """

    def __init__(self, destinations: Collection[IPAddress]) -> None:
        self._destinations = tuple(sorted(destinations, key=str))

    async def read(self) -> State:
        """Give what is tracked to them, and this machine's addresses. Raises ApplyError."""
        flows = set()
        with _mapped(), Connection(socket.NETLINK_ROUTE) as asking:
            own = frozenset(each.address for each in addresses(asking))
        async for entry in self._entries():
            flows.add(flow_of(entry))
        return State(frozenset(flows), own)

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Delete what is named and still there. Raises ApplyError; some may have been deleted then."""
        named = frozenset(plan.cut)
        with _mapped(), Connection(NETLINK_NETFILTER) as deleting:
            async for entry in self._entries():
                if flow_of(entry) in named:
                    delete(deleting, entry)
        return {}

    async def signals(self) -> AsyncIterator[Signal]:
        """Wait for ever: what others track is their own."""
        await asyncio.get_running_loop().create_future()
        yield  # type: ignore[misc]  # pragma: no cover - what makes this a generator

    async def _entries(self) -> AsyncIterator[Entry]:
        for address in self._destinations:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            with _mapped(), Connection(NETLINK_NETFILTER) as listing:
                for number, entry in enumerate(entries(listing, family, address.packed)):
                    yield entry
                    if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                        await asyncio.sleep(0)


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except DumpInterruptedError as problem:
        raise ApplyError(f"connections cannot be listed: {problem}", "ReadInterrupted") from problem
    except OSError as problem:
        raise ApplyError(f"connections cannot be deleted: {problem.strerror}", "ConntrackRefused") from problem


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
