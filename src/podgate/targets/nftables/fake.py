"""FakeNftables: the nftables target in memory.

Here: executing plans as the kernel does, failing and drifting on demand, and following packets through the rules.
Not here: what a rule's words mean to a packet (grammar.py, model/packet.py), or its code (registers.py).
Invariant: a plan is executed whole or not at all, and what the kernel would refuse is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from podgate.joints import ApplyError, Drifted, Key, Signal
from podgate.model.machine import Family
from podgate.model.packet import Accept, Drop, Locality, Packet, PacketChain, Trace, TraceStep, trace
from podgate.model.table import Table
from podgate.targets.nftables.diff import ElementChange, Plan, diff, references
from podgate.targets.nftables.elements import Data, Element, key_size, key_text
from podgate.targets.nftables.grammar import GrammarError, read_rule
from podgate.targets.nftables.listable import check_listable, widths_of
from podgate.targets.nftables.stages import MOST_ELEMENTS, Stage, in_one, stages
from podgate.targets.nftables.state import Chain, Rule, Set, State

T = TypeVar("T")

_POLICIES: Final[Mapping[str, Accept | Drop]] = {"accept": Accept(), "drop": Drop()}


class FakeNftables:
    """One table of one family, in memory.

    Args:
        family: ``ip`` or ``ip6``.
        table: the table's name.
        most: elements in one transaction, where rules are code.

    Attributes:
        state: what the table holds, with the text of rules.
        applied: the plans that were executed, in order.
        history: what the table held after each transaction, in order.
        reads: how often the table was read.
        refused: keys that are refused, ``(set, element)``, with the reason; their elements stay out.
    """

    def __init__(self, family: Family, table: str, most: int = MOST_ELEMENTS) -> None:
        self.most = most
        self.family: Family = family
        self.table = table
        self.state = State.absent(family, table)
        self.applied: list[Plan] = []
        self.history: list[State] = []
        self.reads = 0
        self.refused: dict[Key, str] = {}
        self._failures: dict[int, str] = {}
        self._attempts = 0
        self._signals: asyncio.Queue[Signal] = asyncio.Queue()

    def fail_apply(self, number: int, message: str = "the fake was told to fail") -> None:
        """Have the ``number``-th apply from now on fail without any change; 1 is the next one."""
        self._failures[self._attempts + number] = message

    def drift(self, change: Callable[[State], State], what: str = "the table was changed") -> None:
        """Change the table as another program would, and notify."""
        self.state = change(self.state)
        self._signals.put_nowait(Drifted(what))

    async def read(self) -> State:
        """Give the table as the kernel would: of rules only their marks."""
        self.reads += 1
        return as_read(self.state)

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan from one state to another."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Execute a plan; raises ApplyError when told to, or when the kernel would refuse it."""
        self._attempts += 1
        message = self._failures.pop(self._attempts, None)
        if message is not None:
            raise ApplyError(message)
        refused: dict[Key, str] = {}
        for stage in stages(plan, self.most) if plan.want.has_code else (in_one(plan),):
            self.state, left_out = _executed(self.state, stage, plan.want, self.refused)
            self.history.append(self.state)
            refused |= left_out
        self.applied.append(plan)
        return refused

    async def signals(self) -> AsyncIterator[Signal]:
        """Give what ``drift`` put in."""
        while True:
            yield await self._signals.get()

    def trace(
        self, packet: Packet, locality: Locality, hook: str = "postrouting", draws: Iterable[float] = ()
    ) -> Trace:
        """Follow a packet through the base chains of a hook, in the order of their priority.

        An accepted packet goes on to the next base chain; any other verdict is the last one. ``draws`` are what its
        rules of chance draw, in order.

        Raises:
            ValueError: no chain has this hook; or GrammarError, a rule holds a word that the fake does not know.
        """
        chains = {chain.name: _packet_chain(chain, self.state) for chain in self.state.chains}
        entered = sorted(
            (chain for chain in self.state.chains if chain.hook and chain.hook.hook == hook),
            key=lambda chain: chain.hook.priority if chain.hook else 0,
        )
        if self.state.dormant or not entered:
            raise ValueError(f"no chain of table {self.family} {self.table} is entered at {hook}")
        steps: list[TraceStep] = []
        luck = iter(draws)
        for chain in entered:
            found = trace(chains, chain.name, packet, locality, luck)
            steps += found.steps
            if not isinstance(found.verdict, Accept):
                return Trace(found.verdict, tuple(steps))
        return Trace(Accept(), tuple(steps))


def as_read(state: State) -> State:
    """Give a state as it looks when it is read back from the kernel: rules without text, nothing that is not kept."""
    chains = tuple(
        Chain(chain.name, tuple(Rule("", rule.mark) for rule in chain.rules), chain.hook) for chain in state.chains
    )
    dynamic = {declared.name for declared in state.sets if declared.is_dynamic}
    elements = {name: found for name, found in state.elements.items() if found and name not in dynamic}
    return State(
        state.family,
        state.name,
        present=state.present,
        dormant=state.dormant,
        chains=chains,
        sets=tuple(_as_read(declared) for declared in state.sets),
        elements=elements,
        others=state.others,
    )


def _as_read(declared: Set) -> Set:
    """Give a declaration with the flag that nft adds to one with a timeout."""
    if not declared.timeout or "timeout" in declared.flags:
        return declared
    return msgspec.structs.replace(declared, flags=tuple(sorted((*declared.flags, "timeout"))))


def _packet_chain(chain: Chain, state: State) -> PacketChain:
    policy = _POLICIES[chain.hook.policy] if chain.hook else None
    return PacketChain(tuple(read_rule(rule, state) for rule in chain.rules), policy)


