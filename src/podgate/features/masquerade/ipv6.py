"""ipv6: what is kept in IPv6 without being configured, and whether enough is known to masquerade at all.

Here: the ranges that the cluster and its nodes have. Not here: the configured list, IPv4, where a private range is
what clusters use.
Invariant: where nothing tells which IPv6 addresses are the cluster's, nothing is masqueraded: a Pod whose packets to
other Pods come from a node would slip through network policies.

The old agent masquerades all of IPv6 but fe80::/10 until a list says otherwise, Pods among each other too.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from podgate.features.masquerade.config import Config
from podgate.features.masquerade.own_pods import from_node
from podgate.features.masquerade.prefixes import Entry, RuleOrigin
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.nodes import Node
from podgate.model.machine import IPNetwork, Machine
from podgate.model.problems import Problem

UNIQUE_LOCAL: Final = IPv6Network("fc00::/7")
"""RFC 4193: what IPv6 has for private ranges."""

NO_RANGE: Final = (
    "IPv6 is on, and neither Nodes nor the configuration tell an IPv6 range of the cluster, so that IPv6 is not "
    "masqueraded: list the Pods' range under nonMasqueradeCIDRs, or give the Nodes podCIDRs"
)


class Known(Frozen, frozen=True):
    """What is kept beside the configured list.

    Attributes:
        entries: in the order in which they are looked at.
        cluster: whether an IPv6 range of the cluster is known.
    """

    entries: tuple[Entry, ...]
    cluster: bool


def node_entries(ref: ObjectRef, node: Node) -> tuple[Entry, ...]:
    """Give the IPv6 ranges of a node's Pods and its own IPv6 addresses."""
    pods = tuple(entry for entry in from_node(node)[0] if entry.network.version == 6)
    addresses: list[Entry] = []
    for index, each in enumerate(node.status.addresses):
        try:
            address = ip_address(each.address)
        except ValueError:
            continue
        if each.type == "InternalIP" and isinstance(address, IPv6Address):
            addresses.append(Entry(ip_network(address), "keep", RuleOrigin(ref, f"status.addresses[{index}]")))
    return (*pods, *addresses)


def known(nodes: Iterable[Entry], own: Iterable[Entry], config: Config, machine: Machine) -> Known:
    """Say what is kept in IPv6.

    Args:
        nodes: the ranges and addresses of all nodes.
        own: this node's own Pods. Outside fc00::/7 they tell nothing about Pods elsewhere.
        config: the configuration in force.
        machine: its subnets are the nodes' ranges where no Node tells an address.
    """
    of_nodes = tuple(nodes)
    ranges = tuple(entry for entry in of_nodes if entry.network.prefixlen < 128)
    subnets = () if len(ranges) < len(of_nodes) else _subnets(machine)
    cluster = (
        bool(ranges)
        or any(entry.network.version == 6 for entry in config.entries)
        or any(_unique_local(entry.network) for entry in own)
    )
    return Known((*of_nodes, *subnets, Entry(UNIQUE_LOCAL, "keep")), cluster)


def _unique_local(network: IPNetwork) -> bool:
    return isinstance(network, IPv6Network) and network.subnet_of(UNIQUE_LOCAL)


def _subnets(machine: Machine) -> tuple[Entry, ...]:
    """Give the subnets that the machine is in."""
    found: dict[IPv6Network, Entry] = {}
    for each in machine.addresses:
        network = each.address.network
        if isinstance(network, IPv6Network) and each.scope == "global" and network.prefixlen < 128:
            ref = ObjectRef("Machine", machine.node_name)
            found.setdefault(
                network, Entry(network, "keep", RuleOrigin(ref, f'addresses["{network} dev {each.interface}"]'))
            )
    return tuple(found.values())


def unknown_range(node_name: str) -> Problem:
    """Complain that nothing tells the cluster's range."""
    return Problem(ObjectRef("Node", node_name), "warning", "NoIPv6Range", "", NO_RANGE)
