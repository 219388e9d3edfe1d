"""Cluster IPs, node ports, health check node ports; what contradicts other Services."""

from typing import Any

import pytest

from podgate.lab.applying import applied, refusal
from podgate.lab.kinds import Kinds
from podgate.lab.manifests import understood
from podgate.model.frozen import ObjectRef
from tests.lab.world import World


def service(name: str, spec: str = "", ports: str = "[{port: 80}]") -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: {ports}, {spec}}}\n"


def cidr(name: str, *ranges: str) -> str:
    shown = ", ".join(f'"{one}"' for one in ranges)
    return (
        f"---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {{name: {name}}}\n"
        f"spec: {{cidrs: [{shown}]}}\n"
    )


def settled(*texts: str) -> dict[str, Any]:
    """Give the specs of Services after the controllers are done."""
    world = World()
    world.apply("".join(texts))
    return {name: obj["spec"] for name, obj in world.settle().of("Service").items()}


ADDRESSES = [
    ("one of the primary family", "", ["IPv4"], ["10.96.1.1"]),
    ("of the other one", "ipFamilies: [IPv6]", ["IPv6"], ["fd00:10:96::101"]),
    ("of both", "ipFamilyPolicy: PreferDualStack", ["IPv4", "IPv6"], ["10.96.1.1", "fd00:10:96::101"]),
    (
        "of both, the other way round",
        "ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]",
        ["IPv6", "IPv4"],
        ["fd00:10:96::101", "10.96.1.1"],
    ),
    ("as asked for", "clusterIP: 10.96.0.10", ["IPv4"], ["10.96.0.10"]),
    (
        "as asked for, and one more",
        "clusterIP: 'fd00:10:96::a', ipFamilyPolicy: PreferDualStack",
        ["IPv6", "IPv4"],
        ["fd00:10:96::a", "10.96.1.1"],
    ),
    ("none", "clusterIP: None, selector: {app: a}", ["IPv4"], ["None"]),
    ("none, without a selector", "clusterIP: None", ["IPv4", "IPv6"], ["None"]),
]


@pytest.mark.parametrize(("spec", "families", "ips"), [row[1:] for row in ADDRESSES], ids=[row[0] for row in ADDRESSES])
def test_addresses(spec: str, families: list[str], ips: list[str]) -> None:
    found = settled(service("a", spec))["a"]
    assert (found["ipFamilies"], found["clusterIPs"], found["clusterIP"]) == (families, ips, ips[0])


def test_an_external_name_gets_nothing() -> None:
    text = "---\n{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: ExternalName, externalName: b.c}}\n"
    assert settled(text)["a"] == {"type": "ExternalName", "externalName": "b.c"}


def test_a_cluster_of_ipv6_alone() -> None:
    found = settled(cidr("kubernetes", "fd00:20::/120"), service("a"), service("b", "ipFamilyPolicy: PreferDualStack"))
    assert [found[name]["clusterIPs"] for name in "ab"] == [["fd00:20::11"], ["fd00:20::12"]]


def test_what_is_asked_for_is_not_given_to_another_and_addresses_do_not_run_out_early() -> None:
    texts = [service(f"s{number:02}") for number in range(12)]
    found = settled(cidr("kubernetes", "10.20.0.0/28"), service("z", "clusterIP: 10.20.0.1"), *texts)
    given = [found[f"s{number:02}"]["clusterIP"] for number in range(12)]
    assert given == [f"10.20.0.{number}" for number in range(2, 14)]


def test_a_second_range_is_used_when_the_first_one_is_full() -> None:
    texts = [service(f"s{number}") for number in range(3)]
    found = settled(cidr("kubernetes", "10.20.0.0/30"), cidr("more", "10.30.0.0/24"), *texts)
    assert [found[f"s{number}"]["clusterIP"] for number in range(3)] == ["10.20.0.1", "10.20.0.2", "10.30.0.17"]


def test_the_cluster_has_a_range_as_soon_as_it_has_a_service() -> None:
    world = World()
    world.apply(service("a"))
    (found,) = world.settle().of("ServiceCIDR").values()
    assert (found["metadata"]["name"], found["spec"]["cidrs"]) == ("kubernetes", ["10.96.0.0/12", "fd00:10:96::/112"])
    assert found["status"]["conditions"] == [{"type": "Ready", "status": "True"}]


DNS = "[{name: u, port: 53, protocol: UDP}, {name: t, port: 53}, {name: m, port: 9153}]"
PORTS = [
    ("ClusterIP", "", [0, 0, 0], 0),
    ("NodePort", "type: NodePort", [30086, 30086, 30087], 0),
    ("LoadBalancer", "type: LoadBalancer", [30086, 30086, 30087], 0),
    ("with a health check", "type: LoadBalancer, externalTrafficPolicy: Local", [30086, 30086, 30087], 30088),
    ("without node ports", "type: LoadBalancer, allocateLoadBalancerNodePorts: false", [0, 0, 0], 0),
]