class _Transaction:
    """A table while a plan is executed; thrown away when a step fails."""

    def __init__(self, state: State, refused: Mapping[Key, str]) -> None:
        self.chains = {chain.name: chain for chain in state.chains}
        self.sets = {declared.name: declared for declared in state.sets}
        self.elements = dict(state.elements)
        self.refused: dict[Key, str] = {}
        self._refusing = refused

    def flush(self, name: str) -> None:
        chain = self._existing(self.chains, name, "chain")
        self.chains[name] = Chain(name, (), chain.hook)

    def drop_set(self, declared: Set) -> None:
        self._existing(self.sets, declared.name, "set")
        self._unreferenced(declared.name)
        del self.sets[declared.name]
        self.elements.pop(declared.name, None)

    def drop_chain(self, name: str) -> None:
        if self._existing(self.chains, name, "chain").rules:
            raise ApplyError(f"chain {name} is deleted while it has rules")
        self._unreferenced(name)
        del self.chains[name]

    def declare(self, chain: Chain) -> None:
        rules = self.chains[chain.name].rules if chain.name in self.chains else ()
        self.chains[chain.name] = Chain(chain.name, rules, chain.hook)

    def new_set(self, declared: Set) -> None:
        if declared.name in self.sets:
            raise ApplyError(f"set {declared.name} exists already")
        self.sets[declared.name] = declared

    def change(self, name: str, change: ElementChange) -> None:
        declared = self._existing(self.sets, name, "set")
        have = self.elements.get(name, Table[Element, Data]())
        for key, _ in change.removed:
            if key not in have:
                raise ApplyError(f"element {_shown(declared, key)} is not in {name}")
        have = have.updated({}, removed=[key for key, _ in change.removed])
        added = {}
        for key, data in change.added:
            if (name, key) in self._refusing:
                self.refused[name, key] = self._refusing[name, key]
                continue
            if key in have:
                raise ApplyError(f"element {_shown(declared, key)} is in {name} already")
            added[key] = data
        self.elements[name] = have.updated(added)
        _check_elements(declared, self.elements[name])

    def fill(self, chain: Chain) -> None:
        have = self._existing(self.chains, chain.name, "chain")
        self.chains[chain.name] = Chain(chain.name, (*have.rules, *chain.rules), have.hook)

    def finished(self, want: State) -> State:
        """Give the state that came out, once every rule can be read."""
        state = State(
            want.family,
            want.name,
            comment=want.comment,
            last=want.last,
            chains=tuple(self.chains.values()),
            sets=tuple(self.sets.values()),
            elements={name: found for name, found in self.elements.items() if found},
        )
        for chain in state.chains:
            for rule in chain.rules:
                self._check_rule(chain, rule, state)
        return state

    def _check_rule(self, chain: Chain, rule: Rule, state: State) -> None:
        if rule.code:
            missing = references([rule]) - self.sets.keys() - self.chains.keys()
            if missing:
                raise ApplyError(f"chain {chain.name}: `{rule.text}` needs {min(missing)}, which is not there")
            check_listable(rule.code, widths_of(self.sets.values()))
        elif rule.text:
            try:
                read_rule(rule, state)
            except GrammarError as problem:
                raise ApplyError(f"chain {chain.name}: {problem}", "NftRejected") from problem

    def _unreferenced(self, name: str) -> None:
        for chain in self.chains.values():
            if name in references(chain.rules):
                raise ApplyError(f"{name} is deleted while a rule of chain {chain.name} uses it")
        for other, elements in self.elements.items():
            if any(isinstance(data, str) and data.endswith(f" {name}") for data in elements.values()):
                raise ApplyError(f"{name} is deleted while an element of {other} uses it")

    @staticmethod
    def _existing(where: dict[str, T], name: str, noun: str) -> T:
        if name not in where:
            raise ApplyError(f"{noun} {name} does not exist")
        return where[name]


def _executed(have: State, stage: Stage, want: State, refusing: Mapping[Key, str]) -> tuple[State, Mapping[Key, str]]:
    """Execute a transaction on the way to ``want``; gives the new state and what was refused."""
    if not stage:
        return have, {}
    if stage.table == "gone":
        return want, {}
    start = State(want.family, want.name) if stage.table == "anew" or not have.present else have
    table = _Transaction(start, refusing)
    for name in [*table.chains] if stage.table == "emptied" else stage.flushed:
        table.flush(name)
    for name, elements in stage.removed.items():
        table.change(name, ElementChange(removed=elements))
    for declared in stage.dropped_sets:
        table.drop_set(declared)
    for name in stage.dropped_chains:
        table.drop_chain(name)
    for chain in stage.declared:
        table.declare(chain)
    for declared in stage.new_sets:
        table.new_set(declared)
    for name, elements in stage.added.items():
        table.change(name, ElementChange(added=elements))
    for chain in stage.filled:
        table.fill(chain)
    return table.finished(want), table.refused


def _check_elements(declared: Set, elements: Table[Element, Data]) -> None:
    """Refuse what the kernel refuses: keys of the wrong size, and intervals that overlap."""
    size = key_size(declared.key) * (2 if declared.is_interval else 1)
    for key in elements:
        if key and len(key) != size:
            raise ApplyError(f"an element of {declared.name} has {len(key)} bytes instead of {size}")
    if declared.is_interval and len(declared.key) == 1:
        half = size // 2
        keys = sorted(key for key in elements if key)
        for key, following in pairwise(keys):
            if following[:half] <= key[half:]:
                pair = f"{_shown(declared, key)} and {_shown(declared, following)}"
                raise ApplyError(f"conflicting intervals in {declared.name}: {pair}")


def _shown(declared: Set, key: Element) -> str:
    return key_text(declared.key, key, is_interval=declared.is_interval)
