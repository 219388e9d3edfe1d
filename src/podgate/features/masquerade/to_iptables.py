"""to_iptables: the masquerade intent as chains of the table nat, for iptables-nft and iptables-legacy alike.

Here: the rules, their order and their comments, in two styles: ``agent``, which is ip-masq-agent's text byte for byte,
and ``podgate``, which puts the never-list, the node's own Pods and the policies before those lines; whose rules are
taken over. Not here: what is kept and why (compile.py), how it is written (targets/iptables).
Invariant: a packet meets the rules in the order of the intent, as in to_nftables.py, and gets the same verdict there
(tests compare); chains call each other three deep at most, since nf_tables counts gotos too.

Keeping is RETURN from the one chain that POSTROUTING jumps to, so a policy that keeps has its rules in that chain, one
for each pair of source and destination. A policy that translates has a chain of its own behind its sources.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, Literal

import msgspec

from podgate.features.masquerade.config import LINK_LOCAL
from podgate.features.masquerade.intent import STAND_IN, FamilyIntent, Intent, PolicyIntent, Spans, Translation
from podgate.features.masquerade.prefixes import Entry, Span, family_of, networks_of
from podgate.model.machine import Family, IPNetwork
from podgate.model.packet import (
    AddressIn,
    AddressTypeIn,
    Chance,
    Field,
    InterfaceIn,
    Jump,
    Masquerade,
    ProtocolIn,
    Return,
    Snat,
    network_range,
)
from podgate.model.problems import Problem
from podgate.targets.iptables.state import Binary, BuiltinRule, Chain, Match, Rule, State
from podgate.targets.iptables.words import knows_random_fully, rule_words

Style = Literal["agent", "podgate"]

CHAIN: Final = "IP-MASQ-AGENT"
"""The chain of ip-masq-agent unless --masq-chain names another."""

OWN: Final = "podgate: masquerade: "
AGENT: Final = "ip-masq-agent: "
BOOT: Final = "ip-masq: "
OWNERS: Final = (OWN, AGENT, BOOT)
"""How comments begin on rules that are ours, ip-masq-agent's (Azure's too) or of GKE's boot script: all taken over."""

KEPT_CHAINS: Final = "chains.json"
"""The name under which the chains that we wrote are kept for the next run."""

MOST_PAIRS: Final = 4_096
"""How many rules a policy that keeps may need: a packet meets them one after the other."""

_LOCAL: Final = AGENT + "local traffic is not subject to MASQUERADE"
_STAND_IN: Final = OWN + STAND_IN
_OUTBOUND: Final = AGENT + "outbound traffic is subject to MASQUERADE (must be last in chain)"
_PROTOCOLS: Final = ("tcp", "udp", "sctp")


def jump_to(chain: str) -> BuiltinRule:
    """Give the rule in POSTROUTING that leads to our chain, as ip-masq-agent 2.12.2 and newer write it."""
    comment = f"{AGENT}ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom {chain} chain"
    not_local = AddressTypeIn("daddr", frozenset(("local",)), negated=True)
    return BuiltinRule("POSTROUTING", Rule(Jump(chain), (not_local,), comment))


def record_chains(states: Iterable[State]) -> bytes:
    """Give the bytes to keep, so that the next run knows the chains of this one whatever they hold then."""
    return msgspec.json.encode(sorted({chain.name for state in states for chain in state.chains}))


def recorded_chains(kept: bytes | None) -> frozenset[str]:
    """Read what ``record_chains`` wrote; nothing, or what is not ours, records nothing."""
    try:
        return frozenset(msgspec.json.decode(kept or b"[]", type=list[str]))
    except msgspec.DecodeError:
        return frozenset()


def kept_spans(state: State, chain: str = CHAIN) -> list[Span] | None:
    """Give what a chain keeps by its rules of the configured list; None where there is no such chain.

    For a start with a bad file where nothing could be kept on disk. The rules may be ip-masq-agent's own.
    """
    rules = next((each.rules for each in state.chains if each.name == chain), None)
    if rules is None:
        return None
    whole = Span(0, (1 << (32 if state.family == "ip" else 128)) - 1)
    return [
        next((Span(*match.ranges[0]) for match in rule.matches if isinstance(match, AddressIn)), whole)
        for rule in rules
        if rule.comment == _LOCAL and isinstance(rule.target, Return)
    ]


def refusals(part: FamilyIntent) -> tuple[Problem, ...]:
    """Give the policies that iptables cannot express; whoever compiles leaves them out of the intent."""
    return tuple(
        Problem(policy.ref, "error", "NotInIptables", field, message)
        for policy in part.policies
        for field, message in _obstacles(policy, part.family)
    )


