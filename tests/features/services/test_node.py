"""This node's addresses where its Node tells none, and whether it shall get more work; cases/node.case has the rest."""

from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest

from podgate.features.services.compile import Compiler
from podgate.features.services.intent import Intent
from podgate.features.services.node import ipvs_problems, local_addresses, primary_addresses
from podgate.features.services.settings import Settings
from podgate.model.machine import Address, Interface, Machine, Route
from tests.support.service_inputs import inputs_of, node_object

ADDRESSES = tuple(
    Address(device, ip_interface(text))
    for device, text in (
        ("cbr0", "10.244.1.1/24"),
        ("cbr0", "fd00:244::1/64"),
        ("eth0", "192.168.0.2/24"),
        ("eth0", "fd00:1::2/64"),
    )
)
V4 = Route(ip_network("0.0.0.0/0"), "eth0", ip_address("192.168.0.1"))
V6 = Route(ip_network("::/0"), "eth0", ip_address("fe80::1"))
OF_A_POD = Route(ip_network("::/0"), "cbr0", ip_address("fe80::99"))
"""What the kernel makes of a Pod's router advertisement."""


def primary(*routes: Route) -> list[str]:
    machine = Machine(addresses=ADDRESSES, routes=routes)
    return [str(ip_address(address)) for address in primary_addresses(None, machine)]


def test_they_are_those_of_the_device_with_the_default_route() -> None:
    assert primary(V4) == primary(V4, V6) == ["192.168.0.2", "fd00:1::2"]


def test_an_ipv6_default_route_tells_no_ipv4_address() -> None:
    assert primary(V6) == ["fd00:1::2"]


def test_a_pod_that_advertises_itself_as_an_ipv6_router_changes_none() -> None:
    assert primary(OF_A_POD, V4) == primary(OF_A_POD, V6, V4) == ["192.168.0.2", "fd00:1::2"]


IPVS = Machine(
    interfaces=(Interface("eth0", 2), Interface("kube-ipvs0", 7, "dummy")),
    addresses=(
        Address("eth0", ip_interface("192.168.0.2/24")),
        Address("kube-ipvs0", ip_interface("10.96.0.1/32")),
        Address("kube-ipvs0", ip_interface("10.96.0.10/32")),
        Address("kube-ipvs0", ip_interface("fe80::1/64"), scope="link"),
    ),
)


def test_what_mode_ipvs_left_is_named_and_its_addresses_are_not_the_nodes() -> None:
    (problem,) = ipvs_problems("node-1", Settings(), IPVS)
    assert (str(problem.ref), problem.severity) == ("Node/node-1", "warning")
    assert "kube-ipvs0, with 2 addresses" in problem.message
    assert ipvs_problems("node-1", Settings(), Machine()) == ()
    assert ipvs_problems("node-1", Settings(service_proxy_name="other"), IPVS) == (), "it is the default proxy's matter"
    assert local_addresses(None, IPVS) == {ip_address("192.168.0.2").packed}


ELIGIBLE: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    # metadata, spec
    "a node that stays": ({}, {}, True),
    "one that is cordoned": ({}, {"unschedulable": True}, True),
    "one with another taint": ({}, {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, True),
    "one that is being deleted": ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, False),
    "one that the autoscaler will remove": (
        {},
        {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1767225600", "effect": "NoSchedule"}]},
        False,
    ),
}


@pytest.mark.parametrize(("metadata", "spec", "eligible"), ELIGIBLE.values(), ids=ELIGIBLE)
def test_a_node_that_is_being_removed_gets_no_new_connections_from_load_balancers(
    metadata: dict[str, Any], spec: dict[str, Any], *, eligible: bool
) -> None:
    node = node_object("node-1", "192.168.0.2")
    node["metadata"] |= metadata
    node["spec"] |= spec
    settings = Settings(node_name="node-1")

    def compiled(*nodes: dict[str, Any]) -> Intent:
        return Compiler(settings, lambda intent: intent)(inputs_of(nodes, settings)).states

    assert compiled(node).node_eligible is eligible
    assert compiled(node_object("node-2", "192.168.0.3") | {"spec": spec}).node_eligible, "another Node says nothing"
