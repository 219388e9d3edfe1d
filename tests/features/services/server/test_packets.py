"""What rules of iptables counted, read from the kernel."""

import pytest

from podgate.features.services.backends import Choice
from podgate.features.services.server.packets import packet_readings
from podgate.features.services.to_iptables import LOOPBACK_COUNTED
from tests.support.netns import netns

pytestmark = pytest.mark.kernel

INVALID = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"
LOOPBACK = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total"

FILTER = """*filter
:KUBE-FORWARD - [0:0]
-A OUTPUT -j KUBE-FORWARD
-A KUBE-FORWARD -p udp -m udp --dport 9 -j DROP
-A KUBE-FORWARD -p udp -m udp --dport 7 -j ACCEPT
COMMIT
"""
NAT = f"""*nat
:KUBE-POSTROUTING - [0:0]
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m conntrack --ctorigdst 127.0.0.0/8 -m comment --comment "{LOOPBACK_COUNTED}"
-A KUBE-POSTROUTING -p udp -m udp --dport 7 -m comment --comment "others"
COMMIT
"""

SENDS = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for port in (9, 9, 7, 8):
        with socket.socket(family, socket.SOCK_DGRAM) as sending:
            try:
                sending.sendto(b"x", (address, port))
            except OSError:
                pass  # what is dropped on its way out is told
"""


def test_packets_are_counted_that_a_rule_dropped_or_that_one_rule_met() -> None:
    with netns() as node:
        for program, tables in (("iptables-nft", FILTER + NAT), ("ip6tables-nft", FILTER)):
            node.run(f"{program}-restore", text=tables)
        node.run("python3", "-c", SENDS)
        found = node.call(lambda: {each.name: each.value for each in packet_readings(Choice("nft"))})
    assert found == {INVALID: 4, LOOPBACK: 2}, "of both families; of IPv4"


def test_where_there_are_no_rules_nothing_was_counted() -> None:
    with netns() as node:
        found = node.call(lambda: {each.name: each.value for each in packet_readings(Choice("nft"))})
    assert found == {INVALID: 0, LOOPBACK: 0}


@pytest.mark.parametrize("backend", ["nftables", "legacy"])
def test_of_other_back_ends_nothing_is_told(backend: str) -> None:
    assert list(packet_readings(Choice(backend))) == []  # type: ignore[arg-type]  # of the literals
