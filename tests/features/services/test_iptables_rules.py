"""One port as rules: what kube-proxy 1.36.3 was seen to write for the same Services, but for the differences named."""

from typing import Any

import pytest

from podgate.features.services.addresses import packed
from podgate.features.services.intent import Guard, LocalTraffic, ServicePort
from podgate.features.services.iptables_rules import CHAINS, PortRules, Style, chance
from podgate.model.frozen import ObjectRef

PODS = LocalTraffic(("10.180.0.0/16",))
USUAL = Style("ip", PODS, node_ports=(("-d 10.140.0.1/32", ""),))


def address(text: str) -> bytes:
    return packed(text) or b""


def endpoint(text: str) -> bytes:
    return address(text) + (8080).to_bytes(2)


HERE, THERE = endpoint("10.180.0.1"), endpoint("10.180.1.1")
OWN = (address("10.180.0.1"),)


def port(**more: Any) -> ServicePort:
    given = {"cluster": (HERE, THERE), "own": OWN, "anywhere": True, **more}
    return ServicePort("shop/web:http", "tcp", 80, address("10.96.0.41"), **given)


def lines(found: ServicePort, style: Style = USUAL) -> list[str]:
    """Give rules with their chains, in the order of the chains' names."""
    items = PortRules(style)(ObjectRef("Service", "web", "shop"), (found,))
    labelled = [(str(key) if where == CHAINS else where, rules) for where, key, rules in items]
    return [f"{label} {words}" for label, rules in sorted(labelled, key=lambda row: row[0]) for words in rules]


CHANCE = "-m statistic --mode random --probability 0.50000000000"
SVC, SVL, EXT, FW = (f"KUBE-{kind}-67NZLRHBNDSAWJRO" for kind in ("SVC", "SVL", "EXT", "FW"))
ONE, OTHER = "KUBE-SEP-ZZ5QQVSVEYRRQLTX", "KUBE-SEP-YCI5FLUZZZWLO7SW"


def said(text: str) -> str:
    return f'-m comment --comment "shop/web:http{text}"'


ENDPOINTS = [
    f"{OTHER} -p tcp {said('')} -m tcp -j DNAT --to-destination 10.180.1.1:8080",
    f"{ONE} -s 10.180.0.1/32 {said('')} -j KUBE-MARK-MASQ",
    f"{ONE} -p tcp {said('')} -m tcp -j DNAT --to-destination 10.180.0.1:8080",
]
"""kube-proxy has a rule for masquerade for endpoints of other nodes too, which cannot reach themselves through here."""


def test_a_cluster_ip_leads_to_one_of_two_endpoints() -> None:
    to = f"-d 10.96.0.41/32 -p tcp {said(' cluster IP')} -m tcp --dport 80"
    assert lines(port()) == [
        *ENDPOINTS,
        f"{SVC} ! -s 10.180.0.0/16 {to} -j KUBE-MARK-MASQ",
        f"{SVC} {said(' -> 10.180.0.1:8080')} {CHANCE} -j {ONE}",
        f"{SVC} {said(' -> 10.180.1.1:8080')} -j {OTHER}",
        f"nat KUBE-SERVICES {to} -j {SVC}",
    ]


def test_a_client_stays_with_its_endpoint() -> None:
    recent = "--mask 255.255.255.255 --rsource"
    found = lines(port(sticky=60))
    checks = [line for line in found if "--rcheck" in line]
    assert checks == [
        f"{SVC} {said(f' -> {to}:8080')} -m recent --rcheck --seconds 60 --reap --name {chain} {recent} -j {chain}"
        for to, chain in (("10.180.0.1", ONE), ("10.180.1.1", OTHER))
    ]
    assert found.index(checks[1]) < found.index(f"{SVC} {said(' -> 10.180.0.1:8080')} {CHANCE} -j {ONE}")
    assert (
        f"{OTHER} -p tcp {said('')} -m recent --set --name {OTHER} {recent} -m tcp"
        " -j DNAT --to-destination 10.180.1.1:8080"
    ) in found


