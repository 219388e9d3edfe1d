"""flows: follows the first packet of a flow through the tables of iptables, and tells all that may come of it.

Here: the way of a packet through tables and built-in chains, marks, translation, every draw of chance. Not here: a
trace of one table with its rules (fake.py, model/packet.py). Pure.
Invariant: a match or target whose meaning is not known is a ValueError, never a guess.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Final, Literal

import msgspec

from podgate.model.packet import Chance, Fate, Locality, Outcome, Packet, matches
from podgate.targets.iptables.state import (
    Accept,
    Drop,
    Jump,
    Masquerade,
    Match,
    OtherMatch,
    OtherTarget,
    Return,
    Rule,
    RuleTarget,
    TableName,
)

EntryChain = Literal["PREROUTING", "OUTPUT"]
Tables = Mapping[TableName, Mapping[str, tuple[Rule, ...]]]
"""The rules of each chain of each table."""

_JUMPS: Final = 16
_MARK: Final = re.compile(r"-m mark (! )?--mark (0x[0-9a-f]+)/(0x[0-9a-f]+)")
_STATE: Final = re.compile(r"-m conntrack (! )?--ctstate ([A-Z,]+)")
_ASKED_FOR: Final = re.compile(r"-m conntrack (! )?--ctorigdst (\S+)")
_RECENT: Final = re.compile(r"-m recent --(set|rcheck) .*--name \S+ .*--rsource")
_SET_MARK: Final = re.compile(r"--set-xmark (0x[0-9a-f]+)/(0x[0-9a-f]+)")
_DESTINATION: Final = re.compile(r"--to-destination \[?([0-9a-f.:]+?)\]?:(\d+)")


def flow(tables: Tables, packet: Packet, locality: Locality, entry: EntryChain = "PREROUTING") -> frozenset[Outcome]:
    """Give all that may come of the first packet of a flow, whose sender no rule has seen before.

    Raises:
        ValueError: a rule on its way has a match or target whose meaning is not known, or chains call each other in a
            loop.
    """
    outcomes: set[Outcome] = set()
    waiting: list[tuple[bool, ...]] = [()]
    while waiting:
        draws = waiting.pop()
        walk = _Walk(tables, packet, locality, draws)
        try:
            outcomes.add(walk.through(entry))
        except _Fork:
            waiting += [(*draws, True), (*draws, False)]
    return frozenset(outcomes)


class _Fork(Exception):  # noqa: N818 - no error: the packet's way parts here
    """A draw of chance was met."""


class _Walk:
    """One packet, with one sequence of draws."""

    def __init__(self, tables: Tables, packet: Packet, locality: Locality, draws: tuple[bool, ...]) -> None:
        self._tables = tables
        self._packet, self._asked_for = packet, packet.destination
        self._locality = locality
        self._draws = iter(draws)
        self._mark = 0
        self._is_translated = False
        self._is_masqueraded = False

    def through(self, entry: EntryChain) -> Outcome:
        """Give what comes of the packet."""
        for table, chain in self._way(entry):
            verdict = self._chain(table, chain, 0)
            if verdict in ("drop", "reject"):
                return Outcome(verdict, mark=self._mark)
        endpoint = (self._packet.destination, self._packet.dport) if self._is_translated else None
        return Outcome("accept", endpoint, self._is_masqueraded, self._mark)

    def _way(self, entry: EntryChain) -> Iterator[tuple[TableName, str]]:
        yield "mangle", entry
        yield "nat", entry
        is_local = self._locality.type_of(self._packet.destination) == "local"
        if entry == "OUTPUT":
            yield "filter", "OUTPUT"
            yield "nat", "POSTROUTING"
            if is_local:
                yield "filter", "INPUT"
        elif is_local:
            yield "filter", "INPUT"
        else:
            yield "filter", "FORWARD"
            yield "nat", "POSTROUTING"

    def _chain(self, table: TableName, name: str, depth: int) -> Fate | None:
        """Give the verdict of a chain, or None when the packet comes back from it."""
        if depth > _JUMPS:
            raise ValueError(f"chains call each other more than {_JUMPS} deep, last {name}: is there a loop?")
        for rule in self._tables.get(table, {}).get(name, ()):
            if not all(self._holds(match) for match in rule.matches):
                continue
            if isinstance(rule.target, Return):
                return None
            if isinstance(rule.target, Jump):
                verdict = self._chain(table, rule.target.chain, depth + 1)
                if verdict is not None or not rule.target.comes_back:
                    return verdict
            elif (verdict := self._done(rule.target)) is not None:
                return verdict
        return None

    def _holds(self, match: Match) -> bool:
        if isinstance(match, Chance):
            drawn = next(self._draws, None)
            if drawn is None:
                raise _Fork
            return drawn
        if isinstance(match, OtherMatch):
            return self._other(match.text)
        return matches(match, self._packet, self._locality)

    def _other(self, text: str) -> bool:
        if found := _MARK.fullmatch(text):
            return (self._mark & int(found[3], 16) == int(found[2], 16)) != bool(found[1])
        if found := _STATE.fullmatch(text):
            states = {"NEW", "DNAT"} if self._is_translated else {"NEW"}
            return (not states.isdisjoint(found[2].split(","))) != bool(found[1])
        if found := _ASKED_FOR.fullmatch(text):
            return (self._asked_for in ip_network(found[2])) != bool(found[1])
        if found := _RECENT.fullmatch(text):
            return found[1] == "set"
        raise ValueError(f"nobody knows here which packets match `{text}`")

    def _done(self, target: RuleTarget | None) -> Fate | None:
        match target:
            case None:
                return None
            case Accept():
                return "accept"
            case Drop():
                return "drop"
            case Masquerade():
                self._is_masqueraded = True
                return "accept"
            case OtherTarget("REJECT"):
                return "reject"
            case OtherTarget("MARK", options) if found := _SET_MARK.fullmatch(options):
                self._mark = self._mark & ~int(found[2], 16) ^ int(found[1], 16)
                return None
            case OtherTarget("DNAT", options) if found := _DESTINATION.fullmatch(options):
                self._is_translated = True
                self._packet = msgspec.structs.replace(
                    self._packet, destination=ip_address(found[1]), dport=int(found[2])
                )
                return "accept"
            case _:
                raise ValueError(f"nobody knows here what {target} does to a packet")
