"""Random states of one nftables table, for property tests in memory and in the kernel.

Here: hypothesis strategies. Not here: what is done with the states.
Invariant: every state can be loaded: intervals are disjoint, and rules and verdicts name only what is there.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Final

from hypothesis import strategies as st

from podgate.model.machine import Family
from podgate.model.table import Table
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
    concatenation,
    port,
    protocol,
)

TABLE: Final = "pg-test"
_BITS: Final = {"ip": 32, "ip6": 128}
_LAST: Final = ("masquerade fully-random", "meta l4proto { tcp, udp } masquerade to :1024-2000", "jump extra")
_ADDRESS: Final = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}

Elements = Table[Element, Data]


def intervals(family: Family) -> st.SearchStrategy[Elements]:
    """Give disjoint intervals, among them whole families, single addresses, neighbours and both ends of the family."""
    end = 1 << _BITS[family]
    edges = st.sampled_from([0, 1, 2, 256, 1 << 24, end // 2, end - 256, end - 2, end - 1, end])
    cuts = st.lists(st.one_of(edges, st.integers(0, end)), min_size=0, max_size=12, unique=True)

    @st.composite
    def made(draw: st.DrawFn) -> Elements:
        points = sorted(draw(cuts))
        taken = draw(st.lists(st.booleans(), min_size=len(points), max_size=len(points)))
        pairs = zip(points, points[1:], taken, strict=False)
        keys = [address_interval(family, first, after - 1) for first, after, wanted in pairs if wanted]
        return Table.of((key, MEMBER) for key in keys)

    return made()


def addresses(family: Family) -> st.SearchStrategy[IPv4Address | IPv6Address]:
    """Give addresses."""
    top = (1 << _BITS[family]) - 1
    numbers = st.one_of(st.sampled_from([0, 1, top]), st.integers(0, top))
    return numbers.map(IPv4Address if family == "ip" else IPv6Address)


def plain(family: Family) -> st.SearchStrategy[Elements]:
    """Give single addresses."""
    return st.lists(addresses(family), max_size=6, unique=True).map(
        lambda found: Table.of((address(item), MEMBER) for item in found)
    )


def services(family: Family) -> st.SearchStrategy[Elements]:
    """Give elements from address, protocol and port to address and port."""
    ports = st.integers(0, 65535)
    keys = st.tuples(addresses(family), st.sampled_from(["tcp", "udp", "sctp"]), ports)
    values = st.tuples(addresses(family), ports)
    return st.dictionaries(keys, values, max_size=6).map(
        lambda found: Table.of(
            (concatenation(address(to), protocol(name), port(at)), concatenation(address(there), port(number)))
            for (to, name, at), (there, number) in found.items()
        )
    )


def verdicts(family: Family) -> st.SearchStrategy[Elements]:
    """Give elements from intervals to verdicts, some of which go to chain ``extra``."""
    return st.tuples(
        intervals(family), st.lists(st.sampled_from(["accept", "drop", "goto extra", "jump extra"]), min_size=1)
    ).map(lambda pair: Table.of((key, pair[1][n % len(pair[1])]) for n, key in enumerate(sorted(pair[0]))))


def _menu(family: Family, comment: str) -> dict[str, tuple[Set, st.SearchStrategy[Elements], str]]:
    """Give sets and maps with their elements and a rule that uses them."""
    kind = _ADDRESS[family]
    return {
        "keep": (
            Set("keep", (kind,), ("interval",), comment=comment),
            intervals(family),
            f"{family} daddr @keep return",
        ),
        "plain": (Set("plain", (kind,)), plain(family), f"{family} saddr @plain accept"),
        "services": (
            Set("services", (kind, "inet_proto", "inet_service"), data=(kind, "inet_service")),
            services(family),
            "",
        ),
        "verdicts": (
            Set("verdicts", (kind,), ("interval",), data=("verdict",)),
            verdicts(family),
            f"{family} daddr vmap @verdicts",
        ),
    }


def with_every_set(family: Family) -> State:
    """Give a state with each kind of set and map, all empty, and rules that use them."""
    menu = _menu(family, "").values()
    rules = tuple(Rule(text, "uses a set") for _, _, text in menu if text)
    chains = (Chain("postrouting", rules, Hook("nat", "postrouting", SRCNAT)), Chain("extra"))
    return State(family, TABLE, chains=chains, sets=tuple(declared for declared, _, _ in menu))


@st.composite
def states(draw: st.DrawFn, family: Family) -> State:
    """Give a state: sometimes absent, with up to four sets and maps, and chains that use them."""
    if draw(st.integers(0, 9)) == 0:
        return State.absent(family, TABLE)
    menu = _menu(family, draw(st.sampled_from(["", "why it is there"])))
    names = draw(st.lists(st.sampled_from(sorted(menu)), unique=True))
    sets = tuple(menu[name][0] for name in names)
    elements = {name: draw(menu[name][1]) for name in names}
    texts = [menu[name][2] for name in names if menu[name][2]]
    rules = draw(
        st.lists(st.sampled_from([*texts, "counter", "fib daddr type { local, multicast } return"]), max_size=4)
    )
    last = draw(
        st.sampled_from(["masquerade fully-random", "meta l4proto { tcp, udp } masquerade to :1024-2000", "jump extra"])
    )
    hook = Hook("nat", "postrouting", draw(st.sampled_from([SRCNAT, SRCNAT + 5])))
    why = draw(st.sampled_from(["because", 'said "so"', "ü" * 100]))
    chains = (
        Chain("postrouting", tuple(Rule(text, why) for text in (*rules, last)), hook),
        Chain("extra", draw(st.sampled_from([(), (Rule("return", "back"),)]))),
    )
    guard = Chain("guard", (), Hook("filter", "forward", 0, draw(st.sampled_from(["accept", "drop"]))))
    return State(
        family,
        TABLE,
        comment="a legend",
        chains=(*chains, guard) if draw(st.booleans()) else chains,
        sets=sets,
        elements={name: found for name, found in elements.items() if found},
    )
