"""Rules in the kernel that lead a Service's address on, whoever wrote them, and the ranges that ours remember."""

from ipaddress import ip_address

import pytest

from podgate.features.services.addresses import span
from podgate.features.services.server.standing_rules import has_rules, is_in, remembered_ranges
from podgate.linux.iptables import legacy_tables
from tests.support.netns import NetNamespace, netns
from tests.support.service_rules import OURS

pytestmark = pytest.mark.kernel

THEIRS = """
table ip kube-proxy {
    chain service-x { counter; }
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 443 : goto service-x };
    }
}
table ip6 kube-proxy {
    chain service-x { counter; }
    map service-ips {
        type ipv6_addr . inet_proto . inet_service : verdict; elements = { fd00:96::1 . tcp . 443 : goto service-x };
    }
}
"""
LISTING = """*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
-A KUBE-SERVICES -d {address} -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 \
-j KUBE-SVC-NPX46M4PTMTKRN6Y
COMMIT
"""
FOUR, SIX = "10.96.0.1/32", "fd00:96::1/128"


def nft(namespace: NetNamespace, text: str) -> None:
    namespace.run("nft", "-f", "-", text=text)


def iptables(namespace: NetNamespace, binary: str) -> None:
    namespace.run(f"iptables-{binary}-restore", text=LISTING.format(address=FOUR))
    namespace.run(f"ip6tables-{binary}-restore", text=LISTING.format(address=SIX))


def ipvs(namespace: NetNamespace) -> None:
    # Not every kernel has dummy devices; it is known by its name.
    namespace.run("ip", "link", "add", "kube-ipvs0", "type", "bridge")
    for address in (FOUR, SIX):
        namespace.run("ip", "address", "add", address, "dev", "kube-ipvs0")


WITHOUT_ENDPOINTS = (
    OURS.replace("map service-ips", "set rejected").replace(" : mark", "").replace(" : 3", "").replace(" : 1 ", " ")
)

WRITERS = {
    "ours": lambda namespace: nft(namespace, OURS),
    "ours, without endpoints": lambda namespace: nft(namespace, WITHOUT_ENDPOINTS),
    "kube-proxy in nftables": lambda namespace: nft(namespace, THEIRS),
    "kube-proxy in iptables-nft": lambda namespace: iptables(namespace, "nft"),
    "kube-proxy in iptables-legacy": lambda namespace: iptables(namespace, "legacy"),
    "kube-proxy in ipvs": ipvs,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_rules_of_any_writer_count_for_their_address_alone(writer: str) -> None:
    asked = [("10.96.0.1", 443), ("fd00:96::1", 443), ("10.96.0.10", 443), ("10.96.0.1", 6443), ("fd00:96::1", 44)]
    with netns() as namespace:
        WRITERS[writer](namespace)
        found = namespace.call(lambda: [has_rules(ip_address(address).packed, port) for address, port in asked])
    # The device of mode ipvs tells no ports.
    assert found == [True, True, False, *[writer == "kube-proxy in ipvs"] * 2]


def test_looking_makes_nothing() -> None:
    with netns() as namespace:
        assert not namespace.call(lambda: has_rules(bytes((10, 96, 0, 1)), 443))
        assert namespace.call(remembered_ranges) == ()
        assert namespace.run("nft", "list", "ruleset") == ""
        assert namespace.call(lambda: legacy_tables("ip")) == frozenset()


def test_our_tables_remember_the_ranges_of_both_families() -> None:
    with netns() as namespace:
        nft(namespace, OURS)
        found = namespace.call(remembered_ranges)
    assert set(found) == {span(text) for text in ("10.96.0.0/12", "10.4.0.0/24", "fd00:96::/112")}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "a b" -m tcp --dport 443 -j KUBE-SVC-X', True),
        ("-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVL-X", True),
        ("-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 4430 -j KUBE-SVC-X", False),
        ("-A KUBE-SERVICES -d 110.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-X", False),
        ("-A KUBE-SERVICES -d 10.96.0.1/32 -p udp -m udp --dport 443 -j KUBE-SVC-X", False),
        ("-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-MARK-MASQ", False),
        (
            "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j REJECT --reject-with icmp-port-unreachable",
            True,
        ),
        ("-A OTHER -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-X", False),
    ],
)
def test_rules_of_iptables(rule: str, expected: bool) -> None:
    assert is_in(f"*nat\n{rule}\nCOMMIT\n", bytes((10, 96, 0, 1)), 443) is expected
