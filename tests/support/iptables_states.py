"""States of the table nat for tests of the iptables target, in memory and in the kernel.

Here: a small state as ip-masq-agent writes it, and hypothesis strategies. Not here: what is done with the states.
Invariant: every state can be restored: rules say what iptables can say, and jump to what is there.
"""

from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

import msgspec
from hypothesis import strategies as st

from podgate.model.machine import Family, IPNetwork
from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Field,
    InterfaceIn,
    Jump,
    Masquerade,
    PortIn,
    ProtocolIn,
    Return,
    Snat,
    network_range,
)
from podgate.targets.iptables.render import render
from podgate.targets.iptables.state import Binary, BuiltinRule, Chain, Match, Rule, RuleTarget, State

OWNERS: Final = ("ours: ", "old: ")
CHAIN: Final = "PG-TEST"
FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
BINARIES: Final[tuple[Binary, ...]] = ("nft", "legacy")
LOCAL: Final = "ours: stays as it is"
OUTBOUND: Final = "ours: is masqueraded"


def inside(field: Field, network: str | IPNetwork, *, negated: bool = False) -> AddressIn:
    parsed = ip_network(network) if isinstance(network, str) else network
    return AddressIn(field, parsed.version, (network_range(parsed),), negated)


def jump(chain: str = CHAIN, comment: str = "ours: all traffic that leaves the node") -> BuiltinRule:
    return BuiltinRule(
        "POSTROUTING", Rule(Jump(chain), (AddressTypeIn("daddr", frozenset(("local",)), negated=True),), comment)
    )


def keeping(
    *networks: str, family: Family = "ip", binary: Binary = "nft", chain: str = CHAIN, recorded: tuple[str, ...] = ()
) -> State:
    """Give a chain that keeps some destinations and masquerades all others."""
    rules = [Rule(Return(), (inside("daddr", network),), LOCAL) for network in networks]
    rules.append(Rule(Masquerade(fully_random=True), (), OUTBOUND))
    return State(family, binary, (Chain(chain, tuple(rules)),), (jump(chain),), frozenset(recorded))


def nothing(family: Family = "ip", binary: Binary = "nft", recorded: tuple[str, ...] = ()) -> State:
    return State(family, binary, recorded=frozenset(recorded))


def networks(family: Family) -> st.SearchStrategy[IPNetwork]:
    bits = 32 if family == "ip" else 128
    make = IPv4Address if family == "ip" else IPv6Address
    return st.builds(
        lambda number, length: ip_network((make(number >> (bits - length) << (bits - length)), length)),
        st.integers(0, (1 << bits) - 1),
        st.one_of(st.integers(0, bits), st.sampled_from([0, 8, bits])),
    )


def _address_matches(family: Family) -> st.SearchStrategy[Match]:
    version = 4 if family == "ip" else 6
    top = (1 << (32 if family == "ip" else 128)) - 1
    ranges = st.tuples(st.integers(0, top), st.integers(0, top)).map(lambda pair: (min(pair), max(pair)))
    fields: st.SearchStrategy[Field] = st.sampled_from(["saddr", "daddr"])
    return st.one_of(
        st.builds(inside, fields, networks(family)),
        st.builds(
            lambda field, network: inside(field, network, negated=network.prefixlen > 0), fields, networks(family)
        ),
        st.builds(
            lambda field, bounds, no: AddressIn(field, version, (bounds,), no), fields, ranges, st.booleans()
        ).filter(lambda match: match.ranges[0] != (0, top)),
    )


def _type_matches(family: Family) -> st.SearchStrategy[Match]:
    types = ["local", "anycast", "multicast", "unicast"] + (["broadcast"] if family == "ip" else [])
    sets = st.sets(st.sampled_from(types), min_size=1, max_size=4 if family == "ip" else 1).map(frozenset)
    return st.builds(AddressTypeIn, st.sampled_from(["saddr", "daddr"]), sets, st.booleans())


