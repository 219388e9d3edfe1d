"""Code runs in memory as in the kernel, where tests/kernel/test_nftables_programs.py runs the same programs."""

from ipaddress import ip_address

import msgspec
import pytest

from podgate.model.packet import Locality, Packet
from podgate.model.table import Table
from podgate.targets.nftables.code import (
    Bitwise,
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
    Rejecting,
    Remember,
    SetMark,
    Translate,
)
from podgate.targets.nftables.evaluation import DynamicElements
from podgate.targets.nftables.registers import Outcome, flow
from podgate.targets.nftables.state import DSTNAT, Chain, Hook, Rule, Set, State
from tests.support.nftables_code import number
from tests.support.nftables_programs import LAB, PROGRAMS, Program, Sent
from tests.support.packet_lab import NODE_SECONDARY, POD

PROBE = Packet(ip_address("10.1.0.1"), ip_address("10.2.0.2"), "udp", 1000, 53, "in0", "out0")


def words(outcome: Outcome) -> str:
    """Show an outcome as the programs do."""
    if outcome.verdict != "accept":
        return outcome.verdict
    way = f"to {outcome.endpoint[0]}:{outcome.endpoint[1]}" if outcome.endpoint else "accept"
    return f"{way}{' masqueraded' if outcome.masqueraded else ''}"


def outcomes(state: State, sent: Sent, memory: DynamicElements) -> frozenset[Outcome]:
    to = ip_address(sent.destination)
    source = ip_address((POD if sent.origin == "pod" else NODE_SECONDARY)[to.version])
    interface = "pod0" if sent.origin == "pod" else ""
    packet = Packet(source, to, "udp", 30000, sent.port, interface, "eth0")
    return flow(state, packet, LAB, "prerouting" if sent.origin == "pod" else "output", memory=memory)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_comes_of_packets(program: Program) -> None:
    memory: DynamicElements = frozenset()
    for sent in program.sent:
        found = outcomes(program.state, sent, memory)
        assert {words(each) for each in found} == sent.outcomes, sent
        memory = next(iter(found)).memory


SETS = (
    Set("addresses", ("ipv4_addr",)),
    Set("map", ("ipv4_addr",), data=("mark",)),
    Set("chains", ("mark",), data=("verdict",)),
    Set("clients", ("ipv4_addr",), ("dynamic",), ("mark",)),
)
OF = Payload("network", 12, 4, 0)

REFUSED: dict[str, tuple[Code, str]] = {
    "a register that nothing was loaded into": ((Compare(3, number(1)),), "reads register 3, which it has not loaded"),
    "the second half of a longer value": ((OF, Compare(0, bytes(8))), "reads register 1, which it has not"),
    "a value beyond the registers": ((Immediate(bytes(16), 13),), "16 bytes do not fit into the registers from 13"),
    "bytes of a packet that are not known": (
        (Payload("network", 0, 4, 0),),
        "does not know bytes 0 to 3 of the network",
    ),
    "a set that is not there": ((OF, Lookup("other", 0)), "there is no set or map other"),
    "a map without its data": ((OF, Lookup("map", 0)), "map is a map, and is looked up otherwise"),
    "the data of a set": ((OF, Lookup("addresses", 0, to=1)), "addresses is no map, and is looked up otherwise"),
    "a map that holds no verdicts": ((OF, Dispatch("map", 0)), "map holds no verdicts"),
    "a set that packets may not change": ((OF, Remember("addresses", "add", 0)), "addresses cannot be changed so"),
    "an element without its data": ((OF, Remember("clients", "add", 0)), "clients cannot be changed so"),
    "a chain that is not there": ((Go("jump nowhere"),), "goes to nowhere, which is not there"),
    "a loop": ((Go("jump tried"),), "more than 16 deep, last tried: is there a loop"),
    "masquerading before routing": ((Masquerading(),), "for NAT chains at postrouting"),
    "rejecting in a NAT chain": ((Rejecting("ip"),), "for filter chains"),
    "another family": ((Immediate(bytes(16), 0), Immediate(bytes(2), 4), Translate("ip6", 0, 4)), "cannot go to ::"),
}


@pytest.mark.parametrize(("code", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_kernel_would_refuse_is_no_outcome(code: Code, message: str) -> None:
    chain = Chain("tried", (Rule("what is tried", "why", code),), Hook("nat", "prerouting", DSTNAT))
    with pytest.raises(ValueError, match=message):
        flow(State("ip", "t", chains=(chain,), sets=SETS), PROBE, Locality())


def test_every_draw_is_an_outcome() -> None:
    draws = (Random(3, 0), Random(2, 1, 10), Immediate(b"\x0a\0\0\1", 2), Translate("ip", 2, 1))
    chain = Chain("in", (Rule("draw", "twice", draws),), Hook("nat", "prerouting", DSTNAT))
    found = flow(State("ip", "t", chains=(chain,)), PROBE, Locality())
    # The port is the first half of the second draw, in the order of this machine.
    assert {each.endpoint for each in found} == {
        (ip_address("10.0.0.1"), int.from_bytes(number(drawn)[:2], "big")) for drawn in (10, 11)
    }


def _marking(bit: int) -> Code:
    return (Meta("mark", 0), Bitwise(0, number(0xFFFFFFFF ^ bit), number(bit), 0), SetMark(0))


def test_a_packet_to_the_node_itself_comes_in_again() -> None:
    """What the node sends to itself meets the hooks of what it sends and of what it gets; NAT knows it by then."""
    seen = [
        Chain(name, (Rule("count", name, _marking(1 << bit)),), Hook(kind, hook, 0))
        for bit, (name, kind, hook) in enumerate(
            [
                *(("a", "filter", "output"), ("b", "filter", "postrouting"), ("c", "filter", "prerouting")),
                *(
                    ("d", "filter", "input"),
                    ("e", "filter", "forward"),
                    ("f", "nat", "prerouting"),
                    ("g", "nat", "input"),
                ),
            ]
        )
    ]
    local = Locality(frozenset({PROBE.destination}))
    state = State("ip", "t", chains=tuple(seen))
    assert {each.mark for each in flow(state, PROBE, local, "output")} == {0b1111}
    assert {each.mark for each in flow(state, PROBE, local, "prerouting")} == {0b1101100}
    assert {each.mark for each in flow(state, PROBE, Locality(), "prerouting")} == {0b110110}
    assert {each.mark for each in flow(state, PROBE, Locality(), "output")} == {0b11}


def test_rules_of_text_and_tables_that_sleep_are_not_followed() -> None:
    state = State("ip", "t", chains=(Chain("in", (Rule("accept", "all"),), Hook("filter", "prerouting", 0)),))
    with pytest.raises(ValueError, match="rules without code"):
        flow(state, PROBE, Locality())
    with pytest.raises(ValueError, match="is not in force"):
        flow(msgspec.structs.replace(state, dormant=True), PROBE, Locality())


def test_the_element_for_all_other_keys_is_found() -> None:
    code = (OF, Lookup("map", 0, to=1), Compare(1, number(7)), Go("drop"))
    state = State(
        "ip",
        "t",
        chains=(Chain("in", (Rule("drop", "all", code),), Hook("filter", "prerouting", 0)),),
        sets=SETS,
        elements={"map": Table.of({b"": number(7)})},
    )
    assert {each.verdict for each in flow(state, PROBE, Locality())} == {"drop"}
