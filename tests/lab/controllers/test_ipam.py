"""Ranges for nodes, addresses for Pods."""

from ipaddress import ip_network

from podgate.lab.controllers.ipam import CONDITION
from tests.lab.world import World, node, nodes, pod, workload


def test_nodes_get_ranges_that_do_not_overlap() -> None:
    world = World()
    world.apply(node("m", "spec: {podCIDRs: [10.244.0.0/23, 'fd00:1::/64']}") + nodes("a", "b"))
    world.apply(node("six", "status: {addresses: [{type: InternalIP, address: 'fd00:140::1'}]}"))
    ranges = {name: one["spec"]["podCIDRs"] for name, one in world.settle().of("Node").items()}
    assert ranges == {
        "a": ["10.244.2.0/24"],
        "b": ["10.244.3.0/24"],
        "m": ["10.244.0.0/23", "fd00:1::/64"],
        "six": ["10.244.4.0/24", "fd00:10:244:4::/64"],
    }
    assert world.of("Node")["m"]["spec"]["podCIDR"] == "10.244.0.0/23"


def test_pods_get_the_smallest_free_address_and_keep_it() -> None:
    world = World()
    world.apply(node("a", "spec: {podCIDRs: [10.16.1.0/24, 'fd00::/64']}") + pod("one") + pod("two"))
    ips = {name: one["status"]["podIPs"] for name, one in world.settle().of("Pod").items()}
    assert ips == {
        "one": [{"ip": "10.16.1.2"}, {"ip": "fd00::2"}],
        "two": [{"ip": "10.16.1.3"}, {"ip": "fd00::3"}],
    }
    world.delete("pod", "one")
    world.apply(pod("three"))
    assert world.settle().of("Pod")["three"]["status"]["podIP"] == "10.16.1.2"
    assert world.of("Pod")["two"]["status"]["podIP"] == "10.16.1.3"


def test_a_pod_may_ask_for_addresses_and_is_served_first() -> None:
    world = World()
    ask = "annotations: {lab.podgate.dev/ip: '10.16.1.2, fd00::6'}"
    world.apply(node("a", "spec: {podCIDRs: [10.16.1.0/24, 'fd00::/64']}") + pod("aaa") + pod("web", meta=ask))
    found = world.settle().of("Pod")
    assert [one["ip"] for one in found["web"]["status"]["podIPs"]] == ["10.16.1.2", "fd00::6"]
    assert found["aaa"]["status"]["podIP"] == "10.16.1.3"


def test_what_cannot_be_given_is_a_condition_and_is_tried_again() -> None:
    world = World()
    ask = "annotations: {lab.podgate.dev/ip: 10.16.1.6}"
    world.apply(node("a", "spec: {podCIDRs: [10.16.1.0/24]}") + pod("first", meta=ask) + pod("second", meta=ask))
    world.apply(pod("far", meta="annotations: {lab.podgate.dev/ip: 10.99.0.1}"))
    world.settle()
    taken = world.condition("second", CONDITION)
    assert (taken["reason"], "held by the Pod default/first" in taken["message"]) == ("AddressTaken", True)
    far = world.condition("far", CONDITION)
    assert (far["reason"], "(10.16.1.0/24)" in far["message"]) == ("OutsideRange", True)
    assert "podIP" not in world.of("Pod")["second"]["status"]
    world.delete("pod", "first")
    assert world.settle().of("Pod")["second"]["status"]["podIP"] == "10.16.1.6"
    assert world.condition("second", CONDITION) == {"type": CONDITION, "status": "True"}


def test_an_exhausted_range() -> None:
    world = World()
    world.apply(node("a", "spec: {podCIDRs: [10.0.0.0/29]}") + "".join(pod(f"p{index}") for index in range(6)))
    given = [one.get("status", {}).get("podIP") for one in world.settle().of("Pod").values()]
    assert given == ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", None]
    assert world.condition("p5", CONDITION)["reason"] == "RangeExhausted"


def test_pods_on_the_nodes_network_have_its_addresses() -> None:
    world = World()
    world.apply(nodes("a") + pod("host", spec="hostNetwork: true") + pod("other", spec="hostNetwork: true"))
    world.settle()
    for one in world.of("Pod").values():
        assert one["status"]["podIPs"] == [{"ip": "172.18.0.2"}]
    world.apply(node("a", "status: {addresses: [{type: InternalIP, address: 10.140.0.5}]}"))
    assert world.settle().of("Pod")["host"]["status"]["podIP"] == "10.140.0.5"


def test_a_pod_that_has_ended_gives_its_address_back() -> None:
    world = World()
    world.apply(nodes("a") + pod("one"))
    ref = next(ref for ref in world.settle().objects if ref.kind == "Pod")
    world.objects[ref] = {**world.objects[ref], "status": {**world.objects[ref]["status"], "phase": "Succeeded"}}
    world.apply(pod("two"))
    found = world.settle().of("Pod")
    assert found["one"]["status"]["podIP"] == found["two"]["status"]["podIP"]


def test_many_nodes_each_with_a_range_of_their_own() -> None:
    world = World()
    world.apply(nodes(*(f"n{index}" for index in range(40))) + workload("DaemonSet"))
    found = [ip_network(one["spec"]["podCIDR"]) for one in world.settle().of("Node").values()]
    assert len(set(found)) == 40
    addresses = {one["status"]["podIP"] for one in world.of("Pod").values()}
    assert len(addresses) == 40
