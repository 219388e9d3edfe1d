"""own_pods: which addresses belong to this node's own Pods.

Here: the answer from Kubernetes objects, and from the machine's routes where no object tells. Not here: what is done
with it (intent.py: traffic to an own Pod keeps its source, so that a Pod sees who its clients are).
Invariant: an address of another node is never taken for an own Pod's by way of an uplink, its bridge or a gateway.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from podgate.features.masquerade.prefixes import Entry, RuleOrigin
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.kinds.pods import Pod
from podgate.model.machine import IPAddress, Machine
from podgate.model.problems import Problem

_POD_LINKS: Final = frozenset({"veth", "tun"})
"""Kinds of links that lead into a Pod or a virtual machine; anything else in a bridge may lead off the node."""


def from_node(node: Node) -> tuple[tuple[Entry, ...], tuple[Problem, ...]]:
    """Give the Pod ranges of a node."""
    ref = ObjectRef(NODE.kind, node.metadata.name)
    field = "spec.podCIDRs" if node.spec.pod_cidrs else ""
    entries: list[Entry] = []
    problems: list[Problem] = []
    for index, text in enumerate(node.pod_ranges):
        where = f"{field}[{index}]" if field else "spec.podCIDR"
        try:
            entries.append(Entry(ip_network(text), "keep", RuleOrigin(ref, where)))
        except ValueError:
            message = f'"{text}" is not a CIDR, so these Pods are not known: correct the Node'
            problems.append(Problem(ref, "warning", "InvalidPodCIDR", where, message))
    return tuple(entries), tuple(problems)


def internal_addresses(node: Node) -> tuple[IPAddress, ...]:
    """Give the addresses that a node has on its own devices: external ones may be a cloud's translation."""
    found: list[IPAddress] = []
    for entry in node.status.addresses:
        if entry.type == "InternalIP":
            try:
                found.append(ip_address(entry.address))
            except ValueError:
                continue
    return tuple(found)


def is_own(pod: Pod, node_name: str) -> bool:
    """Whether a Pod runs on this node with addresses of its own."""
    return pod.spec.node_name == node_name and not pod.spec.host_network and not pod.has_ended


def from_pod(ref: ObjectRef, pod: Pod) -> tuple[Entry, ...]:
    """Give the addresses of a Pod; what is not an address yet is left out."""
    entries: list[Entry] = []
    for index, text in enumerate(pod.addresses):
        field = f"status.podIPs[{index}]" if pod.status.pod_ips else "status.podIP"
        try:
            entries.append(Entry(ip_network(ip_address(text)), "keep", RuleOrigin(ref, field)))
        except ValueError:
            continue
    return tuple(entries)


def from_machine(machine: Machine) -> tuple[Entry, ...]:
    """Give what the machine's routes say about its Pods, by how network plugins lay them.

    * Host routes (/32, /128) without a gateway on a veth: Calico (cali*), GKE and other ptp plugins, the lab.
    * Connected subnets of a bridge whose members are veths or taps: kubenet (cbr0), flannel and the bridge plugin
      (cni0).

    A device with a default route is an uplink, whatever its kind (``Machine.uplinks``); so is a bridge with a network
    card, bond, VLAN or tunnel in it. Link-local destinations are gateways that plugins make up, not Pods.
    """
    kinds = {interface.name: interface.kind for interface in machine.interfaces}
    mixed = {interface.master for interface in machine.interfaces if interface.kind not in _POD_LINKS}
    uplinks = {4: mixed.union(machine.uplinks("ip")), 6: mixed.union(machine.uplinks("ip6"))}
    connected = {(address.interface, address.address.network) for address in machine.addresses}
    entries: list[Entry] = []
    for route in machine.routes:
        network, device = route.destination, route.interface
        if route.gateway is not None or device in uplinks[network.version] or network.is_link_local:
            continue
        host_route = network.prefixlen == network.max_prefixlen and kinds.get(device) == "veth"
        if host_route or (kinds.get(device) == "bridge" and (device, network) in connected):
            ref = ObjectRef("Machine", machine.node_name)
            entries.append(Entry(network, "keep", RuleOrigin(ref, f'routes["{network} dev {device}"]')))
    return tuple(entries)


def own_entries(
    node: Iterable[Entry], pods: Mapping[ObjectRef, tuple[Entry, ...]], machine: Machine
) -> tuple[Entry, ...]:
    """Choose: what objects say, and only if they say nothing, the machine's routes.

    Ranges come before single Pods and Pods in the order of their names, so that equal inputs give equal tuples.
    """
    entries = (*node, *(entry for ref in sorted(pods) for entry in pods[ref]))
    return entries or from_machine(machine)
