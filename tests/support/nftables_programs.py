"""Small programs of code, with what comes of packets: the same for the machine in memory and for the kernel.

Here: tables, packets and outcomes, in the addresses of packet_lab.py. Not here: running them.
Invariant: an outcome stands for all draws of chance: those that may come, and no others.
"""

from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from podgate.model.machine import Family
from podgate.model.packet import Locality
from podgate.model.table import Table
from podgate.targets.nftables.code import (
    AddressKind,
    Between,
    Bitwise,
    Code,
    Compare,
    Ct,
    Dispatch,
    Go,
    Immediate,
    Lookup,
    Masquerading,
    Meta,
    Payload,
    Random,
    Rejecting,
    Remember,
    SetMark,
    Translate,
)
from podgate.targets.nftables.state import (
    DSTNAT,
    MEMBER,
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
from tests.support.nftables_code import ADDRESSES, number
from tests.support.nftables_states import TABLE
from tests.support.packet_lab import EXT, NODE, NODE_INSIDE, NODE_LOCAL, NODE_SECONDARY, OUTSIDE, POD

SERVICE: Final = {4: "10.96.0.1", 6: "fd00:96::1"}
ONE, TWO, SIX = OUTSIDE[0], OUTSIDE[1], OUTSIDE[8]
ECHO: Final = 7777
LAB: Final = Locality(
    frozenset(ip_address(text) for each in (NODE_INSIDE, NODE, NODE_SECONDARY) for text in each.values())
    | {ip_address(NODE_LOCAL)}
)


class Sent(NamedTuple):
    """UDP from a Pod, or from the node's second address, and what may come of it, in words."""

    destination: str
    outcomes: frozenset[str]
    port: int = ECHO
    origin: Literal["pod", "node"] = "pod"


class Program(NamedTuple):
    """A table, and packets one after the other."""

    state: State
    sent: tuple[Sent, ...]


def _packed(text: str) -> bytes:
    return ip_address(text).packed


def _source(family: Family, to: int = 0) -> Payload:
    size, offset, _ = ADDRESSES[family]
    return Payload("network", offset, size, to)


def _destination(family: Family, to: int = 0) -> Payload:
    size, _, offset = ADDRESSES[family]
    return Payload("network", offset, size, to)


PORT_1: Final = Payload("transport", 2, 2, 1)
BEFORE = Hook("filter", "prerouting", DSTNAT - 10)
AT_DNAT, OWN_DNAT = Hook("nat", "prerouting", DSTNAT), Hook("nat", "output", DSTNAT)
FORWARD, LEAVING = Hook("filter", "forward", 0), Hook("nat", "postrouting", SRCNAT)


def _chain(name: str, hook: Hook | None, *codes: Code) -> Chain:
    return Chain(name, tuple(Rule(f"rule {n} of {name}", "why", code) for n, code in enumerate(codes)), hook)


def _state(
    *chains: Chain,
    sets: tuple[Set, ...] = (),
    elements: dict[str, dict[Element, Data]] | None = None,
    family: Family = "ip",
) -> State:
    found = {name: Table.of(each) for name, each in (elements or {}).items()}
    return State(family, TABLE, chains=chains, sets=sets, elements=found)


def sent(destination: str, *outcomes: str, port: int = ECHO, origin: Literal["pod", "node"] = "pod") -> Sent:
    return Sent(destination, frozenset(outcomes), port, origin)


ANSWERS: Final[Code] = (
    *(Ct("state", 0), Bitwise(0, number(2), number(0), 0), Compare(0, number(0), negated=True), Go("accept")),
)
"""Accepts what is no first packet: memory knows of first packets only."""


def _to(family: Family, text: str, at: int = ECHO) -> Code:
    words = ADDRESSES[family][0] // 4
    return (Immediate(_packed(text), 0), Immediate(port(at), words), Translate(family, 0, words))


def _balancing(family: Family, endpoints: tuple[str, ...]) -> State:
    """Dispatch by address to a number of endpoints, draw a slot, and masquerade all of it."""
    kind, words = ("ipv4_addr", 1) if family == "ip" else ("ipv6_addr", 4)
    count = len(endpoints)
    address = _packed(SERVICE[4 if family == "ip" else 6])
    return _state(
        _chain(
            "in", AT_DNAT, (Immediate(bytes(8), 0), _destination(family, 8), Lookup("sizes", 8, 1), Dispatch("to", 0))
        ),
        _chain(
            "any",
            None,
            (_destination(family), Random(count, words), Lookup("slots", 0, 8), Translate(family, 8, 8 + words)),
        ),
        _chain("out", LEAVING, (Masquerading(fully_random=True),)),
        sets=(
            Set("sizes", (kind,), data=("mark",)),
            Set("to", ("mark", "mark"), data=("verdict",)),
            Set("slots", (kind, "mark"), data=(kind, "inet_service")),
        ),
        elements={
            "sizes": {address: number(count)},
            "to": {number(0) + number(count): "goto any"},
            "slots": {
                address + number(n): concatenation(_packed(each), port(ECHO)) for n, each in enumerate(endpoints)
            },
        },
        family=family,
    )


PROGRAMS: Final[dict[str, Program]] = {
    "a slot is drawn, and all is masqueraded": Program(
        _balancing("ip", (ONE, TWO, EXT[4])),
        (
            sent(
                SERVICE[4], f"to {ONE}:7777 masqueraded", f"to {TWO}:7777 masqueraded", f"to {EXT[4]}:7777 masqueraded"
            ),
            sent(ONE, "accept masqueraded"),
        ),
    ),
    "the same in IPv6": Program(
        _balancing("ip6", (SIX, EXT[6])),
        (sent(SERVICE[6], f"to {SIX}:7777 masqueraded", f"to {EXT[6]}:7777 masqueraded"),),
    ),
    "a draw begins at an offset": Program(
        _state(
            _chain("in", AT_DNAT, (Random(2, 0, 5), Compare(0, number(6)), *_to("ip", ONE)), _to("ip", TWO)),
        ),
        (sent(SERVICE[4], f"to {ONE}:7777", f"to {TWO}:7777"),),
    ),
    "sets, and what is in none": Program(
        _state(
            _chain(
                "judge",
                BEFORE,
                ANSWERS,
                (_destination("ip"), Lookup("dropped", 0), Go("drop")),
                (_destination("ip"), Lookup("known", 0, negated=True), Rejecting("ip")),
            ),
            sets=(Set("dropped", ("ipv4_addr",)), Set("known", ("ipv4_addr",), ("interval",))),
            elements={
                "dropped": {_packed(ONE): MEMBER},
                "known": {_packed("203.0.113.0") + _packed("203.0.113.5"): MEMBER},
            },
        ),
        (sent(ONE, "drop"), sent(TWO, "accept"), sent(EXT[4], "reject")),
    ),
    "an accepted packet goes on to the next base chain, a dropped one does not": Program(
        _state(
            _chain(
                "first",
                BEFORE,
                (_source("ip"), PORT_1, _destination("ip", 2), Lookup("some", 0), Go("drop")),
                (Go("accept"),),
            ),
            _chain("second", FORWARD, (_destination("ip"), Compare(0, _packed(TWO)), Rejecting("ip"))),
            sets=(Set("some", ("ipv4_addr", "inet_service", "ipv4_addr"), ("interval",)),),
            elements={
                "some": {
                    concatenation(_packed("10.244.1.0"), port(7000), _packed("198.51.100.0"))
                    + concatenation(_packed("10.244.1.9"), port(7777), _packed("198.51.100.255")): MEMBER
                }
            },
        ),
        (sent(ONE, "drop"), sent(TWO, "reject"), sent(EXT[4], "accept")),
    ),
    "jump, goto, return and a policy": Program(
        _state(
            Chain(
                "in",
                _chain(
                    *("in", None, ANSWERS, (Go("jump outer"),)),
                    (_destination("ip"), Compare(0, _packed(ONE)), Go("accept")),
                ).rules,
                Hook("filter", "forward", 0, "drop"),
            ),
            _chain(
                "outer",
                None,
                (_destination("ip"), Compare(0, _packed(TWO)), Go("goto last")),
                (Go("return"),),
                (Go("drop"),),
            ),
            _chain(
                "last",
                None,
                (PORT_1, Between(1, port(7000), port(7777), negated=True), Rejecting("ip")),
                (Go("accept"),),
            ),
        ),
        (sent(ONE, "accept"), sent(TWO, "accept"), sent(EXT[4], "drop"), sent(TWO, "reject", port=9)),
    ),
    "a mark is set in one chain and asked for in another": Program(
        _state(
            _chain(
                "in",
                BEFORE,
                (
                    *(_destination("ip"), Compare(0, _packed(ONE))),
                    *(Meta("mark", 0), Bitwise(0, number(0xFFFFBFFF), number(0x4000), 0), SetMark(0)),
                ),
            ),
            _chain(
                "out",
                LEAVING,
                (
                    Meta("mark", 0),
                    Bitwise(0, number(0x4000), number(0), 0),
                    Compare(0, number(0), True),
                    Masquerading(),
                ),
            ),
        ),
        (sent(ONE, "accept masqueraded"), sent(TWO, "accept")),
    ),
    "what the routing tables say, and interfaces": Program(
        _state(
            _chain(
                "in",
                BEFORE,
                (
                    AddressKind("daddr", 0),
                    Compare(0, number(2)),
                    _destination("ip"),
                    Compare(0, _packed(NODE_LOCAL)),
                    Go("drop"),
                ),
                (Meta("iifname", 0), Compare(0, b"pod"), _destination("ip"), Compare(0, _packed(TWO)), Rejecting("ip")),
                (AddressKind("saddr", 0), Compare(0, number(2)), Go("drop")),
            ),
            _chain(
                "through",
                FORWARD,
                (Meta("oifname", 0), Lookup("ways", 0), _destination("ip"), Compare(0, _packed(ONE)), Go("drop")),
            ),
            sets=(Set("ways", ("ifname",)),),
            elements={"ways": {b"eth0".ljust(16, b"\0"): MEMBER}},
        ),
        (
            *(sent(NODE_LOCAL, "drop"), sent(NODE[4], "accept"), sent(TWO, "reject"), sent(ONE, "drop")),
            *(sent(EXT[4], "accept"), sent(TWO, "accept", origin="node")),
        ),
    ),
    "what was translated is known when it leaves": Program(
        _state(
            _chain("in", AT_DNAT, (_destination("ip"), Compare(0, _packed(SERVICE[4])), *_to("ip", ONE))),
            _chain("own", OWN_DNAT, (_destination("ip"), Compare(0, _packed(SERVICE[4])), *_to("ip", TWO))),
            _chain(
                "out",
                LEAVING,
                (
                    *(Ct("status", 0), Bitwise(0, number(1 << 5), number(0), 0), Compare(0, number(0), True)),
                    *(Ct("original ip daddr", 0), Ct("original proto-dst", 1), _source("ip", 2), _destination("ip", 3)),
                    *(Lookup("itself", 0), Masquerading()),
                ),
            ),
            sets=(Set("itself", ("ipv4_addr", "inet_service", "ipv4_addr", "ipv4_addr")),),
            elements={"itself": {concatenation(_packed(SERVICE[4]), port(80), _packed(POD[4]), _packed(ONE)): MEMBER}},
        ),
        (
            sent(SERVICE[4], f"to {ONE}:7777 masqueraded", port=80),
            sent(SERVICE[4], f"to {ONE}:7777", port=81),
            sent(ONE, "accept", port=7777),
            sent(SERVICE[4], f"to {TWO}:7777", port=80, origin="node"),
        ),
    ),
    "a client stays with its endpoint": Program(
        _state(
            _chain(
                "in",
                AT_DNAT,
                (
                    _destination("ip"),
                    Compare(0, _packed(ONE)),
                    _source("ip"),
                    _destination("ip", 1),
                    Remember("clients", "delete", 0, 0, 0),
                ),
                (
                    _destination("ip", 8),
                    Compare(8, _packed(SERVICE[4])),
                    _source("ip"),
                    Lookup("clients", 0, 1),
                    Translate("ip", 1, 2),
                ),
                (_destination("ip"), Compare(0, _packed(SERVICE[4])), *_to("ip", TWO)),
                (_destination("ip"), Compare(0, _packed(EXT[4])), *_to("ip", ONE)),
            ),
            _chain(
                "out",
                LEAVING,
                (
                    _source("ip"),
                    _destination("ip", 1),
                    Payload("transport", 2, 2, 2),
                    Remember("clients", "add", 0, 60, 1),
                ),
            ),
            sets=(Set("clients", ("ipv4_addr",), ("dynamic", "timeout"), ("ipv4_addr", "inet_service"), size=100),),
        ),
        (
            sent(SERVICE[4], f"to {TWO}:7777", port=80),
            sent(SERVICE[4], f"to {TWO}:7777", port=80),
            sent(ONE, "accept"),
            sent(SERVICE[4], f"to {ONE}:7777", port=80),
        ),
    ),
    "protocols": Program(
        _state(
            _chain(
                "in",
                BEFORE,
                (Meta("l4proto", 0), Payload("transport", 2, 2, 1), Lookup("ports", 0), Rejecting("ip")),
                (
                    Meta("l4proto", 0),
                    Compare(0, protocol("udp")),
                    _destination("ip"),
                    Compare(0, _packed(TWO)),
                    Go("drop"),
                ),
            ),
            sets=(Set("ports", ("inet_proto", "inet_service")),),
            elements={
                "ports": {
                    concatenation(protocol("udp"), port(9)): MEMBER,
                    concatenation(protocol("tcp"), port(ECHO)): MEMBER,
                }
            },
        ),
        (sent(ONE, "accept"), sent(ONE, "reject", port=9), sent(TWO, "drop")),
    ),
}
