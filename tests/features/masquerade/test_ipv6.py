"""What tells that an IPv6 range is the cluster's, and what does not."""

from ipaddress import ip_interface, ip_network

import pytest

from podgate.features.masquerade.config import Config
from podgate.features.masquerade.ipv6 import known, node_entries
from podgate.features.masquerade.prefixes import Entry
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import Node, NodeAddress, NodeSpec, NodeStatus
from podgate.model.machine import Address, Machine

MACHINE = Machine(
    "node-1",
    addresses=(
        Address("eth0", ip_interface("2001:db8:1::1/64")),
        Address("eth0", ip_interface("2001:db8:1::2/64")),
        Address("eth0", ip_interface("fe80::1/64"), "link"),
        Address("eth0", ip_interface("192.0.2.1/24")),
        Address("lo", ip_interface("2001:db8:2::1/128")),
    ),
)


def entries(*networks: str) -> list[Entry]:
    return [Entry(ip_network(network), "keep") for network in networks]


@pytest.mark.parametrize(
    ("nodes", "own", "listed", "cluster"),
    [
        ([], [], [], False),
        (["2001:db8:16::/64"], [], [], True),
        (["2001:db8:1::7/128"], [], [], False),
        ([], ["2001:db8:16::6/128", "10.16.1.6/32"], [], False),
        ([], ["fd00:16::6/128"], [], True),
        ([], [], ["10.0.0.0/8"], False),
        ([], [], ["2001:db8:16::/48"], True),
    ],
)
def test_which_range_is_the_cluster_s(nodes: list[str], own: list[str], listed: list[str], cluster: bool) -> None:
    found = known(entries(*nodes), entries(*own), Config(entries=tuple(entries(*listed))), MACHINE)
    assert found.cluster is cluster
    assert "fc00::/7" in [str(entry.network) for entry in found.entries]


def test_the_machine_s_subnets_stand_in_for_nodes_without_addresses() -> None:
    def networks(*nodes: str) -> list[str]:
        return [str(entry.network) for entry in known(entries(*nodes), [], Config(), MACHINE).entries]

    assert networks("2001:db8:16::/64") == ["2001:db8:16::/64", "2001:db8:1::/64", "fc00::/7"]
    assert networks("2001:db8:1::1/128") == ["2001:db8:1::1/128", "fc00::/7"]


def test_of_a_node_the_ipv6_part_counts_and_what_is_no_address_does_not() -> None:
    node = Node(
        ObjectMeta("n"),
        NodeSpec(pod_cidrs=("10.16.1.0/24", "2001:db8:16::/64", "x")),
        NodeStatus(
            (
                NodeAddress("Hostname", "n"),
                NodeAddress("InternalIP", "192.0.2.1"),
                NodeAddress("InternalIP", "2001:db8:1::1"),
                NodeAddress("InternalIP", "x"),
                NodeAddress("ExternalIP", "2001:db8:9::1"),
            )
        ),
    )
    found = node_entries(ObjectRef("Node", "n"), node)
    assert [(str(entry.network), entry.origin.field) for entry in found] == [
        ("2001:db8:16::/64", "spec.podCIDRs[1]"),
        ("2001:db8:1::1/128", "status.addresses[2]"),
    ]
