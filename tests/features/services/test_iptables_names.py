"""Chains have the names that kube-proxy 1.36.3 gave to the same Services, and none is the kubelet's."""

import pytest

from podgate.features.services.addresses import packed
from podgate.features.services.intent import ServicePort
from podgate.features.services.iptables_names import NAMES, TABLES, PortChains, proxy_name


def port(name: str, number: int = 80, *, unnamed: bool = False) -> ServicePort:
    return ServicePort(name, "tcp", number, packed("10.96.0.41") or b"", unnamed=unnamed)


def endpoint(address: str, number: int = 8080) -> bytes:
    return (packed(address) or b"") + number.to_bytes(2)


def test_a_port_has_the_chains_that_kube_proxy_gives_it() -> None:
    chains = PortChains(port("shop/web:http"))
    assert (chains.cluster, chains.local, chains.external, chains.firewall) == (
        "KUBE-SVC-67NZLRHBNDSAWJRO",
        "KUBE-SVL-67NZLRHBNDSAWJRO",
        "KUBE-EXT-67NZLRHBNDSAWJRO",
        "KUBE-FW-67NZLRHBNDSAWJRO",
    )
    assert chains.endpoint(endpoint("10.180.0.1")) == "KUBE-SEP-ZZ5QQVSVEYRRQLTX"
    assert chains.endpoint(endpoint("10.180.1.1")) == "KUBE-SEP-YCI5FLUZZZWLO7SW"


def test_a_port_without_a_name_is_called_by_its_service_alone() -> None:
    unnamed = port("marker/marker-ip6-1:8080", 8080, unnamed=True)
    assert proxy_name(unnamed) == "marker/marker-ip6-1"
    assert PortChains(unnamed).cluster == "KUBE-SVC-WRG4GOQPBCSTZQDD"
    assert PortChains(unnamed).endpoint(endpoint("fd00:180::1")) == "KUBE-SEP-NHZ7XRFVYGWUXXXH"


def test_a_port_that_is_called_by_its_number_has_that_name() -> None:
    assert proxy_name(port("shop/web:80")) == "shop/web:80"


@pytest.mark.parametrize(
    "name",
    ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-FIREWALL", "KUBE-MARK-DROP", "IP-MASQ-AGENT", "CNI-HOSTPORT"],
)
def test_chains_of_others_are_not_ours(name: str) -> None:
    assert [table for table in TABLES if name in NAMES[table]] == []


IPVS = {
    "KUBE-LOAD-BALANCER": ["nat"],
    "KUBE-NODE-PORT": ["filter", "nat"],
    "KUBE-IPVS-FILTER": ["filter"],
    "KUBE-IPVS-OUT-FILTER": ["filter"],
    "KUBE-SOURCE-RANGES-FIREWALL": ["filter"],
}
"""What kube-proxy has in mode ipvs alone."""


def test_a_name_is_ours_in_the_tables_that_kube_proxy_has_it_in() -> None:
    where = {
        name: [table for table in TABLES if name in NAMES[table]]
        for name in ("KUBE-PROXY-CANARY", "KUBE-SERVICES", "KUBE-FORWARD", "KUBE-SEP-X", "KUBE-XLB-X", *IPVS)
    }
    assert where == {
        "KUBE-PROXY-CANARY": ["mangle", "filter", "nat"],
        "KUBE-SERVICES": ["filter", "nat"],
        "KUBE-FORWARD": ["filter"],
        "KUBE-SEP-X": ["nat"],
        "KUBE-XLB-X": ["nat"],
        **IPVS,
    }
