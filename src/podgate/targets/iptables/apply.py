"""IptablesTarget: what is ours in one table of one family, by one of the two iptables programs.

Here: reading back, applying a plan, noticing what others change. Not here: what the chains should hold; the language of
iptables-restore (render.py); how it is run (program.py).
Invariant: a plan takes effect in one transaction, so packets meet either the state before or the state after, never a
part; a table that nobody uses is not even listed, since listing an old table makes it.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from podgate.joints import ApplyError, Drifted, Key, Signal
from podgate.linux.iptables import legacy_tables
from podgate.linux.netlink import NetlinkError
from podgate.linux.nftables import (
    FAMILIES,
    Event,
    find_table,
    list_chains,
    rules_hold,
)
from podgate.linux.nftables_drift import Drift
from podgate.linux.nftables_watch import NO_NF_TABLES, WatchedTable, refused
from podgate.linux.waiting import for_ever
from podgate.model.machine import Family
from podgate.targets.iptables.diff import Plan, diff
from podgate.targets.iptables.listing import NO_NAMES, ListingError, read_listing
from podgate.targets.iptables.program import LOCK_SECONDS, SECONDS, Iptables
from podgate.targets.iptables.render import transaction
from podgate.targets.iptables.stages import stages
from podgate.targets.iptables.state import BUILT_IN, Binary, Names, State, TableName, program


class IptablesTarget:
    """One table of one family and program, in one network namespace.

    Args:
        family: ``ip`` or ``ip6``.
        binary: ``nft`` for iptables-nft, ``legacy`` for iptables-legacy.
        owners: how the comments begin by which rules are ours, or of the program that we replace.
        table: which table.
        recorded: chains that an earlier run wrote, ours whatever they hold now.
        clears: nothing will be wanted here. Then a table of nf_tables without a trace of ours reads as one with
            nothing in it, and iptables is not run for it: it may be missing on a node whose programs use nft alone,
            and it cannot show what those write.
        names: chains that are ours by their names.
        tells: whether what others change is told (``signals``). Where nothing is wanted, nothing is ours to be changed.
        namespace: an open network namespace to work in; None for this process's own.
        lock_seconds: how long iptables waits for its lock before the apply fails.
        seconds: how long one of its programs may take.
        buffer_bytes: kernel memory for notifications that wait to be read; when it is full, all is read again.
        wrote: told of how many rules each apply wrote.
    """

    def __init__(
        self,
        family: Family,
        binary: Binary,
        owners: tuple[str, ...],
        *,
        table: TableName = "nat",
        recorded: frozenset[str] = frozenset(),
        clears: bool = False,
        names: Names = NO_NAMES,
        tells: bool = True,
        namespace: int | None = None,
        lock_seconds: int = LOCK_SECONDS,
        seconds: float = SECONDS,
        buffer_bytes: int = 4 << 20,
        wrote: Callable[[int], None] = lambda _rules: None,
    ) -> None:
        self.family: Family = family
        self.binary: Binary = binary
        self.table: TableName = table
        self._name = f"table {table} of {program(family, binary)}"
        self._owners = owners
        self._recorded = recorded
        self._clears = clears
        self._names = names
        self._tells = tells and binary == "nft"
        self._wrote = wrote
        self._iptables = Iptables(family, binary, namespace, lock_seconds, seconds)
        self._known: frozenset[str] = frozenset()
        self._watched: frozenset[str] = frozenset(BUILT_IN)
        self._watch = WatchedTable[State](Drift(int(FAMILIES[family]), table, self._concerns), namespace, buffer_bytes)

    def close(self) -> None:
        """Close the socket; the next call opens another."""
        self._watch.close()

    async def read(self) -> State:
        """Read the table back, other programs' chains as text only.

        Raises:
            ApplyError: iptables failed or is missing while the table is in use, or cannot show what the table holds.
        """
        before = self._generation()
        if not self._is_in_use() or (self._clears and not self._has_traces()):
            state = State(self.family, self.binary, table=self.table)
        else:
            try:
                text = await self._iptables.save(self.table)
                state = read_listing(text, self.family, self.binary, self._owners, self.table, names=self._names)
            except ListingError as problem:
                raise ApplyError(f"{program(self.family, self.binary)}: {problem}", "TableUnreadable") from problem
        self._watch.saw(before, msgspec.structs.replace(state, others={}, strange={}))
        state = msgspec.structs.replace(state, recorded=self._known)
        self._know(self._known | {chain.name for chain in state.chains})
        return state

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan from one state to another."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Do it in one transaction. The kernel takes all or nothing, so no single key is ever refused.

        With iptables-nft new chains of a large plan are written before, in transactions of their own (stages.py).

        Raises:
            ApplyError: nothing that is in force was changed: a chain is not ours (reason ``ForeignChain``), another
                program holds the lock (``LockHeld``), or a line was refused.
        """
        if plan.refusal:
            raise ApplyError(plan.refusal, "ForeignChain")
        if plan:
            await self._restore(plan)
        self._know(frozenset(chain.name for chain in plan.want.chains))
        self._wrote(plan.rules_written)
        return {}

    def _know(self, chains: frozenset[str]) -> None:
        """Note which chains are ours; those that are by their names are watched anyway, also after they have gone."""
        self._known = chains
        if not self._names:
            self._watched |= chains

    async def _restore(self, plan: Plan) -> None:
        if self.binary == "legacy":
            await self._iptables.restore(transaction(plan))
            return
        with refused(f"writing {self._name}", ApplyError), self._watch.writing(plan.want):
            for stage in stages(plan):
                with self._watch.running() as started:
                    await self._iptables.restore(transaction(stage), started)

    async def signals(self) -> AsyncIterator[Signal]:
        """Tell when others change our chains or the built-in ones; other programs' own chains do not matter.

        The kernel tells nobody of changes by iptables-legacy: they are found by reading again (``Step.resync``).
        """
        if not self._tells:
            await for_ever()
        watched = self._watch.changes(self.read, lambda have, held: bool(diff(have, held)))
        with refused(f"watching {self._name}", ApplyError):
            async with contextlib.aclosing(watched) as changes:
                async for what in changes:
                    yield Drifted(what)

    def _concerns(self, event: Event) -> bool:
        return event.noun not in ("rule", "chain") or event.name in self._watched or event.name in self._names

    def _is_in_use(self) -> bool:
        """Whether anybody has made the table; asking for it with iptables-legacy would make it."""
        with refused(f"reading {self._name}", ApplyError):
            if self.binary == "legacy":
                with self._watch.inside():
                    return self.table in legacy_tables(self.family)
            try:
                return find_table(self._watch.connection, int(FAMILIES[self.family]), self.table) is not None
            except NetlinkError as problem:
                if problem.errno in NO_NF_TABLES:
                    return False
                raise

    def _has_traces(self) -> bool:
        """Whether something in the table may be ours; of the old tables only iptables-legacy itself can tell."""
        if self.binary == "legacy":
            return True
        family, texts = int(FAMILIES[self.family]), [owner.encode() for owner in self._owners]
        with refused(f"reading {self._name}", ApplyError):
            chains = {chain.name for chain in list_chains(self._watch.connection, family, self.table)}
            if not chains.isdisjoint(self._recorded | self._known) or any(name in self._names for name in chains):
                return True
            return rules_hold(self._watch.connection, family, self.table, texts)

    def _generation(self) -> int | None:
        """Give the number of the last transaction of nf_tables; None where it cannot be had or does not count."""
        if self.binary == "legacy":
            return None
        with refused(f"reading {self._name}", ApplyError):
            return self._watch.generation()