def test_a_policy_local_tells_this_cluster_from_outside() -> None:
    what, here = "shop/web:http external destinations", "-m addrtype --src-type LOCAL"
    found = lines(port(external_local=True, local=(HERE,), node_port=30080))
    assert [line for line in found if line.startswith((EXT, SVL, "nat KUBE-NODEPORTS"))] == [
        f'{EXT} -s 10.180.0.0/16 -m comment --comment "pod traffic for {what}" -j {SVC}',
        f'{EXT} -m comment --comment "masquerade LOCAL traffic for {what}" {here} -j KUBE-MARK-MASQ',
        f'{EXT} -m comment --comment "route LOCAL traffic for {what}" {here} -j {SVC}',
        f"{EXT} -j {SVL}",
        f"{SVL} {said(' -> 10.180.0.1:8080')} -j {ONE}",
        f"nat KUBE-NODEPORTS -p tcp {said('')} -m tcp --dport 30080 -j {EXT}",
    ]


def test_source_ranges_narrow_who_may_use_a_load_balancer() -> None:
    ranges = ((address("203.0.113.0"), address("203.0.113.255")), (address("192.0.2.11"), address("192.0.2.12")))
    balancer = address("192.0.2.11")
    found = lines(port(external=(balancer,), guard=Guard((balancer,), ranges)))
    to = "-d 192.0.2.11/32 -p tcp"
    assert [line for line in found if FW in line] == [
        *(
            f"{FW} -s {source} {said(' loadbalancer IP')} -j {EXT}"
            for source in ("203.0.113.0/24", "192.0.2.11/32", "192.0.2.12/32")
        ),
        f'{FW} -m comment --comment "other traffic to shop/web:http will be dropped by KUBE-PROXY-FIREWALL"',
        f"filter KUBE-PROXY-FIREWALL {to} {said(f' traffic not accepted by {FW}')} -m tcp --dport 80 -j DROP",
        f"nat KUBE-SERVICES {to} {said(' loadbalancer IP')} -m tcp --dport 80 -g {FW}",
    ]


NOBODY = "-j REJECT --reject-with icmp-port-unreachable"


def refused(chain: str, to: str, why: str, number: int, verdict: str) -> str:
    return f"{chain} -d {to}/32 -p tcp {said(f' has no {why}endpoints')} -m tcp --dport {number} {verdict}"


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no endpoint anywhere": (
        {"cluster": (), "anywhere": False},
        [
            refused("filter KUBE-EXTERNAL-SERVICES", "192.0.2.99", "", 80, NOBODY),
            refused("filter KUBE-EXTERNAL-SERVICES", "10.140.0.1", "", 30080, NOBODY),
            refused("filter KUBE-SERVICES", "10.96.0.41", "", 80, NOBODY),
            refused("filter KUBE-SERVICES", "192.0.2.99", "", 80, NOBODY),
            refused("nat KUBE-SERVICES", "192.0.2.99", "", 80, "-j RETURN"),
        ],
    ),
    "none on this node, for traffic from outside": (
        {"external_local": True},
        [
            refused("filter KUBE-EXTERNAL-SERVICES", "192.0.2.99", "local ", 80, "-j DROP"),
            refused("filter KUBE-EXTERNAL-SERVICES", "10.140.0.1", "local ", 30080, "-j DROP"),
        ],
    ),
    "none on this node, for the cluster IP": (
        {"internal_local": True},
        [refused("filter KUBE-SERVICES", "10.96.0.41", "local ", 80, "-j DROP")],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_endpoint_is_refused(case: str) -> None:
    given, expected = REFUSED[case]
    found = lines(port(external=(address("192.0.2.99"),), node_port=30080, **given))
    assert [line for line in found if line.endswith((NOBODY, "-j DROP", "-j RETURN"))] == expected


def test_pods_are_told_by_an_interface_as_well() -> None:
    by_name = Style("ip", LocalTraffic(interface="veth*"))
    (marking,) = [line for line in lines(port(own=()), by_name) if line.endswith("-j KUBE-MARK-MASQ")]
    assert marking.startswith(f"{SVC} -d 10.96.0.41/32 ! -i veth+ -p tcp ")
    assert [line for line in lines(port(own=()), Style("ip")) if line.endswith("-j KUBE-MARK-MASQ")] == []


def test_many_endpoints_have_no_comments() -> None:
    found = lines(port(external=(address("192.0.2.99"),), node_port=30080), Style("ip", PODS, comments=False))
    assert [line for line in found if "comment" in line or "  " in line] == []
    assert f"{SVC} -j {OTHER}" in found


def test_chances_are_as_the_kernel_keeps_them() -> None:
    assert [chance(left).rpartition(" ")[2] for left in (1, 2, 3, 7)] == [
        "",
        "0.50000000000",
        "0.33333333349",
        "0.14285714272",
    ]
