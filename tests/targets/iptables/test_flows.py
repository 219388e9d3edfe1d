"""A packet on its way through tables: each draw of chance, marks, translation, and what is not known."""

from ipaddress import ip_address

import pytest

from podgate.model.packet import Locality, Outcome, Packet
from podgate.targets.iptables.flows import EntryChain, flow
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import TableName

OWN = Locality(frozenset((ip_address("10.0.0.1"),)))
PACKET = Packet(ip_address("10.0.0.9"), ip_address("10.96.0.1"), "tcp", 1234, 80)
TO = (ip_address("10.1.0.1"), 8080)


def came(rules: dict[tuple[TableName, str], list[str]], entry: EntryChain = "PREROUTING") -> frozenset[Outcome]:
    tables: dict[TableName, dict[str, tuple[object, ...]]] = {}
    for (table, chain), texts in rules.items():
        tables.setdefault(table, {})[chain] = tuple(read_rule(text, "ip") for text in texts)
    return flow(tables, PACKET, OWN, entry)  # type: ignore[arg-type]


DNAT = "-p tcp -m tcp -j DNAT --to-destination 10.1.0.1:8080"


def test_a_packet_that_no_rule_matches_passes() -> None:
    assert came({("nat", "PREROUTING"): ["-p udp -j DROP"]}) == {Outcome("accept")}


def test_chance_gives_an_outcome_each_way() -> None:
    half = "-m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.1.0.2:8080"
    assert {each.endpoint for each in came({("nat", "PREROUTING"): [f"-p tcp {half}", DNAT]})} == {
        TO,
        (ip_address("10.1.0.2"), 8080),
    }


def test_what_follows_a_translation_sees_the_endpoint() -> None:
    rules: dict[tuple[TableName, str], list[str]] = {
        ("nat", "PREROUTING"): ["-j MARK --set-xmark 0x4000/0x4000", DNAT],
        ("filter", "FORWARD"): ["-d 10.96.0.1/32 -j DROP", "-m conntrack --ctstate NEW -j ACCEPT", "-j DROP"],
        ("nat", "POSTROUTING"): [
            "-m mark ! --mark 0x4000/0x4000 -j RETURN",
            "-j MARK --set-xmark 0x4000/0x0",
            "-j MASQUERADE --random-fully",
        ],
    }
    assert came(rules) == {Outcome("accept", TO, masqueraded=True)}


def test_the_way_depends_on_where_it_goes() -> None:
    rules: dict[tuple[TableName, str], list[str]] = {
        ("nat", "OUTPUT"): [DNAT],
        ("filter", "INPUT"): ["-j DROP"],
        ("filter", "FORWARD"): ["-j DROP"],
        ("filter", "OUTPUT"): ["-d 10.1.0.1/32 -j REJECT --reject-with icmp-port-unreachable"],
    }
    assert came(rules, "OUTPUT") == {Outcome("reject")}
    assert came({**rules, ("filter", "OUTPUT"): []}, "OUTPUT") == {Outcome("accept", TO)}
    assert came({**rules, ("nat", "PREROUTING"): ["-p tcp -j DNAT --to-destination 10.0.0.1:80"]}) == {Outcome("drop")}


def test_a_goto_does_not_come_back() -> None:
    rules: dict[tuple[TableName, str], list[str]] = {
        ("nat", "PREROUTING"): ["-j A"],
        ("nat", "A"): ["-g B", DNAT],
        ("nat", "B"): ["-p udp -j DROP"],
    }
    assert came(rules) == {Outcome("accept")}
    assert came({**rules, ("nat", "A"): ["-j B", DNAT]}) == {Outcome("accept", TO)}


def test_nobody_was_seen_before() -> None:
    recent = "--name A --mask 255.255.255.255 --rsource"
    rules = [f"-m recent --rcheck --seconds 60 --reap {recent} -j DROP", f"-p tcp -m recent --set {recent} {DNAT[7:]}"]
    assert came({("nat", "PREROUTING"): rules}) == {Outcome("accept", TO)}


@pytest.mark.parametrize("text", ["-m owner --uid-owner 0 -j DROP", "-j TPROXY --on-port 1", "-j MARK --set-mark 0x1"])
def test_what_is_not_known_is_no_guess(text: str) -> None:
    with pytest.raises(ValueError, match="nobody knows here"):
        came({("nat", "PREROUTING"): [text]})


def test_a_loop_is_an_error() -> None:
    with pytest.raises(ValueError, match="loop"):
        came({("nat", "PREROUTING"): ["-j A"], ("nat", "A"): ["-j A"]})
