"""Tables whose rules are code, for tests in memory and in the kernel.

Here: a small table that leads addresses to endpoints, and random states with code in the place of text. Not here: what
is done with them; random states with text (nftables_states.py).
Invariant: the code of a random state does what its text says, so every rule of it can be loaded.
"""

import sys
from ipaddress import IPv4Address
from typing import Final

import msgspec
from hypothesis import strategies as st

from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.code import (
    AddressKind,
    Code,
    Compare,
    Dispatch,
    Go,
    Immediate,
    Lookup,
    Masquerading,
    Meta,
    Payload,
    Random,
    Translate,
)
from podgate.targets.nftables.state import (
    DSTNAT,
    SRCNAT,
    Chain,
    Data,
    Element,
    Hook,
    Rule,
    Set,
    State,
    concatenation,
    port,
    protocol,
)
from tests.support.nftables_states import TABLE, states

SERVICE: Final = (Payload("network", 16, 4, 0), Meta("l4proto", 1), Payload("transport", 2, 2, 2))
"""Loads destination, protocol and port of IPv4 packets into registers 0 to 2."""

ADDRESSES: Final[dict[Family, tuple[int, int, int]]] = {"ip": (4, 12, 16), "ip6": (16, 8, 24)}
"""An address: its size, and where an IP header has the source and the destination, in bytes."""


def number(value: int) -> bytes:
    """Give a number of 4 bytes in the machine's order."""
    return value.to_bytes(4, sys.byteorder)


def service(address: str, at: int = 80, name: str = "tcp") -> Element:
    """Give the key of a service."""
    return concatenation(IPv4Address(address).packed, protocol(name), port(at))


def endpoint(address: str, at: int = 8080) -> bytes:
    """Give the data of an endpoint."""
    return concatenation(IPv4Address(address).packed, port(at))


def balancing(services: dict[Element, tuple[bytes, ...]], counts: tuple[int, ...] = ()) -> State:
    """Give a table that leads each service to one of its endpoints: to the chain for their number, and by a slot."""
    numbers = sorted({*counts, *map(len, services.values())})
    fields = ("ipv4_addr", "inet_proto", "inet_service")
    number_of = (*SERVICE, Immediate(bytes(8), 4), Lookup("services", 0, 5), Dispatch("counts", 4))
    chains = [
        Chain(
            f"to-{count}",
            (
                Rule(
                    f"dnat to a slot of {count}",
                    "one endpoint",
                    (*SERVICE, Random(count, 3), Lookup("slots", 0, 4), Translate("ip", 4, 5)),
                ),
            ),
        )
        for count in numbers
    ]
    slots = {key + number(slot): data for key, endpoints in services.items() for slot, data in enumerate(endpoints)}
    elements: dict[str, Table[Element, Data]] = {
        "services": Table.of({key: number(len(endpoints)) for key, endpoints in services.items()}),
        "slots": Table.of(slots),
        "counts": Table.of({number(0) + number(count): f"goto to-{count}" for count in numbers}),
    }
    return State(
        "ip",
        TABLE,
        comment="a legend",
        chains=(
            Chain(
                "prerouting",
                (Rule("to the number of endpoints", "by address", number_of),),
                Hook("nat", "prerouting", DSTNAT),
            ),
            *chains,
            Chain("postrouting", (Rule("masquerade", "all", (Masquerading(),)),), Hook("nat", "postrouting", SRCNAT)),
        ),
        sets=(
            Set("slots", (*fields, "mark"), data=("ipv4_addr", "inet_service"), comment="endpoints by slot"),
            Set("counts", ("mark", "mark"), data=("verdict",)),
            Set("services", fields, data=("mark",), comment="how many endpoints"),
        ),
        elements={name: held for name, held in elements.items() if held},
        last=("services",),
    )


def coded_states(family: Family) -> st.SearchStrategy[State]:
    """Give random states whose rules are code; some of them are absent."""
    return states(family).map(coded)


def coded(state: State) -> State:
    """Give a state with code in each rule."""
    chains = tuple(
        Chain(
            chain.name,
            tuple(Rule(rule.text, rule.comment, _code(state.family, rule.text)) for rule in chain.rules),
            chain.hook,
        )
        for chain in state.chains
    )
    return msgspec.structs.replace(state, chains=chains)


def _code(family: Family, text: str) -> Code:
    """Give the code for a text of ``nftables_states``."""
    size, source, destination = ADDRESSES[family]
    to, of = Payload("network", destination, size, 0), Payload("network", source, size, 0)
    codes: dict[str, Code] = {
        f"{family} daddr @keep return": (to, Lookup("keep", 0), Go("return")),
        f"{family} saddr @plain accept": (of, Lookup("plain", 0), Go("accept")),
        f"{family} daddr vmap @verdicts": (to, Dispatch("verdicts", 0)),
        "counter": (Immediate(bytes(4), 0),),
        "fib daddr type { local, multicast } return": (AddressKind("daddr", 0), Compare(0, number(2)), Go("return")),
        "masquerade fully-random": (Masquerading(fully_random=True),),
        "meta l4proto { tcp, udp } masquerade to :1024-2000": (Meta("l4proto", 0), Compare(0, b"\x06"), Masquerading()),
        "jump extra": (Go("jump extra"),),
        "return": (Go("return"),),
    }
    return codes[text]
