"""to_nftables: the masquerade intent as one nftables table per family.

Here: the rules, their order and their comments. Not here: what is kept and why (compile.py), how it is written.
Invariant: a packet meets the rules in the order of the intent (never-list, own Pods, policies, configured list, the
fallback), and only set elements change when the configured list or the Pods do.

A policy has a set of sources ``from-NAME`` and a set of destinations ``to-NAME``, where it names any, one rule that
looks into both, and a chain ``policy-NAME`` where its translation takes more than one rule.
"""

import hashlib
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from podgate.features.masquerade.intent import STAND_IN, FamilyIntent, Intent, PolicyIntent, Spans, Translation
from podgate.features.masquerade.ports import PortRange
from podgate.features.masquerade.prefixes import Span
from podgate.model.machine import Family, IPAddress
from podgate.model.table import Table, changes
from podgate.targets.nftables.state import (
    MEMBER,
    SRCNAT,
    Chain,
    Data,
    Element,
    Hook,
    Rule,
    Set,
    State,
    address,
    address_interval,
)

TABLE: Final = "podgate-masquerade"
KEEP: Final = "keep"
OWN_PODS: Final = "own-pods"
LISTED: Final = "destinations that see the Pod's own address"
"""The comment of the set ``keep``; it is STAND_IN when nobody wrote what that holds."""

_LEGEND: Final = "made by podgate masquerade; remove it with: podgate masquerade clean"
_ADDRESS: Final[dict[Family, str]] = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
_NAME_ROOM: Final = 200
"""Bytes of a policy's name that fit into a name of the kernel (NFT_NAME_MAXLEN is 256) with all that is added."""


class Writer:
    """Writes the state of one family; remembers the elements that it made last (see ``Table``)."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        self._sets: dict[str, _Elements] = {}

    def __call__(self, intent: Intent) -> State:
        """Give the state; a family that is off has no table."""
        part = intent.of(self._family)
        if part is None:
            self._sets = {}
            return State.absent(self._family, TABLE)
        wanted = tuple(self._wanted(part, STAND_IN if intent.stands_in else LISTED))
        known = self._sets
        self._sets = {declared.name: known.get(declared.name) or _Elements(self._family) for declared, _ in wanted}
        chains = tuple(_chains(part, random_fully=intent.random_fully))
        return State(
            family=self._family,
            name=TABLE,
            comment=_LEGEND,
            sets=tuple(declared for declared, _ in wanted),
            chains=chains,
            elements={declared.name: self._sets[declared.name](declared, spans) for declared, spans in wanted},
        )

    def _wanted(self, part: FamilyIntent, listed: str) -> Iterator[tuple[Set, Spans]]:
        yield self._set(OWN_PODS, "Pods of this node: they see who their clients are"), part.own_pods
        for policy in part.policies:
            if policy.sources is not None:
                what = f"sources of {policy.ref}"
                single = policy.pods is not None
                yield self._set(from_name(policy), what, single=single), policy.sources
            if policy.destinations is not None:
                yield self._set(to_name(policy), f"destinations of {policy.ref}"), policy.destinations
        yield self._set(KEEP, listed), part.keep

    def _set(self, name: str, comment: str, *, single: bool = False) -> Set:
        return Set(name, key=(_ADDRESS[self._family],), flags=() if single else ("interval",), comment=comment)


class _Elements:
    """The elements of one set; only spans that differ are made into elements again."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        self._is_interval: bool | None = None
        self._spans = Spans()
        self._table: Table[Element, Data] = Table()

    def __call__(self, declared: Set, spans: Spans) -> Table[Element, Data]:
        if declared.is_interval != self._is_interval:
            self._is_interval, self._spans, self._table = declared.is_interval, Spans(), Table()
        element = self._interval if declared.is_interval else self._single
        added: dict[Element, Data] = {}
        removed: list[Element] = []
        for change in changes(self._spans, spans):
            if change.new is None:
                removed.append(element(change.key))
            else:
                added[element(change.key)] = MEMBER
        self._spans, self._table = spans, self._table.updated(added, removed)
        return self._table

    def _interval(self, span: Span) -> Element:
        return address_interval(self._family, span.first, span.last)

    def _single(self, span: Span) -> Element:
        make: Callable[[int], IPAddress] = IPv4Address if self._family == "ip" else IPv6Address
        return address(make(span.first))


def in_kernel(name: str) -> str:
    """Give a policy's name as part of a name in the kernel: itself, or a beginning of it with a digest."""
    if len(name) <= _NAME_ROOM:
        return name
    return f"{name[:_NAME_ROOM]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def from_name(policy: PolicyIntent) -> str:
    """Name the set of a policy's sources."""
    return f"from-{in_kernel(policy.ref.name)}"


