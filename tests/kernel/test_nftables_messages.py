"""What is declared over netlink is, attribute by attribute, what nft declares for the same state."""

import asyncio
import socket

import pytest

from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, attributes, text
from podgate.linux.nftables import GET_CHAIN, GET_SET, GET_TABLE, TABLE, family_header
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.code import Go
from podgate.targets.nftables.messages import shape
from podgate.targets.nftables.render import render
from podgate.targets.nftables.state import DSTNAT, FILTER, SRCNAT, Chain, Hook, Rule, Set, State
from tests.support.netns import NetNamespace, netns
from tests.support.nftables_states import TABLE as NAME
from tests.support.nftables_target import load_state

pytestmark = pytest.mark.kernel

SETS = (
    *(
        Set(f"of-{name}", (name,))
        for name in ("ipv4_addr", "ipv6_addr", "ether_addr", "inet_proto", "inet_service", "mark", "ifname")
    ),
    Set("intervals", ("ipv4_addr",), ("interval",), comment="ranges"),
    Set("fields", ("ipv4_addr", "inet_proto", "inet_service")),
    Set("ranges", ("ipv6_addr", "inet_proto", "inet_service", "ipv6_addr"), ("interval",)),
    Set("numbers", ("mark",), data=("mark",), comment="a map of numbers"),
    Set("endpoints", ("ipv4_addr", "inet_service"), data=("ipv4_addr", "inet_service"), size=1000),
    Set("verdicts", ("inet_service",), data=("verdict",)),
    Set("interval-verdicts", ("ipv4_addr",), ("interval",), ("verdict",)),
    Set("timed", ("ipv4_addr",), ("timeout",)),
    Set("expiring", ("ipv4_addr",), timeout=90),
    Set("clients", ("ipv4_addr", "inet_service"), ("dynamic", "timeout"), ("ipv4_addr",), 10800, 4096, "who was where"),
    Set("fixed", ("ipv4_addr",), ("constant",)),
)
ACCEPT = Rule("accept", "why not", (Go("accept"),))
CHAINS = (
    Chain("translating", (ACCEPT,), Hook("nat", "prerouting", DSTNAT)),
    Chain("leaving", (ACCEPT,), Hook("nat", "postrouting", SRCNAT + 5)),
    Chain("guarding", (ACCEPT,), Hook("filter", "forward", FILTER, "drop")),
    Chain("routing", (ACCEPT,), Hook("route", "output", -150)),
    Chain("inner", (ACCEPT,)),
)

HANDLES = {GET_TABLE: {4}, GET_CHAIN: {2}, GET_SET: {16}}
"""Numbers that the kernel gives; they tell nothing."""
USE = {GET_TABLE: {3}, GET_CHAIN: {6}, GET_SET: set[int]()}
"""How often something is referred to."""
USERDATA = {GET_TABLE: 6, GET_CHAIN: 12, GET_SET: 13}
SHOWN = (0, 1, 7)
"""The userdata of sets that nft shows: byte orders and the comment; it also keeps how a type was written."""


def declared(namespace: NetNamespace, kind: int) -> list[dict[int, object]]:
    with inside_network(namespace.descriptor), Connection(NETLINK_NETFILTER) as connection:
        body = family_header(socket.AF_INET) + (text(TABLE, NAME) if kind != GET_TABLE else b"")
        listed = [attributes(message.body, 4) for message in connection.dump(kind, body)]
    found = []
    for each in listed:
        kept: dict[int, object] = {
            number: value for number, value in each.items() if number not in HANDLES[kind] | USE[kind]
        }
        if kind == GET_SET:
            kept[USERDATA[kind]] = userdata(each[USERDATA[kind]])
        found.append(kept)
    return sorted(found, key=lambda each: repr(sorted(each.items())))


def userdata(data: bytes) -> dict[int, bytes]:
    found, rest = {}, data
    while rest:
        found[rest[0]] = rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    return {kind: value for kind, value in found.items() if kind in SHOWN}


def as_text(state: State) -> State:
    chains = tuple(
        Chain(each.name, tuple(Rule(rule.text, rule.comment) for rule in each.rules), each.hook)
        for each in state.chains
    )
    return State(state.family, state.name, comment=state.comment, chains=chains, sets=state.sets)


def test_what_is_declared_is_what_nft_declares() -> None:
    state = State("ip", NAME, comment="a legend", chains=CHAINS, sets=SETS)
    with netns() as theirs, netns() as ours:
        theirs.run("nft", "-f", "-", text=render(as_text(state)))
        target = NftablesTarget("ip", NAME, program="none", namespace=ours.descriptor)
        asyncio.run(load_state(target, state))
        target.close()
        for kind in (GET_TABLE, GET_CHAIN, GET_SET):
            assert declared(ours, kind) == declared(theirs, kind)


@pytest.mark.parametrize(
    ("name", "sizes"), [("of-inet_proto", (1, 0)), ("fields", (12, 0)), ("endpoints", (8, 8)), ("verdicts", (2, 0))]
)
def test_the_sizes_of_keys_and_data(name: str, sizes: tuple[int, int]) -> None:
    found = shape(next(each for each in SETS if each.name == name))
    assert (found.key_bytes, found.data_bytes) == sizes
