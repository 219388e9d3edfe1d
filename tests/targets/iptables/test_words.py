"""Rules as words: the order is ip-masq-agent's, and what iptables cannot say is an error."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from podgate.model.packet import (
    AddressIn,
    AddressTypeIn,
    Chance,
    Dnat,
    InterfaceIn,
    Jump,
    Masquerade,
    PortIn,
    ProtocolIn,
    Return,
    Snat,
)
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import OtherMatch, OtherTarget, Rule
from podgate.targets.iptables.words import rule_words
from tests.support.iptables_states import inside

TCP = ProtocolIn(frozenset(("tcp",)))

WRITTEN = {
    '-m comment --comment "why" -d 10.0.0.0/8 -j RETURN': Rule(Return(), (inside("daddr", "10.0.0.0/8"),), "why"),
    "-d 0.0.0.0/0 -j RETURN": Rule(Return(), (inside("daddr", "0.0.0.0/0"),)),
    "-d fe80::/10 -j RETURN": Rule(Return(), (inside("daddr", "fe80::/10"),)),
    "-m addrtype ! --dst-type LOCAL -g X": Rule(
        Jump("X", comes_back=False), (AddressTypeIn("daddr", frozenset(("local",)), negated=True),)
    ),
    "-m addrtype --dst-type LOCAL,BROADCAST,ANYCAST,MULTICAST": Rule(
        None, (AddressTypeIn("daddr", frozenset(("multicast", "anycast", "local", "broadcast"))),)
    ),
    "-j MASQUERADE --random -p tcp -m statistic --mode random --probability 0.469292562840114 --to-ports 1-9": Rule(
        Masquerade((1, 9), random=True), (TCP, Chance(28976 / 61744))
    ),
    "-m statistic --mode random --probability 0.00001": Rule(None, (Chance(0.00001),)),
    "-p tcp -o eth+ -j SNAT --to-source 192.0.2.1:5-6 --random-fully": Rule(
        Snat(IPv4Address("192.0.2.1"), (5, 6), fully_random=True), (InterfaceIn("oifname", frozenset(("eth*",))), TCP)
    ),
    "-p tcp -j SNAT --to-source [2001:db8::1]:7": Rule(Snat(IPv6Address("2001:db8::1"), (7, 7)), (TCP,)),
    "-p tcp -m multiport ! --dports 80,90:95": Rule(None, (TCP, PortIn("dport", ((80, 80), (90, 95)), negated=True))),
    "-m iprange ! --src-range 0.0.0.1-0.0.0.2": Rule(None, (AddressIn("saddr", 4, ((1, 2),), negated=True),)),
    r'-m comment --comment "say \"x\" in C:\\d"': Rule(None, (), 'say "x"\nin C:\\d'),
    "-m mark --mark 0x1 -j MARK --set-xmark 0x1/0xffffffff": Rule(
        OtherTarget("MARK", "--set-xmark 0x1/0xffffffff"), (OtherMatch("-m mark --mark 0x1"),)
    ),
}


@pytest.mark.parametrize("words", WRITTEN)
def test_a_rule(words: str) -> None:
    assert rule_words(WRITTEN[words]) == words


def test_a_rule_that_was_read_keeps_its_words() -> None:
    text = "-p tcp -m comment --comment x -m mark --mark 0x1 -j X"
    assert rule_words(read_rule(text, "ip")) == text


def test_a_comment_is_cut_to_what_the_kernel_takes() -> None:
    words = rule_words(Rule(None, (), "ü" * 200))
    assert words == f'-m comment --comment "{"ü" * 127}"'


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(None, (AddressIn("daddr", 4, ((1, 1), (3, 3))),)), "one range of addresses, not 2"),
        (Rule(None, (ProtocolIn(frozenset(("tcp", "udp"))),)), "one protocol, not tcp, udp"),
        (Rule(None, (InterfaceIn("oifname", frozenset(("a", "b"))),)), "one interface, not a, b"),
        (Rule(None, (TCP, PortIn("dport", tuple((n, n + 1) for n in range(0, 16, 2))))), "at most 15 ports"),
        (Rule(Dnat(IPv4Address("10.0.0.1"))), "change of the destination"),
    ],
)
def test_what_iptables_cannot_say_is_an_error(rule: Rule, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule_words(rule)
