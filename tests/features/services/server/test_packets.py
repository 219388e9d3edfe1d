"""What rules counted, read from the kernel."""

from contextlib import ExitStack, closing
from functools import partial

import pytest

from podgate.features.services.backends import Choice
from podgate.features.services.intent import FAMILIES, FamilyIntent, NodeWide, ServicePort
from podgate.features.services.layout import PROTOCOLS
from podgate.features.services.server.packets import packet_readings
from podgate.features.services.to_iptables import LOOPBACK_COUNTED
from podgate.features.services.to_nftables import TABLE, Writer
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State
from tests.support.netns import netns
from tests.support.nftables_target import load_state

pytestmark = pytest.mark.kernel

INVALID = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"
LOOPBACK = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total"
REFUSED = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"

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
import sys
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for port in map(int, sys.argv[1:]):
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
        node.run("python3", "-c", SENDS, "9", "9", "7", "8")
        found = node.call(lambda: {each.name: each.value for each in packet_readings(Choice("nft"))})
    assert found == {INVALID: 4, LOOPBACK: 2}, "of both families; of IPv4"


def test_where_there_are_no_rules_nothing_was_counted() -> None:
    with netns() as node:
        found = node.call(lambda: {each.name: each.value for each in packet_readings(Choice("nft"))})
    assert found == {INVALID: 0, LOOPBACK: 0}


def test_of_iptables_legacy_nothing_is_told() -> None:
    assert list(packet_readings(Choice("legacy"))) == []


def table(family: Family, *, proxied: bool) -> State:
    """Give the table of a Service with a node port of each protocol, 30053, and one without endpoints, 30054."""
    address = b"\x0a\x60\x00\x0a" if family == "ip" else bytes(15) + b"\x0a"
    endpoint = (address[:-1] + b"\x0b\x00\x35",)
    ports = [
        ServicePort(f"shop/dns:{protocol}", protocol, 53, address, node_port=30053, cluster=endpoint, anywhere=True)
        for protocol in PROTOCOLS
    ]
    ports.append(ServicePort("shop/dns:none", "udp", 54, address, node_port=30054))
    services = Table.of({ObjectRef("Service", "dns", "shop"): tuple(ports)})
    return Writer(family)(FamilyIntent(family, NodeWide(localhost=proxied, proxied=proxied), services))


@pytest.mark.parametrize("proxied", [True, False])
def test_packets_to_node_ports_on_loopback_are_counted_that_are_refused_since_only_tcp_is_answered(
    *, proxied: bool
) -> None:
    with netns() as node, ExitStack() as stack:
        for family in FAMILIES:
            target = stack.enter_context(closing(NftablesTarget(family, TABLE, namespace=node.descriptor)))
            node.run_async(partial(load_state, target, table(family, proxied=proxied)))
        node.run("python3", "-c", SENDS, "30053", "30053", "30054", "9")
        assert ("counter packets 2" in node.run("nft", "list", "table", "ip", TABLE)) is proxied
        found = node.call(lambda: list(packet_readings(Choice())))
    assert {tuple(value for _, value in each.labels): each.value for each in found if each.name == REFUSED} == {
        ("IPv4", "UDP"): 2 * proxied,
        ("IPv4", "SCTP"): 0,
        ("IPv6", "UDP"): 2 * proxied,
        ("IPv6", "SCTP"): 0,
    }