def _obstacles(policy: PolicyIntent, family: Family) -> Iterator[tuple[str, str]]:
    for index, name in enumerate(policy.interfaces):
        if name.endswith("+"):
            message = f"iptables takes {name} for every interface that begins with {name[:-1]}: use --backend nftables"
            yield f"spec.outputInterfaces[{index}]", message
    if policy.translation.action == "keep":
        parts = (_count(policy.sources, family), _count(policy.destinations, family), len(policy.interfaces) or 1)
        pairs = parts[0] * parts[1] * parts[2]
        if pairs > MOST_PAIRS:
            message = f"needs {pairs} rules in iptables, more than {MOST_PAIRS}: use --backend nftables, or fewer CIDRs"
            yield "spec", message


class Writer:
    """Writes the state of one family for one program; remembers the rules of the configured list.

    Args:
        family: ``ip`` or ``ip6``.
        binary: which of the two programs.
        chain: the chain's name.
        style: ``podgate``, or ``agent`` for ip-masq-agent's rules and no others.
    """

    def __init__(self, family: Family, binary: Binary, chain: str = CHAIN, style: Style = "podgate") -> None:
        self._family: Family = family
        self._binary: Binary = binary
        self._chain = chain
        self._style = style
        self._listed: dict[IPNetwork, Rule] = {}

    def __call__(self, intent: Intent, *, version: str = "") -> State:
        """Give the state; a family that is off has nothing.

        Args:
            intent: what is wanted, without the policies that iptables cannot express (``refusals``).
            version: of iptables, as ``1.8.9``; empty when it is not known.
        """
        part = intent.of(self._family)
        if part is None:
            return State(self._family, self._binary)
        random_fully = intent.random_fully and knows_random_fully(version)
        if self._style == "agent":
            chains = [Chain(self._chain, self._agent(intent, random_fully=random_fully))]
        else:
            chains = self._podgate(intent, part, random_fully=random_fully)
        return State(self._family, self._binary, tuple(chains), (jump_to(self._chain),))

    def _agent(self, intent: Intent, *, random_fully: bool) -> tuple[Rule, ...]:
        link_local = intent.config.link_local(self._family)
        entries = (*(() if link_local is None else (link_local,)), *intent.config.entries)
        networks = tuple(each.network for each in entries if family_of(each.network) == self._family)
        # One option for both families; a family whose fallback is to keep has no ports of its own.
        ports = next((each.fallback.ports for each in intent.families if each.fallback.ports), ())
        translation = Translation("masquerade", ports=ports)
        return (*self._kept(networks, intent), *_lines(translation, _OUTBOUND, random_fully=random_fully))

    def _podgate(self, intent: Intent, part: FamilyIntent, *, random_fully: bool) -> list[Chain]:
        rules = [*_never(part), *_own_pods(part)]
        chains: list[Chain] = []
        for policy in part.policies:
            own, more = _policy(policy, self._family, random_fully=random_fully)
            rules += own
            chains += more
        rules += self._kept(_networks(intent, part), intent)
        if part.fallback.action != "keep":
            rules += _lines(part.fallback, _OUTBOUND, random_fully=random_fully)
        return [Chain(self._chain, tuple(rules)), *chains]

    def _kept(self, networks: tuple[IPNetwork, ...], intent: Intent) -> tuple[Rule, ...]:
        if intent.stands_in:
            return tuple(_kept_rule(each, _STAND_IN) for each in networks)
        known = self._listed
        self._listed = {each: known.get(each) or _kept_rule(each) for each in networks}
        return tuple(self._listed[each] for each in networks)


def _kept_rule(network: IPNetwork, comment: str = _LOCAL) -> Rule:
    rule = Rule(Return(), (_in("daddr", network),), comment)
    return msgspec.structs.replace(rule, text=rule_words(rule))


def _networks(intent: Intent, part: FamilyIntent) -> tuple[IPNetwork, ...]:
    """Give what is kept: the entries as they were written, link-local first, unless one of them is no keeping."""
    entries = dict.fromkeys(interval.entry for interval in part.intervals)
    if any(entry.action != "keep" for entry in entries):
        return tuple(network for span in sorted(part.keep) for network in networks_of(span, part.family))
    places = {entry: number for number, entry in enumerate(intent.config.entries)}

    def place(entry: Entry) -> tuple[bool, int]:
        return entry.network != LINK_LOCAL[part.family], places.get(entry, len(places))

    return tuple(entry.network for entry in sorted(entries, key=place))


