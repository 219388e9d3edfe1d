"""Rules are read as iptables-save shows them and as podgate writes them; what is not known stays text."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.model.machine import Family
from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    InterfaceIn,
    Jump,
    Masquerade,
    PortIn,
    ProtocolIn,
    Return,
    Snat,
)
from podgate.targets.iptables.grammar import GrammarError, read_rule
from podgate.targets.iptables.state import Match, OtherMatch, OtherTarget, RuleTarget
from podgate.targets.iptables.words import rule_words
from tests.support.iptables_states import FAMILIES, inside, rules, targets

TCP = ProtocolIn(frozenset(("tcp",)))

READ: dict[str, tuple[tuple[Match, ...], RuleTarget | None, str]] = {
    "": ((), None, ""),
    "-d 10.0.0.0/8 -m comment --comment ip -j RETURN": ((inside("daddr", "10.0.0.0/8"),), Return(), "ip"),
    "-s 10.1.2.3 -j ACCEPT": ((inside("saddr", "10.1.2.3/32"),), Accept(), ""),
    "-p tcp -d 10.1.2.3 --dport 80 -j ACCEPT": (
        (TCP, PortIn("dport", ((80, 80),)), inside("daddr", "10.1.2.3/32")),
        Accept(),
        "",
    ),
    "! -d 1.2.3.4/32 -p gre -j ACCEPT": (
        (inside("daddr", "1.2.3.4/32", negated=True), ProtocolIn(frozenset(("gre",)))),
        Accept(),
        "",
    ),
    '-m comment --comment "\\"old: said\\" it\\\'s" -j X': ((), Jump("X"), '"old: said" it\'s'),
    "-g X": ((), Jump("X", comes_back=False), ""),
    "-o eth+ ! -i lo": (
        (InterfaceIn("oifname", frozenset(("eth*",))), InterfaceIn("iifname", frozenset(("lo",)), negated=True)),
        None,
        "",
    ),
    "-m addrtype ! --dst-type LOCAL -j X": (
        (AddressTypeIn("daddr", frozenset(("local",)), negated=True),),
        Jump("X"),
        "",
    ),
    "-m addrtype --src-type LOCAL --dst-type LOCAL,MULTICAST": (
        (AddressTypeIn("saddr", frozenset(("local",))), AddressTypeIn("daddr", frozenset(("local", "multicast")))),
        None,
        "",
    ),
    "-p tcp -m tcp --dport 80:90": ((TCP, PortIn("dport", ((80, 90),))), None, ""),
    "-p tcp -m tcp": ((TCP,), None, ""),
    "-p 6 -m multiport ! --sports 90:95,80": ((TCP, PortIn("sport", ((80, 80), (90, 95)), negated=True)), None, ""),
    "-m iprange --dst-range 10.0.0.1-10.0.0.9": (
        (AddressIn("daddr", 4, ((int(IPv4Address("10.0.0.1")), int(IPv4Address("10.0.0.9"))),)),),
        None,
        "",
    ),
    "-p tcp -m statistic --mode random --probability 0.46929256292 -j MASQUERADE --to-ports 1-29999 --random-fully": (
        (TCP, Chance(0.46929256292)),
        Masquerade((1, 29999), fully_random=True),
        "",
    ),
    "-j MASQUERADE --random-fully -p tcp -m statistic --mode random --probability 0.5 --to-ports 1024": (
        (TCP, Chance(0.5)),
        Masquerade((1024, 1024), fully_random=True),
        "",
    ),
    "-j MASQUERADE --random": ((), Masquerade(random=True), ""),
    "-p udp -j SNAT --to-source 192.0.2.1:1024-2000 --random-fully": (
        (ProtocolIn(frozenset(("udp",))),),
        Snat(IPv4Address("192.0.2.1"), (1024, 2000), fully_random=True),
        "",
    ),
    # What podgate never writes:
    "-m mark --mark 0x4000/0x4000 -j MARK --set-xmark 0x4000/0x0": (
        (OtherMatch("-m mark --mark 0x4000/0x4000"),),
        OtherTarget("MARK", "--set-xmark 0x4000/0x0"),
        "",
    ),
    "-m mark ! --mark 0x1 -j X": ((OtherMatch("-m mark ! --mark 0x1"),), Jump("X"), ""),
    "-p tcp -m tcp --tcp-flags SYN,RST SYN": ((TCP, OtherMatch("-m tcp --tcp-flags SYN,RST SYN")), None, ""),
    "-m statistic --mode nth --every 2 --packet 0": (
        (OtherMatch("-m statistic --mode nth --every 2 --packet 0"),),
        None,
        "",
    ),
    "-m addrtype --dst-type LOCAL --limit-iface-out": (
        (OtherMatch("-m addrtype --dst-type LOCAL --limit-iface-out"),),
        None,
        "",
    ),
    "-m addrtype --dst-type BLACKHOLE": ((OtherMatch("-m addrtype --dst-type BLACKHOLE"),), None, ""),
    "-s 10.0.0.1/255.0.255.0": ((OtherMatch("-s 10.0.0.1/255.0.255.0"),), None, ""),
    "-j SNAT --to-source 192.0.2.1-192.0.2.5": ((), OtherTarget("SNAT", "--to-source 192.0.2.1-192.0.2.5"), ""),
    "-j SNAT --to-source 192.0.2.1 --persistent": ((), OtherTarget("SNAT", "--to-source 192.0.2.1 --persistent"), ""),
    '-j LOG --log-prefix "a b "': ((), OtherTarget("LOG", '--log-prefix "a b "'), ""),
    "-j DNAT --to-destination 1.2.3.4": ((), OtherTarget("DNAT", "--to-destination 1.2.3.4"), ""),
    "-j TRACE": ((), OtherTarget("TRACE"), ""),
}


@pytest.mark.parametrize("text", READ)
def test_a_rule(text: str) -> None:
    rule = read_rule(text, "ip")
    assert (rule.matches, rule.target, rule.comment) == READ[text]
    assert rule.text == text


def test_addresses_of_ipv6() -> None:
    rule = read_rule("-d fd00:0:0::/8 -p ipv6-icmp -j SNAT --to-source [2001:db8::1]:5-6", "ip6")
    assert rule.matches == (inside("daddr", "fd00::/8"), ProtocolIn(frozenset(("icmpv6",))))
    assert rule.target == Snat(IPv6Address("2001:db8::1"), (5, 6))
    assert read_rule("-j SNAT --to-source 2001:db8::1", "ip6").target == Snat(IPv6Address("2001:db8::1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--dport 80", "`--dport` is no option that can stand first"),
        ("-d", "`-d` needs one value"),
        ("-d 10.0.0.1 --dport 80 -p tcp", "`-d` needs one value"),
        ("-d 10.0.0.0/8 10.0.0.0/8", "`-d` needs one value"),
        ("-d fd00::/8", "`fd00::/8` is not of IPv4"),
        ("-j", "`-j` needs the name of a target"),
        ("-m", "`-m` needs the name of a module"),
    ],
)
def test_words_of_no_rule_are_refused(text: str, message: str) -> None:
    with pytest.raises(GrammarError) as refused:
        read_rule(text, "ip")
    assert message in str(refused.value)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_what_is_written_is_read_as_it_was_meant(family: Family, data: st.DataObject) -> None:
    rule = data.draw(rules(family, targets(family)))
    assert read_rule(rule_words(rule), family).form == rule.form