def _port_ranges() -> st.SearchStrategy[tuple[int, int]]:
    port = st.integers(1, 65535)
    return st.tuples(port, port).map(lambda pair: (min(pair), max(pair)))


@st.composite
def rules(draw: st.DrawFn, family: Family, targets: st.SearchStrategy[RuleTarget | None]) -> Rule:
    """Give a rule whose comment is one of ours."""
    matches = draw(st.lists(st.one_of(_address_matches(family), _type_matches(family)), max_size=3, unique_by=_place))
    if draw(st.booleans()):
        name = InterfaceIn("oifname", frozenset((draw(st.sampled_from(["eth0", "eth*"])),)), draw(st.booleans()))
        matches.append(name)
    target = draw(targets)
    if isinstance(target, Masquerade | Snat) and target.ports:
        matches.append(ProtocolIn(frozenset((draw(st.sampled_from(["tcp", "udp", "sctp"])),))))
        if draw(st.booleans()):
            ports = draw(st.lists(_port_ranges(), min_size=1, max_size=7, unique=True).map(sorted).map(tuple))
            matches.append(PortIn("dport", ports, draw(st.booleans())))
    if draw(st.booleans()):
        matches.append(Chance(draw(st.integers(1, 99999)) / 100_000))
    comment = draw(
        st.sampled_from(["ours: because", 'old: said "so"', "ours: it's C:\\here", "old: ü", "ours: x" + "y" * 250])
    )
    return Rule(target, tuple(matches), comment)


def _place(match: Match) -> object:
    """Say what a rule can hold once: iptables has one ``-s`` and one module iprange of each direction."""
    if isinstance(match, AddressIn):
        first, last = match.ranges[0]
        size = last - first + 1
        is_network = size & (size - 1) == 0 and first & (size - 1) == 0
        return match.field if is_network else (match.field, "range")
    return match


def targets(family: Family) -> st.SearchStrategy[RuleTarget | None]:
    address = IPv4Address("192.0.2.1") if family == "ip" else IPv6Address("2001:db8::1")
    ports = st.one_of(st.none(), _port_ranges())
    flags = st.booleans()
    masquerades = st.builds(Masquerade, ports, flags, flags)
    return st.one_of(
        st.sampled_from([None, Accept(), Return(), Jump("PG-INNER"), Jump("PG-INNER", comes_back=False)]),
        masquerades,
        st.builds(Snat, st.just(address), ports, flags),
    )


@st.composite
def states(draw: st.DrawFn, family: Family, binary: Binary) -> State:
    """Give a state: sometimes nothing, else one chain that POSTROUTING jumps to, and one that it jumps to."""
    if draw(st.integers(0, 9)) == 0:
        return nothing(family, binary)
    inner_targets: st.SearchStrategy[RuleTarget | None] = st.sampled_from([Accept(), Return(), Masquerade()])
    main = draw(st.lists(rules(family, targets(family)), min_size=1, max_size=5))
    inner = draw(st.lists(rules(family, inner_targets), min_size=1, max_size=2))
    chain = draw(st.sampled_from([CHAIN, "PG-OTHER"]))
    chains = (Chain(chain, tuple(main)), Chain("PG-INNER", tuple(inner)))
    comment = draw(st.sampled_from(["ours: one way", "ours: another way"]))
    return State(family, binary, chains, (jump(chain, comment),))


__all__ = [
    "BINARIES",
    "CHAIN",
    "FAMILIES",
    "LOCAL",
    "OUTBOUND",
    "OWNERS",
    "inside",
    "jump",
    "keeping",
    "networks",
    "nothing",
    "rules",
    "states",
    "targets",
]


def chain_text(state: State) -> str:
    """Give the text that fills the chains, the rules in built-in chains left out: what ip-masq-agent restores."""
    return render(msgspec.structs.replace(state, placed=()))
