"""What rules do to packets: each kind of match, each verdict, and the words of a trace."""

from ipaddress import ip_address, ip_network

import pytest

from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Drop,
    InterfaceIn,
    Jump,
    Locality,
    Masquerade,
    Match,
    Packet,
    PacketChain,
    PacketRule,
    PortIn,
    ProtocolIn,
    Return,
    VerdictMap,
    matches,
    network_range,
    trace,
)

PACKET = Packet(
    ip_address("10.244.1.2"), ip_address("203.0.113.5"), "udp", 4000, 53, in_interface="pod0", out_interface="eth0"
)
LOCALITY = Locality(
    local=frozenset([ip_address("192.0.2.1")]),
    broadcast=frozenset([ip_address("192.0.2.255")]),
    anycast=frozenset([ip_address("fd00::")]),
)
TEN = (network_range(ip_network("10.0.0.0/8")),)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("192.0.2.1", "local"),
        ("127.5.5.5", "local"),
        ("::1", "local"),
        ("192.0.2.255", "broadcast"),
        ("255.255.255.255", "broadcast"),
        ("224.0.0.251", "multicast"),
        ("ff02::fb", "multicast"),
        ("fd00::", "anycast"),
        ("203.0.113.5", "unicast"),
        ("fd00::1", "unicast"),
    ],
)
def test_the_type_of_an_address(address: str, kind: str) -> None:
    assert LOCALITY.type_of(ip_address(address)) == kind


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        (AddressIn("saddr", 4, TEN), True),
        (AddressIn("daddr", 4, TEN), False),
        (AddressIn("daddr", 4, TEN, negated=True), True),
        (AddressIn("saddr", 6, ((0, 1 << 127),)), False),
        (AddressIn("saddr", 6, (), negated=True), False),
        (AddressTypeIn("daddr", frozenset(["unicast"])), True),
        (AddressTypeIn("daddr", frozenset(["local", "multicast"])), False),
        (AddressTypeIn("daddr", frozenset(["local"]), negated=True), True),
        (ProtocolIn(frozenset(["tcp", "udp"])), True),
        (ProtocolIn(frozenset(["udp"]), negated=True), False),
        (InterfaceIn("oifname", frozenset(["eth0"])), True),
        (InterfaceIn("iifname", frozenset(["eth0"])), False),
        (InterfaceIn("iifname", frozenset(["pod*"])), True),
        (InterfaceIn("iifname", frozenset(["lo"]), negated=True), True),
        (PortIn("dport", ((53, 53), (80, 90))), True),
        (PortIn("sport", ((53, 53),)), False),
        (PortIn("sport", ((53, 53),), negated=True), True),
        (PortIn("dport", ((53, 53),), protocols=frozenset(["tcp"])), False),
    ],
)
def test_a_match(match: Match, holds: bool) -> None:
    assert matches(match, PACKET, LOCALITY) is holds


def test_protocols_without_ports_match_no_port() -> None:
    echo = Packet(ip_address("10.0.0.1"), ip_address("10.0.0.2"), "icmp")
    assert not matches(PortIn("dport", ((0, 65535),), negated=True), echo, LOCALITY)


def rule(text: str, verdict: object, *found: Match) -> PacketRule:
    return PacketRule(text, found, verdict, f"why {text}")  # type: ignore[arg-type]


def decided(chains: dict[str, PacketChain]) -> tuple[object, list[str]]:
    found = trace(chains, "base", PACKET, LOCALITY)
    return found.verdict, [step.rule.text if step.rule else "policy" for step in found.steps]


def test_the_first_verdict_wins_and_the_policy_comes_last() -> None:
    no = ProtocolIn(frozenset(["tcp"]))
    base = PacketChain((rule("a", Drop(), no), rule("b", None), rule("c", Masquerade()), rule("d", Drop())), Accept())
    assert decided({"base": base}) == (Masquerade(), ["b", "c"])
    assert decided({"base": PacketChain((), Drop())}) == (Drop(), ["policy"])
    assert decided({"base": PacketChain((rule("back", Return()), rule("c", Drop())), Accept())}) == (
        Accept(),
        ["back", "policy"],
    )


def test_a_jump_comes_back_and_a_goto_does_not() -> None:
    inner = PacketChain((rule("inner", Return()),))
    after = rule("after", Drop())
    jumping = {"base": PacketChain((rule("jump", Jump("inner")), after), Accept()), "inner": inner}
    assert decided(jumping) == (Drop(), ["jump", "inner", "after"])
    going = {"base": PacketChain((rule("goto", Jump("inner", comes_back=False)), after), Accept()), "inner": inner}
    assert decided(going) == (Accept(), ["goto", "inner", "policy"])


def test_a_verdict_map_that_does_not_know_the_address_is_passed_over() -> None:
    known = VerdictMap("saddr", 4, ((*TEN[0], Drop()),))
    unknown = VerdictMap("daddr", 4, ((*TEN[0], Drop()),))
    assert decided({"base": PacketChain((rule("u", unknown), rule("k", known)), Accept())}) == (Drop(), ["k"])


def test_a_trace_says_which_rule_decided() -> None:
    chains = {"base": PacketChain((rule("masquerade", Masquerade(ports=(1, 2))),), Accept())}
    found = trace(chains, "base", PACKET, LOCALITY)
    assert str(found.decided) == "base: masquerade  # why masquerade"
    assert str(PACKET) == "udp 10.244.1.2:4000 -> 203.0.113.5:53"


def test_loops_and_missing_chains_are_errors() -> None:
    with pytest.raises(ValueError, match="is there a loop"):
        decided({"base": PacketChain((rule("again", Jump("base")),), Accept())})
    with pytest.raises(ValueError, match="chain gone, which is not there"):
        decided({"base": PacketChain((rule("jump", Jump("gone")),), Accept())})
    with pytest.raises(ValueError, match="has no policy"):
        decided({"base": PacketChain(())})


def test_each_rule_of_chance_draws_for_itself_and_only_when_it_is_reached() -> None:
    first = rule("half", Masquerade((1, 2)), Chance(0.5))
    udp_only = rule("never met", Drop(), ProtocolIn(frozenset(["tcp"])), Chance(1.0))
    chains = {"base": PacketChain((udp_only, first, rule("rest", Masquerade((3, 4)), Chance(0.25))), Accept())}

    def ports(*draws: float) -> object:
        return getattr(trace(chains, "base", PACKET, LOCALITY, draws).verdict, "ports", None)

    assert ports(0.49) == (1, 2)
    assert ports(0.5, 0.24) == (3, 4)
    assert ports(0.5, 0.25) is None
    assert ports() is None
