"""NftablesTarget: one nftables table of one family in the kernel.

Here: reading the table back, applying a plan, noticing what others change. Not here: what the table should hold; nft's
language (render.py); how nft is run (program.py); what goes into a transaction (stages.py, messages.py).
Invariant: a plan is one transaction, so the kernel holds either the state before or the state after, never a part;
unless rules are code: then what goes, and loads that are too large, have transactions of their own.
"""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from podgate.joints import ApplyError, Drifted, Key, Signal
from podgate.linux.netlink import Connection, NetlinkError
from podgate.linux.nftables import (
    FAMILIES,
    SET_DYNAMIC,
    SET_FLAGS,
    SET_INTERVAL,
    RuleInfo,
    SetInfo,
    find_table,
    generation,
    list_chains,
    list_others,
    list_rules,
    list_sets,
    wait_for_transactions,
)
from podgate.linux.nftables_batch import Batch, RefusedError
from podgate.linux.nftables_drift import Drift
from podgate.linux.nftables_elements import SetShape, list_elements
from podgate.linux.nftables_watch import WatchedTable, refused
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.diff import Plan, diff
from podgate.targets.nftables.elements import TYPES, key_size, key_text
from podgate.targets.nftables.messages import fill
from podgate.targets.nftables.program import load
from podgate.targets.nftables.render import render, replaced_sets, transaction
from podgate.targets.nftables.stages import Stage, in_one, stages
from podgate.targets.nftables.state import Chain, Hook, Rule, Set, State
from podgate.targets.nftables.written import Written

_READ_ATTEMPTS: Final = 10
_NOT_OURS: Final = "put there by somebody else: "
_NAMES: Final = {kind.number: kind.name for kind in TYPES.values()}
_LET_GO_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses before what went is tried again: Linux before 6.2 may hold a reference for a while after its transaction."""


class NftablesTarget:
    """One table of one family, in one network namespace.

    Args:
        family: ``ip`` or ``ip6``.
        table: the table's name, which must be ours alone.
        program: ``nft``, or the path of one.
        namespace: an open network namespace (``/proc/PID/ns/net``) to work in; None for this process's own.
        buffer_bytes: kernel memory for notifications that wait to be read; when it is full, all is read again.
        uncleaned: told when what no rule uses any more could not be taken away.
    """

    def __init__(
        self,
        family: Family,
        table: str,
        *,
        program: str = "nft",
        namespace: int | None = None,
        buffer_bytes: int = 4 << 20,
        uncleaned: Callable[[], None] = lambda: None,
    ) -> None:
        self.family: Family = family
        self.table = table
        self._number = int(FAMILIES[family])
        self._program = program
        self._namespace = namespace
        self._uncleaned = uncleaned
        self._written = Written()
        drift = Drift(self._number, table, rule_added=self._written.doubt)
        self._watch = WatchedTable[State](drift, namespace, buffer_bytes)

    def close(self) -> None:
        """Close the socket; the next call opens another."""
        self._watch.close()

    async def read(self) -> State:
        """Read the table back. Of rules only their marks are known, of a dynamic set no elements.

        Raises:
            ApplyError: the kernel refused, or others changed the ruleset during every attempt.
        """
        with refused(f"reading table {self.family} {self.table}", ApplyError):
            connection = self._watch.connection
            for _ in range(_READ_ATTEMPTS):
                before = generation(connection)
                wait_for_transactions(connection)
                found, rules, state = self._read_once(connection)
                wait_for_transactions(connection)
                if generation(connection) == before:
                    self._written.was_read(found, (rule.identity for chain in rules.values() for rule in chain))
                    self._watch.saw(before, state)
                    return state
        raise ApplyError(
            f"others changed the ruleset during each of {_READ_ATTEMPTS} attempts to read table {self.family} "
            f"{self.table}; it is read again later",
            "ReadInterrupted",
        )

    def _read_once(self, connection: Connection) -> tuple[int, Mapping[str, Sequence[RuleInfo]], State]:
        """Give the table's handle, its rules, and all of it as a state."""
        number, table = self._number, self.table
        found = find_table(connection, number, table)
        if found is None:
            return 0, {}, State.absent(self.family, table)
        rules = list_rules(connection, number, table)
        chains = tuple(
            Chain(
                chain.name,
                tuple(Rule("", self._mark(found.handle, chain.name, rule)) for rule in rules.get(chain.name, ())),
                Hook(*chain.hook) if chain.hook else None,
            )
            for chain in list_chains(connection, number, table)
        )
        sets = list_sets(connection, number, table)
        elements = {
            info.name: Table.of(list_elements(connection, number, table, info.name, _shape(info)))
            for info in sets
            if not info.flags & SET_DYNAMIC
        }
        state = State(
            self.family,
            table,
            dormant=found.dormant,
            chains=chains,
            sets=tuple(_declaration(info) for info in sets),
            elements={name: held for name, held in elements.items() if held},
            others=tuple(list_others(connection, number, table)),
        )
        return found.handle, rules, state

    def _mark(self, table: int, chain: str, rule: RuleInfo) -> str:
        """Give a rule's mark; of one that others put in the place of ours, one that no rule of ours has."""
        return rule.comment if self._written.has(table, chain, rule.identity) else f"{_NOT_OURS}{rule.comment}"

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan from one state to another."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Do it. The kernel refuses a transaction or takes it whole, so no single key is ever refused.

        A state whose rules are code goes to the kernel over netlink, in the transactions that stages.py gives. Any
        other is written in one transaction: elements alone over netlink, and if the kernel refuses them, the sets that
        change are filled anew by nft; anything else by nft, and if that refuses a change of parts, the whole table is
        replaced. Only then is it an error.

        Raises:
            ApplyError: what was refused changed nothing; the message says what it was and what may be missing.
        """
        if not plan:
            return {}
        with refused(f"writing table {self.family} {self.table}", ApplyError), self._watch.writing(plan.want) as before:
            if plan.want.has_code or not plan.want.present:
                await self._apply_code(plan, before)
            elif plan.is_structural:
                await self._apply_text(plan)
                self._note_rules(plan, before, 1)
            else:
                try:
                    self._apply_elements(plan)
                except NetlinkError as problem:
                    if problem.errno == errno.EPERM:
                        raise
                    await self._load(replaced_sets(plan))
        return {}

    async def _apply_text(self, plan: Plan) -> None:
        try:
            await self._load(transaction(plan))
        except ApplyError as problem:
            if plan.whole or problem.reason in ("NftMissing", "NotPermitted"):
                raise
            await self._load(render(plan.want))

    async def _apply_code(self, plan: Plan, before: int | None) -> None:
        """Write one stage after the other; others may work between them."""
        planned = stages(plan)
        try:
            for number, stage in enumerate(planned):
                if number:
                    await asyncio.sleep(0)
                await self._commit(plan, stage)
        except BaseException:
            self._written.forget()  # what earlier stages wrote is ours, and was not noted
            raise
        if plan.is_structural:
            self._note_rules(plan, before, len(planned))
        if len(planned) > 1 and generation(self._watch.connection) != (before or 0) + len(planned):
            self._watch.doubt()

    async def _commit(self, plan: Plan, stage: Stage) -> None:
        """Write one stage."""
        pauses = iter(_LET_GO_SECONDS if stage.only_drops else ())
        while True:
            batch = Batch(self._watch.connection, self._number)
            fill(batch, stage, plan.want)
            try:
                return batch.commit()
            except RefusedError as problem:
                pause = next(pauses, None) if problem.errno == errno.EBUSY else None
                if pause is None:
                    if stage.only_drops:
                        self._uncleaned()
                    raise _refused(problem, plan) from problem
                await asyncio.sleep(pause)

    def _note_rules(self, plan: Plan, before: int | None, transactions: int) -> None:
        """Remember the rules that were just written, unless somebody else's transaction came between."""
        connection = self._watch.connection
        table = find_table(connection, self._number, self.table)
        rules = list_rules(connection, self._number, self.table) if table else {}
        filled = None if plan.whole else {*plan.flushed, *(chain.name for chain in plan.filled)}
        identities = {chain: [rule.identity for rule in found] for chain, found in rules.items()}
        self._written.was_filled(table.handle if table else 0, identities, filled)
        if generation(connection) != (before or 0) + transactions:
            self._written.forget()

    def _apply_elements(self, plan: Plan) -> None:
        batch = Batch(self._watch.connection, self._number)
        fill(batch, in_one(plan), plan.want)
        batch.commit()

    async def _load(self, text: str) -> None:
        with self._watch.running() as started:
            await load(self._program, text, self._namespace, started)

    async def signals(self) -> AsyncIterator[Signal]:
        """Tell when others change the table: one Drifted for all that the kernel had to report at once.

        What was changed between the last read and the start of the watch is told at once, in case it was ours.
        """
        watched = self._watch.changes(self.read, lambda have, held: bool(diff(have, held)))
        with refused(f"watching table {self.family} {self.table}", ApplyError):
            async with contextlib.aclosing(watched) as changes:
                async for what in changes:
                    yield Drifted(what)