@pytest.mark.parametrize(("spec", "numbers", "health"), [row[1:] for row in PORTS], ids=[row[0] for row in PORTS])
def test_node_ports(spec: str, numbers: list[int], health: int) -> None:
    found = settled(service("a", spec, DNS))["a"]
    assert [port.get("nodePort", 0) for port in found["ports"]] == numbers
    assert found.get("healthCheckNodePort", 0) == health


def test_a_node_port_that_was_asked_for_is_kept_free() -> None:
    found = settled(service("a", "type: NodePort"), service("b", "type: NodePort", "[{port: 80, nodePort: 30086}]"))
    assert [found[name]["ports"][0]["nodePort"] for name in "ab"] == [30087, 30086]


AGAIN = [
    ("the same", "type: NodePort", "type: NodePort", DNS, [30086, 30086, 30087]),
    ("without a port", "type: NodePort", "type: NodePort", "[{name: m, port: 9153}]", [30087]),
    ("no longer with node ports", "type: NodePort", "", DNS, [0, 0, 0]),
    ("as a load balancer", "type: NodePort", "type: LoadBalancer", DNS, [30086, 30086, 30087]),
]


@pytest.mark.parametrize(
    ("before", "after", "ports", "numbers"), [row[1:] for row in AGAIN], ids=[row[0] for row in AGAIN]
)
def test_applied_again_a_service_keeps_what_it_was_given(
    before: str, after: str, ports: str, numbers: list[int]
) -> None:
    world = World()
    world.apply(service("w") + service("v") + service("a", before, DNS))
    address = world.settle().of("Service")["a"]["spec"]["clusterIP"]
    world.delete("service", "w")
    world.apply(service("a", after, ports))
    found = world.settle().of("Service")["a"]["spec"]
    assert found["clusterIP"] == address
    assert [port.get("nodePort", 0) for port in found["ports"]] == numbers


def test_a_second_family_comes_and_goes() -> None:
    world = World()
    given: list[tuple[list[str], list[str]]] = []
    for spec in ("", "ipFamilyPolicy: PreferDualStack", "", "ipFamilyPolicy: SingleStack"):
        world.apply(service("a", spec))
        found = world.settle().of("Service")["a"]["spec"]
        given.append((found["ipFamilies"], found["clusterIPs"]))
    both = (["IPv4", "IPv6"], ["10.96.1.1", "fd00:10:96::101"])
    one = (["IPv4"], ["10.96.1.1"])
    assert given == [one, both, both, one]


def test_an_address_is_given_up_for_none_and_for_a_name() -> None:
    world = World()
    world.apply(service("a"))
    world.settle()
    world.apply(
        "---\n{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: ExternalName, externalName: b}}"
    )
    assert world.settle().of("Service")["a"]["spec"] == {"type": "ExternalName", "externalName": "b"}


REFUSED = [
    (
        service("b", "clusterIP: 10.96.0.10"),
        "spec.clusterIP: 10.96.0.10 is the address of Service/default/a already; choose another one or leave it out",
    ),
    (
        service("b", "clusterIP: 172.16.0.1"),
        "spec.clusterIP: 172.16.0.1 is not in the cluster's ranges (10.96.0.0/12); choose one that is",
    ),
    (service("b", "ipFamilies: [IPv6]"), "spec.ipFamilies[0]: the cluster has no range of IPv6 for Services"),
    (
        service("b", "ipFamilyPolicy: RequireDualStack"),
        "spec.ipFamilyPolicy: the cluster has ranges of one family only; PreferDualStack takes that",
    ),
    (
        service("b", "type: NodePort", "[{port: 1, protocol: UDP, nodePort: 30000}]"),
        "spec.ports[0].nodePort: 30000 is a node port of Service/default/a already; choose another one",
    ),
    (
        service("b", "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30000"),
        "spec.healthCheckNodePort: 30000 is a node port of Service/default/a already; choose another one",
    ),
    (service("b"), ""),
    (service("a", "type: NodePort, clusterIP: 10.96.0.10", "[{port: 80, nodePort: 30000}]"), ""),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_another_service_has_is_refused(text: str, message: str) -> None:
    world = World()
    first = service("a", "type: NodePort, clusterIP: 10.96.0.10", "[{port: 80, nodePort: 30000}]")
    world.apply(cidr("kubernetes", "10.96.0.0/12") + first)
    world.settle()
    given = understood({"f.yaml": text.encode()}, Kinds()).objects
    name = given[0]["metadata"]["name"]
    expected = f"Service/default/{name}: {message}; nothing was applied" if message else ""
    assert refusal(world.objects, given) == expected


def test_what_was_given_counts_as_held() -> None:
    world = World()
    world.apply(service("a"))
    world.settle()
    given = understood({"f.yaml": (service("a") + service("b", "clusterIP: 10.96.1.1")).encode()}, Kinds()).objects
    assert "10.96.1.1 is the address of Service/default/a already" in refusal(world.objects, given)
    ref = ObjectRef("Service", "a", "default")
    assert applied(world.objects[ref], given[0])["spec"]["clusterIP"] == "10.96.1.1"
