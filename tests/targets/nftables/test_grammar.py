"""The rule language that the fake reads: every form that our writers emit, and clear refusals of all others."""

from ipaddress import ip_address, ip_network

import pytest

from podgate.model.machine import Family
from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Dnat,
    Drop,
    InterfaceIn,
    Jump,
    Masquerade,
    Match,
    PortIn,
    ProtocolIn,
    Return,
    Snat,
    Verdict,
    VerdictMap,
    network_range,
)
from podgate.model.table import Table
from podgate.targets.nftables.grammar import GrammarError, read_rule
from podgate.targets.nftables.state import MEMBER, Chain, Rule, Set, State, address, interval

TEN = network_range(ip_network("10.0.0.0/8"))
ONE = (int(ip_address("192.0.2.1")),) * 2
FC = network_range(ip_network("fc00::/7"))


def table(family: Family) -> State:
    kind = "ipv4_addr" if family == "ip" else "ipv6_addr"
    networks = ip_network("10.0.0.0/8") if family == "ip" else ip_network("fc00::/7")
    return State(
        family,
        "t",
        chains=(Chain("base"), Chain("other")),
        sets=(
            Set("keep", (kind,), ("interval",)),
            Set("hosts", (kind,)),
            Set("map", (kind,), ("interval",), data=("verdict",)),
            Set("ports", ("inet_service",)),
        ),
        elements={
            "keep": Table.of({interval(networks): MEMBER}),
            "hosts": Table.of({address(ip_address("192.0.2.1")): MEMBER} if family == "ip" else {}),
            "map": Table.of({interval(networks): "goto other"}),
        },
    )


@pytest.mark.parametrize(
    ("text", "found", "verdict"),
    [
        ("fib saddr type local return", [AddressTypeIn("saddr", frozenset(["local"]))], Return()),
        (
            "fib daddr type { local, broadcast, anycast, multicast } return",
            [AddressTypeIn("daddr", frozenset(["local", "broadcast", "anycast", "multicast"]))],
            Return(),
        ),
        ("fib daddr type != local drop", [AddressTypeIn("daddr", frozenset(["local"]), negated=True)], Drop()),
        ("ip daddr @keep return", [AddressIn("daddr", 4, (TEN,))], Return()),
        ("ip saddr != @hosts accept", [AddressIn("saddr", 4, (ONE,), negated=True)], Accept()),
        ("ip saddr 10.0.0.0/8 accept", [AddressIn("saddr", 4, (TEN,))], Accept()),
        ("ip saddr { 10.0.0.0/8, 192.0.2.1 } accept", [AddressIn("saddr", 4, (TEN, ONE))], Accept()),
        ("ip saddr 10.0.0.0-10.255.255.255 accept", [AddressIn("saddr", 4, (TEN,))], Accept()),
        ("ip daddr vmap @map", [], VerdictMap("daddr", 4, ((*TEN, Jump("other", comes_back=False)),))),
        ("meta l4proto { tcp, udp, sctp } accept", [ProtocolIn(frozenset(["tcp", "udp", "sctp"]))], Accept()),
        ("meta l4proto != tcp accept", [ProtocolIn(frozenset(["tcp"]), negated=True)], Accept()),
        ("ip protocol tcp accept", [ProtocolIn(frozenset(["tcp"]))], Accept()),
        ("numgen random mod 4 < 1 accept", [Chance(0.25)], Accept()),
        ('oifname "eth0" accept', [InterfaceIn("oifname", frozenset(["eth0"]))], Accept()),
        (
            'iifname != { "cni*", lo } accept',
            [InterfaceIn("iifname", frozenset(["cni*", "lo"]), negated=True)],
            Accept(),
        ),
        ("th dport { 80, 443 } drop", [PortIn("dport", ((80, 80), (443, 443)))], Drop()),
        ("tcp sport 1-1023 drop", [PortIn("sport", ((1, 1023),), protocols=frozenset(["tcp"]))], Drop()),
        ("jump other", [], Jump("other")),
        ("goto other", [], Jump("other", comes_back=False)),
        ("counter masquerade", [], Masquerade()),
        ("masquerade random", [], Masquerade(random=True)),
        ("masquerade to :1024-2000 fully-random", [], Masquerade((1024, 2000), fully_random=True)),
        ("masquerade to :1024", [], Masquerade((1024, 1024))),
        ("snat to 192.0.2.1", [], Snat(ip_address("192.0.2.1"))),
        ("snat ip to 192.0.2.1:5-9 fully-random", [], Snat(ip_address("192.0.2.1"), (5, 9), fully_random=True)),
        ("dnat to 192.0.2.1:8080", [], Dnat(ip_address("192.0.2.1"), 8080)),
    ],
)
def test_a_rule_of_the_ip_family(text: str, found: list[Match], verdict: Verdict | VerdictMap) -> None:
    read = read_rule(Rule(text, "why"), table("ip"))
    assert (list(read.matches), read.verdict, read.comment) == (found, verdict, "why")


@pytest.mark.parametrize(
    ("text", "found", "verdict"),
    [
        ("ip6 daddr @keep return", [AddressIn("daddr", 6, (FC,))], Return()),
        ("ip6 daddr fc00::/7 return", [AddressIn("daddr", 6, (FC,))], Return()),
        ("dnat to [fd00::1]:8080", [], Dnat(ip_address("fd00::1"), 8080)),
        ("snat to fd00::1", [], Snat(ip_address("fd00::1"))),
    ],
)
def test_a_rule_of_the_ip6_family(text: str, found: list[Match], verdict: Verdict) -> None:
    read = read_rule(Rule(text, "why"), table("ip6"))
    assert (list(read.matches), read.verdict) == (found, verdict)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ct state new accept", "does not know the word `ct`"),
        ("meta mark 1 accept", "does not know the word `mark`"),
        ("ip ttl 1 accept", "does not know the word `ttl`"),
        ("accept drop", "does not know the word `drop` after the verdict"),
        ("masquerade persistent", "does not know the word `persistent` after masquerade"),
        ("fib saddr oif 1 accept", "does not know the word `oif` where `type` was expected"),
        ("fib saddr type lcoal return", r"unknown address types \['lcoal'\]"),
        ("meta l4proto tpc accept", r"unknown protocols \['tpc'\]"),
        ("ip saddr 10.0.0.1/8 accept", "`10.0.0.1/8` is not an address or network"),
        ("ip6 saddr fc00::/7 accept", "looks at ip6 in a table of family ip"),
        ("ip saddr @nowhere accept", "set nowhere, which the table does not have"),
        ("ip saddr @map accept", "uses map map as a set"),
        ("ip saddr vmap @keep", "keep, which is not a verdict map"),
        ("ip saddr @ports accept", "looks up single addresses only, not ports"),
        ("jump nowhere", "chain nowhere, which the table does not have"),
        ("th dport http drop", "`http` is not a port"),
        ("numgen random mod 4 < 4 accept", "4 of 4 is no chance"),
        ("numgen random mod all < 4 accept", "`all` is not a number"),
        ("numgen inc mod 4 < 1 accept", "does not know the word `inc`"),
        ("ip saddr", "ends too early"),
        ("dnat to 192.0.2.1:1-2", "one address and port only"),
    ],
)
def test_what_is_not_known_is_named(text: str, complaint: str) -> None:
    with pytest.raises(GrammarError, match=complaint):
        read_rule(Rule(text, "why"), table("ip"))