def _refused(problem: RefusedError, plan: Plan) -> ApplyError | RefusedError:
    """Say which part of a table the kernel refused."""
    if problem.errno == errno.EPERM:
        return problem
    what = problem.what or "the transaction as a whole: its rules call each other in a circle, or where they may not"
    declared = next((each for each in (*plan.want.sets, *plan.have.sets) if each.name == what), None)
    if declared is not None:
        what = f"elements of {'map' if declared.data else 'set'} {what}{_shown(declared, problem.element)}"
    code = errno.errorcode.get(problem.errno or 0, problem.errno)
    message = (
        f"writing table {plan.want.family} {plan.want.name} failed ({code}: {problem.strerror}): "
        f"the kernel refused {what}"
    )
    if problem.errno == errno.ENOENT and declared is None:
        hint = "if all that it names is there, the kernel lacks a feature that it needs (CONFIG_NFT_FIB, _NAT, _MASQ …)"
        return ApplyError(f"{message}; {hint}", "KernelLacksFeature")
    return ApplyError(message, "KernelRefused")


def _shown(declared: Set, key: bytes | None) -> str:
    """Show the key of a refused element, of an interval one bound."""
    if not key:
        return ""
    size = key_size(declared.key)
    if len(key) == size:
        return f", {key_text(declared.key, key, is_interval=False)}"
    if len(key) == 2 * size:
        return f", {key_text(declared.key, key, is_interval=True)}"
    return f", one of {len(key)} bytes instead of {size}"


def _shape(info: SetInfo) -> SetShape:
    return SetShape(info.key_bytes, bool(info.flags & SET_INTERVAL), len(info.types) > 1, info.data_bytes)


def _declaration(info: SetInfo) -> Set:
    flags = [name for name, bit in SET_FLAGS.items() if info.flags & bit]
    if info.auto_merge:
        flags.append("auto-merge")
    data = ("verdict",) if info.data_is_verdict else tuple(_type_name(number) for number in info.data_types)
    return Set(
        name=info.name,
        key=tuple(_type_name(number) for number in info.types),
        flags=tuple(sorted(flags)),
        data=data,
        timeout=info.timeout // 1000,
        size=info.size,
        comment=info.comment,
    )


def _type_name(number: int) -> str:
    return _NAMES.get(number, f"type-{number}")
