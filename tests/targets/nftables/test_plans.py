"""Plans between pairs of states, as people read them and as nft loads them: cases/plans.case.

A case is named ``FROM to TO`` after the states below. ``--- plan`` is what people see, ``--- commands`` what nft gets.
"""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path

import msgspec
import pytest

from podgate.model.table import Table
from podgate.targets.nftables.diff import diff
from podgate.targets.nftables.fake import as_read
from podgate.targets.nftables.render import render, transaction
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
    concatenation,
    interval,
    port,
    protocol,
)
from tests.support.cases import Case, read_cases

OWN = Rule("fib saddr type local return", "the node's own sockets keep their address")
LISTED = Rule("ip daddr @keep return", "these destinations see the Pod")
ALL = Rule("masquerade fully-random", "everything else sees the node")
KEEP = Set("keep", ("ipv4_addr",), ("interval",), comment="destinations that see the Pod")
SRCNAT_HOOK = Hook("nat", "postrouting", SRCNAT)


def members(*networks: str) -> Table[Element, Data]:
    return Table.of((interval(ip_network(network)), MEMBER) for network in networks)


BASE = State(
    "ip",
    "t",
    comment="a legend",
    chains=(Chain("postrouting", (OWN, LISTED, ALL), SRCNAT_HOOK),),
    sets=(KEEP,),
    elements={"keep": members("10.0.0.0/8", "192.168.0.0/16")},
)


def with_rules(*rules: Rule) -> State:
    return msgspec.structs.replace(BASE, chains=(Chain("postrouting", rules, SRCNAT_HOOK),))


def service(name: str, number: int) -> tuple[Element, Data]:
    key = concatenation(address(ip_address("172.30.0.1")), protocol(name), port(number))
    return key, concatenation(address(ip_address("10.0.0.9")), port(8000 + number))


SERVICES = State(
    "ip",
    "t",
    sets=(
        Set("services", ("ipv4_addr", "inet_proto", "inet_service"), data=("ipv4_addr", "inet_service")),
        Set("ways", ("ipv4_addr",), ("interval",), data=("verdict",), comment="which chain a network takes"),
        Set("seen", ("ipv4_addr",), ("dynamic",), timeout=30),
    ),
    chains=(Chain("base", (Rule("ip daddr vmap @ways", "by network"),), Hook("filter", "forward", 0)), Chain("bucket")),
    elements={
        "services": Table.of([service("tcp", 80), service("udp", 53)]),
        "ways": Table.of(
            {interval(ip_network("10.0.0.0/8")): "goto bucket", interval(ip_network("0.0.0.0/8")): "drop"}
        ),
    },
)

STATES: dict[str, State] = {
    "nothing": State.absent("ip", "t"),
    "base": BASE,
    "base with other elements": msgspec.structs.replace(
        BASE, elements={"keep": members("10.0.0.0/8", *(f"100.64.{n}.0/24" for n in range(7)))}
    ),
    "base in another order": with_rules(LISTED, OWN, ALL),
    "base with a rule more": with_rules(OWN, LISTED, Rule("ip daddr 10.0.0.1 return", "one more"), ALL),
    "base without rules": with_rules(),
    "base with another reason": with_rules(OWN, LISTED, Rule(ALL.text, "another reason")),
    "base with a foreign rule": with_rules(OWN, LISTED, Rule("", ""), ALL),
    "base at another priority": msgspec.structs.replace(
        BASE, chains=(Chain("postrouting", (OWN, LISTED, ALL), Hook("nat", "postrouting", SRCNAT + 5)),)
    ),
    "base that drops": msgspec.structs.replace(
        BASE, chains=(Chain("postrouting", (OWN, LISTED, ALL), Hook("nat", "postrouting", SRCNAT, "drop")),)
    ),
    "base with single addresses": msgspec.structs.replace(
        BASE,
        sets=(Set("keep", ("ipv4_addr",)),),
        elements={"keep": Table.of({address(ip_address("10.0.0.1")): MEMBER})},
    ),
    "base asleep": msgspec.structs.replace(BASE, dormant=True),
    "base with a counter object": msgspec.structs.replace(BASE, others=("hits",)),
    "services": SERVICES,
    "services changed": msgspec.structs.replace(
        SERVICES,
        elements={
            "services": Table.of([service("tcp", 80), (service("udp", 53)[0], service("tcp", 99)[1])]),
            "ways": Table.of({interval(ip_network("10.0.0.0/8")): "accept"}),
        },
        chains=SERVICES.chains[:1],
    ),
}


@pytest.mark.parametrize("case", read_cases(Path(__file__).parent / "cases" / "plans.case"), ids=str)
def test_a_plan(case: Case) -> None:
    have, want = (STATES[name] for name in case.name.split(" to "))
    plan = diff(as_read(have), want)
    plan_text, commands = case.one("plan"), case.one("commands")
    assert plan_text
    assert str(plan).splitlines() == plan_text.text.splitlines()
    assert bool(plan) == bool(commands)
    assert transaction(plan).rstrip().splitlines() == (commands.text.splitlines() if commands else [])


def test_every_state_is_equal_to_what_is_read_of_it() -> None:
    for want in STATES.values():
        if want.dormant or want.others:
            continue
        assert not diff(as_read(want), want)


@pytest.mark.parametrize("make", [lambda: State.absent("ip6", "t"), lambda: State.absent("ip", "u")])
def test_states_of_different_tables_are_not_compared(make: Callable[[], State]) -> None:
    with pytest.raises(ValueError, match="cannot become table"):
        diff(BASE, make())


def test_equal_states_render_equally_in_whatever_order_they_were_made() -> None:
    networks = ["10.0.0.0/8", "192.168.0.0/16", "1.2.3.4/32"]
    one = msgspec.structs.replace(BASE, elements={"keep": members(*networks)})
    other = msgspec.structs.replace(BASE, elements={"keep": members(*reversed(networks))})
    assert render(one) == render(other)
