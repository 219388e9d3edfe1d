"""IPv6, and the choice between objects and routes; cases/own_pods.case has the network plugins."""

from ipaddress import ip_address, ip_interface, ip_network

from podgate.features.masquerade.own_pods import (
    from_machine,
    from_node,
    from_pod,
    internal_addresses,
    is_own,
    own_entries,
)
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import Node, NodeAddress, NodeSpec, NodeStatus
from podgate.model.kinds.pods import Pod, PodIP, PodSpec, PodStatus
from podgate.model.machine import Address, Interface, Machine, Route

POD = ObjectRef("Pod", "a", "default")
MACHINE = Machine(
    "node-1",
    interfaces=(Interface("cali1", 2, "veth"), Interface("cni0", 3, "bridge"), Interface("eth0", 1)),
    addresses=(Address("cni0", ip_interface("fd00:1::1/64")),),
    routes=(
        Route(ip_network("::/0"), "eth0", ip_address("fe80::1")),
        Route(ip_network("fd00:2::5/128"), "cali1"),
        Route(ip_network("fd00:1::/64"), "cni0"),
        Route(ip_network("fe80::/64"), "cni0"),
        Route(ip_network("fe80::1/128"), "cali1"),
        Route(ip_network("fd00:9::5/128"), "cali1", ip_address("fe80::9")),
    ),
)


def test_ipv6_routes() -> None:
    assert [str(entry.network) for entry in from_machine(MACHINE)] == ["fd00:2::5/128", "fd00:1::/64"]


def test_a_route_says_where_it_is_from() -> None:
    origin = from_machine(MACHINE)[0].origin
    assert f"{origin.ref}:{origin.field}" == 'Machine/node-1:routes["fd00:2::5/128 dev cali1"]'


def test_objects_come_before_routes() -> None:
    node, _ = from_node(Node(spec=NodeSpec(pod_cidrs=("10.16.1.0/24", "fd00:16::/64"))))
    pods = {POD: from_pod(POD, Pod(status=PodStatus(pod_ips=(PodIP("10.16.9.1"), PodIP("")))))}
    assert [str(entry.network) for entry in own_entries(node, {}, MACHINE)] == ["10.16.1.0/24", "fd00:16::/64"]
    assert [str(entry.network) for entry in own_entries((), pods, MACHINE)] == ["10.16.9.1/32"]
    assert own_entries((), {}, MACHINE) == from_machine(MACHINE)
    assert own_entries((), {POD: ()}, MACHINE) == from_machine(MACHINE)


def test_whose_a_pod_is() -> None:
    assert is_own(Pod(spec=PodSpec("node-1")), "node-1")
    assert not is_own(Pod(spec=PodSpec("node-2")), "node-1")
    assert not is_own(Pod(spec=PodSpec("node-1", host_network=True)), "node-1")
    assert not is_own(Pod(spec=PodSpec("node-1"), status=PodStatus("Failed")), "node-1")


def test_internal_addresses_of_a_node() -> None:
    addresses = (
        NodeAddress("InternalIP", "10.0.0.1"),
        NodeAddress("InternalIP", "not one"),
        NodeAddress("ExternalIP", "34.0.0.1"),
        NodeAddress("InternalIP", "fd00::1"),
    )
    assert internal_addresses(Node(status=NodeStatus(addresses))) == (ip_address("10.0.0.1"), ip_address("fd00::1"))