def _in(field: Field, network: IPNetwork) -> AddressIn:
    return AddressIn(field, network.version, (network_range(network),))


def _never(part: FamilyIntent) -> Iterator[Rule]:
    fields: tuple[tuple[Field, tuple[str, ...], str], ...] = (
        ("saddr", part.never.source_types, "the node's own sockets keep their address"),
        ("daddr", part.never.destination_types, "the node itself, broadcast and multicast are never masqueraded"),
    )
    for field, types, why in fields:
        for group in _type_groups(types, part.family):
            yield Rule(Return(), (AddressTypeIn(field, frozenset(group)),), OWN + why)


def _type_groups(types: Sequence[str], family: Family) -> Iterator[tuple[str, ...]]:
    """Group the types of one rule: for IPv6 the kernel wants all types of a rule to hold, and knows no broadcast."""
    if family == "ip":
        yield tuple(types)
    else:
        yield from ((each,) for each in types if each != "broadcast")


def _own_pods(part: FamilyIntent) -> Iterator[Rule]:
    for span in sorted(part.own_pods):
        for network in networks_of(span, part.family):
            yield Rule(Return(), (_in("daddr", network),), f"{OWN}this node's Pods see who their clients are")


def _policy(policy: PolicyIntent, family: Family, *, random_fully: bool) -> tuple[list[Rule], list[Chain]]:
    """Give a policy's rules in the main chain, and its own chains."""
    translation = policy.translation
    why = f"{OWN}{policy.ref}, priority {policy.priority}: {translation.summary}"
    sources = _addresses("saddr", policy.sources, family)
    there = [(*to, *by) for to, by in product(_addresses("daddr", policy.destinations, family), _interfaces(policy))]
    if not sources or not there:
        return [], []
    if translation.action == "keep":
        return [Rule(Return(), (*source, *to), why) for source, to in product(sources, there)], []
    name = policy_chain(policy)
    lines = _lines(translation, why, random_fully=random_fully)
    rules = [Rule(Jump(name), source, why) for source in sources]
    if len(lines) == 1 or len(there) == 1:
        inner = [Rule(line.target, (*to, *line.matches), why) for to in there for line in lines]
        return rules, [Chain(name, tuple(inner))]
    translating = policy_chain(policy, translates=True)
    inner = [Rule(Jump(translating, comes_back=False), to, why) for to in there]
    return rules, [Chain(name, tuple(inner)), Chain(translating, tuple(lines))]


def policy_chain(policy: PolicyIntent, *, translates: bool = False) -> str:
    """Name the chain of a policy that translates, or the one of its translation where that takes several rules."""
    digest = hashlib.sha256(policy.ref.name.encode()).hexdigest()[:10]
    return f"PODGATE-MASQ-{digest}{'-TO' if translates else ''}"


def _count(spans: Spans | None, family: Family) -> int:
    return 1 if spans is None else sum(1 for span in spans for _ in networks_of(span, family))


def _addresses(field: Field, spans: Spans | None, family: Family) -> list[tuple[Match, ...]]:
    if spans is None:
        return [()]
    return [(_in(field, network),) for span in sorted(spans) for network in networks_of(span, family)]


def _interfaces(policy: PolicyIntent) -> list[tuple[Match, ...]]:
    return [(InterfaceIn("oifname", frozenset((name,))),) for name in policy.interfaces] or [()]


def _lines(translation: Translation, why: str, *, random_fully: bool) -> list[Rule]:
    """Give the rules that translate; a packet that comes here takes exactly one of them.

    For each protocol one rule for each range of ports, chosen by its share of the ports that are left, as ip-masq-agent
    does; then the rule for all protocols without ports.
    """
    rules: list[Rule] = []
    for protocol in _PROTOCOLS if translation.ports else ():
        left = sum(each.size for each in translation.ports)
        for each in translation.ports:
            matches: tuple[Match, ...] = (ProtocolIn(frozenset((protocol,))),)
            if left > each.size:
                matches += (Chance(each.size / left),)
            target = _target(translation, (each.first, each.last), random_fully=random_fully)
            rules.append(Rule(target, matches, why))
            left -= each.size
    return [*rules, Rule(_target(translation, None, random_fully=random_fully), (), why)]


def _target(translation: Translation, ports: tuple[int, int] | None, *, random_fully: bool) -> Masquerade | Snat:
    if translation.address is not None:
        return Snat(translation.address, ports, random_fully)
    return Masquerade(ports, fully_random=random_fully)
