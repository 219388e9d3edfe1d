"""Which rules of others are said to translate what we keep (T29), by their text in the form of nft and of iptables."""

from ipaddress import ip_network

import pytest

from podgate.features.masquerade.foreign import competing
from podgate.features.masquerade.prefixes import span_of
from podgate.joints import ForeignRule
from podgate.model.machine import Family

PODS = (span_of(ip_network("10.244.1.0/24")),)
KEPT = (span_of(ip_network("10.0.0.0/8")), span_of(ip_network("169.254.0.0/16")))

ROWS = [
    # table, chain, rule, whether it competes
    ("ip nat", "POSTROUTING", "-o eth0 -j MASQUERADE", True),
    ("ip nat", "POSTROUTING", "-j SNAT --to-source 192.0.2.1", True),
    ("ip nat", "OPENSHIFT-MASQUERADE", "-s 10.244.0.0/16 -j MASQUERADE", True),
    ("ip custom", "post", "ip saddr 10.244.0.0/16 masquerade", True),
    ("inet custom", "post", "ip saddr { 10.1.0.0/16, 10.244.1.0/24 } snat to 192.0.2.1", True),
    ("ip nat", "CNI-x", "! -d 224.0.0.0/4 -m comment --comment x -j MASQUERADE", True),
    # it meets no Pod of ours, or no destination that is kept
    ("ip nat", "POSTROUTING", "-s 172.17.0.0/16 ! -o docker0 -j MASQUERADE", False),
    ("ip custom", "post", "ip saddr 192.168.122.0/24 masquerade", False),
    ("ip nat", "POSTROUTING", "-d 203.0.113.0/24 -j MASQUERADE", False),
    # marked packets are Services', and the node's own sockets are nobody's Pod
    ("ip nat", "KUBE-POSTROUTING", "-j MASQUERADE --random-fully", False),
    ("ip nat", "POSTROUTING", "-m mark --mark 0x4000/0x4000 -j MASQUERADE", False),
    ("ip nat", "POSTROUTING", "-m addrtype --src-type LOCAL -j MASQUERADE", False),
    ("ip kube-proxy", "masquerading", "masquerade fully-random", False),
    # a word in a comment translates nothing
    ("ip nat", "POSTROUTING", '-m comment --comment "no MASQUERADE here" -j ACCEPT', False),
    # a Pod that reaches itself through its Service
    ("ip nat", "CILIUM_POST_nat", "-s 10.244.1.7/32 -d 10.244.1.7/32 -j MASQUERADE", False),
    ("ip6 nat", "POSTROUTING", "-j MASQUERADE", False),
]


@pytest.mark.parametrize(("table", "chain", "text", "competes"), ROWS)
def test_which_rules_compete(table: str, chain: str, text: str, competes: bool) -> None:
    found = competing([ForeignRule(table, chain, text)], PODS, KEPT, "ip")
    assert bool(found) is competes
    if found:
        assert (found[0].reason, found[0].ref.name) == ("CompetingMasquerade", f"{table} {chain}")
        assert text in found[0].message


WHOSE = [
    ("ip nat", "IP-MASQ-AGENT", "ip-masq-agent"),
    ("ip nat", "FLANNEL-POSTRTG", "flannel"),
    ("ip nat", "AWS-SNAT-CHAIN-0", "AWS"),
    ("inet cni_plugins_masquerade", "post", "network plugin"),
    ("ip nat", "POSTROUTING", "another program"),
]


@pytest.mark.parametrize(("table", "chain", "who"), WHOSE)
def test_it_says_whose_rule_it_seems_to_be(table: str, chain: str, who: str) -> None:
    family: Family = "ip"
    (problem,) = competing([ForeignRule(table, chain, "-j MASQUERADE")], (), KEPT, family)
    assert who in problem.message
