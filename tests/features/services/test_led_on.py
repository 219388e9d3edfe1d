"""Where rules lead UDP flows on: what both writers wrote is read off their states, and no more than that."""

from ipaddress import ip_address
from typing import Any, Final

import pytest

from podgate.features.services.intent import FamilyIntent, Intent, ServicePort
from podgate.features.services.led_on import led_on_by_chains, led_on_by_table
from podgate.features.services.to_iptables import Writer as IptablesWriter
from podgate.features.services.to_nftables import Writer as NftablesWriter
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.iptables.state import State

ADDRESSES: Final[dict[Family, tuple[str, str, str]]] = {
    "ip": ("10.96.0.10", "203.0.113.9", "10.1.0.1"),
    "ip6": ("fd00:96::a", "2001:db8::9", "fd00:1::1"),
}


def packed(text: str) -> bytes:
    return ip_address(text).packed


def intent(family: Family, *, many: bool = False) -> FamilyIntent:
    """Give Services of UDP and TCP at every kind of address, one of them without endpoints."""
    cluster_ip, external, pod = (packed(each) for each in ADDRESSES[family])
    ends = tuple(sorted(pod[:-2] + number.to_bytes(2) + b"\x14\xe9" for number in range(1, 1202 if many else 3)))
    used: dict[str, Any] = {
        "cluster": ends,
        "local": ends[:1],
        "external_local": True,
        "anywhere": True,
        "serving": ends,
    }
    return FamilyIntent(
        family,
        ports=Table.of(
            {
                ObjectRef("Service", "dns", "kube-system"): (
                    ServicePort("kube-system/dns:u", "udp", 53, cluster_ip, (external,), 30053, **used),
                    ServicePort("kube-system/dns:t", "tcp", 54, cluster_ip, (external,), 30054, **used),
                ),
                ObjectRef("Service", "idle", "shop"): (
                    ServicePort("shop/idle:u", "udp", 55, cluster_ip, (external,), 30055),
                ),
            }
        ),
    )


def expected(family: Family) -> set[tuple[bytes, int]]:
    cluster_ip, external, _ = ADDRESSES[family]
    return {(packed(cluster_ip), 53), (packed(external), 53), (b"", 30053)}


@pytest.mark.parametrize("family", ADDRESSES)
def test_a_table_leads_on_what_has_endpoints(family: Family) -> None:
    assert led_on_by_table(NftablesWriter(family)(intent(family))) == expected(family)
    assert led_on_by_table(NftablesWriter(family)(None)) == set()


@pytest.mark.parametrize("many", [False, True], ids=["with comments", "above 1,000 endpoints, without comments"])
@pytest.mark.parametrize("family", ADDRESSES)
def test_chains_lead_on_what_has_endpoints(family: Family, *, many: bool) -> None:
    part = intent(family, many=many)
    written = IptablesWriter(family, "nft")(Intent(ip=part) if family == "ip" else Intent(ip6=part))["nat"]
    assert any("--comment" in words for words in written.named["KUBE-SERVICES"][:-1]) is not many
    assert led_on_by_chains(written) == expected(family)


OTHERS: Final = {
    # A rule of KUBE-SERVICES or KUBE-NODEPORTS, and what it leads on.
    "kube-proxy's, of a cluster IP": (
        '-d 10.96.0.10/32 -p udp -m comment --comment "kube-system/dns:u cluster IP" -m udp --dport 53 -j KUBE-SVC-A',
        {(packed("10.96.0.10"), 53)},
    ),
    "kube-proxy's up to 1.23, of a node port with a local policy": (
        '-p udp -m comment --comment "kube-system/dns:u" -m udp --dport 30053 -j KUBE-XLB-A',
        {(b"", 30053)},
    ),
    "kube-proxy's up to 1.23, which masquerades": (
        '! -s 10.1.0.0/16 -d 10.96.0.10/32 -p udp -m comment --comment "dns" -m udp --dport 53 -j KUBE-MARK-MASQ',
        set(),
    ),
    "somebody's, to a chain of his own": ("-d 192.0.2.1/32 -p udp -m udp --dport 53 -j MINE", set()),
    "somebody's, of a range of ports": ("-p udp -m udp --dport 1:65535 -j KUBE-SVC-A", set()),
    "somebody's, for one sender": ("-s 192.0.2.9/32 -p udp -m udp --dport 53 -j KUBE-SVC-A", set()),
    "somebody's, without any port": ("-j KUBE-SVC-A", set()),
}


@pytest.mark.parametrize(("words", "leads_on"), OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("chain", ["KUBE-SERVICES", "KUBE-NODEPORTS"])
def test_rules_that_others_wrote(chain: str, words: str, leads_on: set[tuple[bytes, int]]) -> None:
    assert led_on_by_chains(State("ip", "nft", named=Table.of({chain: (words,)}))) == leads_on