def to_name(policy: PolicyIntent) -> str:
    """Name the set of a policy's destinations."""
    return f"to-{in_kernel(policy.ref.name)}"


def chain_name(policy: PolicyIntent) -> str:
    """Name the chain of a policy whose translation takes several rules."""
    return f"policy-{in_kernel(policy.ref.name)}"


def _chains(part: FamilyIntent, *, random_fully: bool) -> Iterator[Chain]:
    rules = [*_never(part)]
    for policy in part.policies:
        translating = _translating(part.family, policy.translation, random_fully=random_fully)
        verdict = f"goto {chain_name(policy)}" if len(translating) > 1 else translating[0][0]
        why = f"{policy.ref}, priority {policy.priority}: {policy.translation.summary}"
        rules += [Rule(f"{match}{verdict}", why) for match in _matching(part.family, policy)]
        if len(translating) > 1:
            yield Chain(chain_name(policy), tuple(Rule(text, comment) for text, comment in translating))
    rules.append(Rule(f"{part.family} daddr @{KEEP} return", "these destinations see the Pod's own address"))
    last = _translating(part.family, part.fallback, random_fully=random_fully)
    if part.fallback.action == "keep":
        rules.append(Rule("return", f"{part.fallback_rule}, so that nothing else is masqueraded"))
    else:
        rules += [Rule(text, f"everything else sees the node's address{more}") for text, more in _commented(last)]
    yield Chain("postrouting", tuple(rules), Hook("nat", "postrouting", SRCNAT))


def _never(part: FamilyIntent) -> Iterator[Rule]:
    yield Rule(
        f"fib saddr type {_one_or_set(part.never.source_types)} return", "the node's own sockets keep their address"
    )
    yield Rule(
        f"fib daddr type {_one_or_set(part.never.destination_types)} return",
        "the node itself, broadcast and multicast are never masqueraded",
    )
    yield Rule(f"{part.family} daddr @{OWN_PODS} return", "this node's Pods see who their clients are")


def _matching(family: Family, policy: PolicyIntent) -> Iterator[str]:
    """Give the matches of a policy, once for all interfaces with a plain name and once for each pattern."""
    addresses = f"{family} saddr @{from_name(policy)} " if policy.sources is not None else ""
    addresses += f"{family} daddr @{to_name(policy)} " if policy.destinations is not None else ""
    plain = [f'"{name}"' for name in policy.interfaces if not name.endswith("*")]
    patterns = [f'"{name}"' for name in policy.interfaces if name.endswith("*")]
    if not policy.interfaces:
        yield addresses
    if plain:
        yield f"{addresses}oifname {_one_or_set(plain)} "
    for pattern in patterns:
        # A pattern inside a set needs nft 1.0.3 or newer.
        yield f"{addresses}oifname {pattern} "


def _translating(family: Family, translation: Translation, *, random_fully: bool) -> list[tuple[str, str]]:
    """Give the rules that translate, each with its comment; a packet that comes here takes exactly one of them."""
    if translation.action == "keep":
        return [("return", "the Pod's own address")]
    flag = " fully-random" if random_fully else ""
    found: list[tuple[str, str]] = []
    left = sum(each.size for each in translation.ports)
    for each in translation.ports:
        # A range is chosen as often as it has ports: by its share of those that are left.
        chance = f"numgen random mod {left} < {each.size} " if left > each.size else ""
        share = f" in {each.size} of {left} cases" if chance else ""
        text = f"meta l4proto {{ tcp, udp, sctp }} {chance}{_verdict(family, translation, each)}{flag}"
        found.append((text, f"source ports {each}{share}"))
        left -= each.size
    last = "other protocols have no ports" if translation.ports else ""
    return [*found, (_verdict(family, translation, None) + flag, last)]


def _commented(rules: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for text, comment in rules:
        yield text, f"; {comment}" if comment else ""


def _verdict(family: Family, translation: Translation, ports: PortRange | None) -> str:
    if translation.action == "snat":
        if ports is None:
            return f"snat to {translation.address}"
        given = f"[{translation.address}]" if family == "ip6" else f"{translation.address}"
        return f"snat to {given}:{ports}"
    return "masquerade" if ports is None else f"masquerade to :{ports}"


def _one_or_set(words: tuple[str, ...] | list[str]) -> str:
    return words[0] if len(words) == 1 else "{ " + ", ".join(words) + " }"
