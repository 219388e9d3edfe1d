"""The lab's network as a value: which namespaces, links, addresses and routes there are.

Here: topology -> ``Network``. Pure.
Not here: the difference between two networks as ``ip -batch`` text (lab/netplan.py), running it (lab/wire.py).
Invariant: nothing leads out of the lab's own namespaces, so a missing route reaches nothing real.

The shape: nodes share one layer-2 segment, a bridge in a namespace of its own. Outside hosts sit behind a router, each
on a link of its own. A Pod hangs on its node by a routed veth: its address alone (/32, /128), gateway 169.254.1.1 or
fe80::1, both neighbours fixed, no bridge (replies across a bridge would miss the reversal of a destination NAT).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_interface, ip_network
from typing import Final, TypeVar

from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress, IPInterface, IPNetwork

SEGMENT: Final = "segment"
ROUTER: Final = "router"
BRIDGE: Final = "br0"
UPLINK: Final = "eth0"
GATEWAYS: Final[tuple[IPAddress, ...]] = (IPv4Address("169.254.1.1"), IPv6Address("fe80::1"))
_ANYWHERE: Final[tuple[IPNetwork, ...]] = (ip_network("0.0.0.0/0"), ip_network("::/0"))


_Versioned = TypeVar("_Versioned", IPAddress, IPInterface, IPNetwork)


class NodeNet(Frozen, frozen=True):
    """A node: its addresses on the segment (the first of a family is the primary one) and its Pods' ranges."""

    name: str
    addresses: tuple[IPInterface, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...] = ()

    @property
    def namespace(self) -> str:
        """The name of its network namespace."""
        return f"node/{self.name}"


class PodNet(Frozen, frozen=True):
    """A Pod with a network of its own."""

    namespace: str
    name: str
    node: str
    addresses: tuple[IPAddress, ...] = ()


class HostNet(Frozen, frozen=True):
    """An outside machine behind the router.

    Attributes:
        gateways: the router's address on its link, for show.
        routes: ranges that lie behind a node's or another host's address. The router has them, since everything that
            this host sends goes there first; so all outside hosts use them.
    """

    name: str
    addresses: tuple[IPAddress, ...] = ()
    gateways: tuple[IPAddress, ...] = ()
    routes: tuple[tuple[IPNetwork, IPAddress], ...] = ()


class CloudNet(Frozen, frozen=True):
    """A node's own metadata server: on the segment, and known to that node alone."""

    name: str
    node: str
    addresses: tuple[IPAddress, ...] = ()

    @property
    def namespace(self) -> str:
        """The name of its network namespace: it is an outside machine."""
        return f"host/{self.name}"


class Topology(Frozen, frozen=True):
    """Who is on the network."""

    nodes: tuple[NodeNet, ...] = ()
    pods: tuple[PodNet, ...] = ()
    hosts: tuple[HostNet, ...] = ()
    clouds: tuple[CloudNet, ...] = ()


class End(Frozen, frozen=True, order=True):
    """One end of a veth."""

    namespace: str
    device: str
    mac: str
    master: str = ""


class Veth(Frozen, frozen=True, order=True):
    """A pair of devices, each in its own namespace."""

    one: End
    other: End


class Address(Frozen, frozen=True):
    """An address on a device."""

    device: str
    address: IPInterface


class Route(Frozen, frozen=True):
    """A route; ``via`` is taken as reachable on the device, whatever the device's own addresses are."""

    destination: IPNetwork
    device: str
    via: IPAddress | None = None
    source: IPAddress | None = None


class Neighbour(Frozen, frozen=True):
    """A fixed link-layer address: no ARP, no waiting."""

    address: IPAddress
    mac: str
    device: str


class Namespace(Frozen, frozen=True):
    """What one namespace holds besides its veths."""

    sysctls: tuple[tuple[str, str], ...] = ()
    bridges: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()


class Network(Frozen, frozen=True):
    """The whole network: namespaces by name, and the veths between them."""

    namespaces: Mapping[str, Namespace] = {}
    veths: tuple[Veth, ...] = ()


def pod_namespace(namespace: str, name: str) -> str:
    """Give the name of a Pod's network namespace."""
    return f"pod/{namespace}/{name}"


def device_name(prefix: str, key: str) -> str:
    """Give a device name for a key: at most 15 characters, the same each time."""
    return prefix + hashlib.sha256(key.encode()).hexdigest()[: 15 - len(prefix) - 3]


def mac_of(key: str) -> str:
    """Give a locally administered link-layer address for a key, the same each time."""
    return ":".join(("02", *(f"{byte:02x}" for byte in hashlib.sha256(key.encode()).digest()[:5])))


_QUIET_IPV6: Final = (
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
)
# A bridge forwards frames and has no address of its own; a random link-local one would only be noise.
_NO_IPV6: Final = (("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1"))
_FORWARDING: Final = (
    *_QUIET_IPV6,
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/forwarding", "1"),
    ("net/ipv4/conf/all/rp_filter", "2"),
    ("net/ipv4/conf/default/rp_filter", "2"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
)
# As container runtimes set it: any Pod may bind port 80 and send a ping without a capability.
_POD: Final = (
    *_QUIET_IPV6,
    ("net/ipv4/ip_unprivileged_port_start", "0"),
    ("net/ipv4/ping_group_range", "0 2147483647"),
)


def _primaries(addresses: Iterable[IPInterface]) -> tuple[IPInterface, ...]:
    found: dict[int, IPInterface] = {}
    for address in addresses:
        found.setdefault(address.version, address)
    return tuple(found.values())


def router_addresses(nodes: Iterable[NodeNet]) -> dict[IPNetwork, IPInterface]:
    """Give the router's address in each of the nodes' subnets: the first that no node has."""
    nodes = tuple(nodes)
    taken = {address.ip for node in nodes for address in node.addresses}
    found: dict[IPNetwork, IPInterface] = {}
    for node in nodes:
        for address in node.addresses:
            subnet: IPNetwork = address.network
            if subnet in found or subnet.num_addresses < 4:
                continue
            for number in range(1, min(subnet.num_addresses - 1, len(taken) + 2)):
                if subnet[number] not in taken:
                    found[subnet] = type(address)((subnet[number], subnet.prefixlen))
                    break
    return found


def _node(node: NodeNet, topology: Topology, router: Mapping[IPNetwork, IPInterface]) -> Namespace:
    addresses = tuple(Address(UPLINK, address) for address in node.addresses)
    others = tuple(other for other in topology.nodes if other.name != node.name)
    primaries = tuple(_primaries(node.addresses))
    routes = [route for primary in primaries for route in _routes_away(primary, router, others)]
    sources = {primary.version: primary.ip for primary in primaries}
    neighbours: list[Neighbour] = []
    for pod in topology.pods:
        if pod.node != node.name:
            continue
        name = pod_namespace(pod.namespace, pod.name)
        device = device_name("veth", name)
        for ip in pod.addresses:
            routes.append(Route(_single(ip), device, None, sources.get(ip.version)))
            neighbours.append(Neighbour(ip, mac_of(name), device))
    for cloud in topology.clouds:
        if cloud.node == node.name:
            near = [ip for ip in cloud.addresses if ip.version in sources]
            routes += [Route(_single(ip), UPLINK, None, sources[ip.version]) for ip in near]
            neighbours += [Neighbour(ip, mac_of(cloud.namespace), UPLINK) for ip in near]
    return Namespace(_FORWARDING, (), addresses, tuple(routes), tuple(neighbours))


def _routes_away(
    primary: IPInterface, router: Mapping[IPNetwork, IPInterface], others: Iterable[NodeNet]
) -> Iterator[Route]:
    """Give a node's routes by one of its addresses: to anywhere, and to the Pods of nodes in the same subnet."""
    gateway = router.get(primary.network)
    if gateway is not None:
        yield Route(_anywhere(primary.ip), UPLINK, gateway.ip, primary.ip)
    for other in others:
        near = [a.ip for a in other.addresses if a.version == primary.version and a.ip in primary.network]
        if near:
            yield from (Route(c, UPLINK, near[0], primary.ip) for c in other.pod_cidrs if c.version == primary.version)


def _single(address: IPAddress) -> IPNetwork:
    return ip_network(f"{address}/{address.max_prefixlen}")


def _host_interface(address: IPAddress) -> IPInterface:
    return ip_interface(f"{address}/{address.max_prefixlen}")


def _anywhere(address: IPAddress) -> IPNetwork:
    return _ANYWHERE[0] if address.version == 4 else _ANYWHERE[1]


def _leaf(
    addresses: tuple[IPAddress, ...], gateways: tuple[IPAddress, ...], gateway_mac: str
) -> tuple[tuple[Address, ...], tuple[Route, ...], tuple[Neighbour, ...]]:
    """Give the inside of a routed leaf (a Pod or an outside host): its addresses and the way out per family."""
    routes: list[Route] = []
    neighbours: list[Neighbour] = []
    for version in sorted({address.version for address in addresses}):
        gateway = next(g for g in (*gateways, *GATEWAYS) if g.version == version)
        routes.append(Route(_single(gateway), UPLINK))
        routes.append(Route(_anywhere(gateway), UPLINK, gateway))
        neighbours.append(Neighbour(gateway, gateway_mac, UPLINK))
    return tuple(Address(UPLINK, _host_interface(a)) for a in addresses), tuple(routes), tuple(neighbours)


def _pod(pod: PodNet) -> tuple[Namespace, Veth]:
    name = pod_namespace(pod.namespace, pod.name)
    device = device_name("veth", name)
    node_mac = mac_of(f"node of {name}")
    addresses, routes, neighbours = _leaf(pod.addresses, (), node_mac)
    veth = Veth(End(f"node/{pod.node}", device, node_mac), End(name, UPLINK, mac_of(name)))
    return Namespace(_POD, (), addresses, routes, neighbours), veth


def _host(host: HostNet) -> tuple[Namespace, Veth]:
    name = f"host/{host.name}"
    router_mac = mac_of(f"router of {name}")
    addresses, routes, neighbours = _leaf(host.addresses, host.gateways, router_mac)
    veth = Veth(End(ROUTER, device_name("host", name), router_mac), End(name, UPLINK, mac_of(name)))
    return Namespace(_POD, (), addresses, routes, neighbours), veth


def _cloud(cloud: CloudNet, node: NodeNet) -> Namespace:
    """Give a metadata server: everything that it knows is behind its node."""
    addresses = tuple(Address(UPLINK, _host_interface(ip)) for ip in cloud.addresses)
    routes = [Route(_anywhere(primary.ip), UPLINK, primary.ip) for primary in _primaries(node.addresses)]
    neighbours = [Neighbour(primary.ip, mac_of(node.namespace), UPLINK) for primary in _primaries(node.addresses)]
    return Namespace(_POD, (), addresses, tuple(routes), tuple(neighbours))


def _router(topology: Topology, own: Mapping[IPNetwork, IPInterface]) -> Namespace:
    addresses = [Address(UPLINK, address) for address in own.values()]
    routes: list[Route] = []
    neighbours: list[Neighbour] = []
    for node in topology.nodes:
        for primary in _primaries(node.addresses):
            if primary.network in own:
                routes += [Route(c, UPLINK, primary.ip) for c in node.pod_cidrs if c.version == primary.version]
    for host in topology.hosts:
        name = f"host/{host.name}"
        device = device_name("host", name)
        addresses += [Address(device, _host_interface(gateway)) for gateway in host.gateways]
        for ip in host.addresses:
            routes.append(Route(_single(ip), device))
            neighbours.append(Neighbour(ip, mac_of(name), device))
    devices = {ip: device_name("host", f"host/{host.name}") for host in topology.hosts for ip in host.addresses}
    for to, via in (route for host in topology.hosts for route in host.routes):
        if via in devices or any(via in subnet for subnet in own):
            routes.append(Route(to, devices.get(via, UPLINK), via))
    return Namespace(_FORWARDING, (), tuple(addresses), tuple(routes), tuple(neighbours))


def network(topology: Topology) -> Network:
    """Give the network of a topology. A Pod whose node is not there is left out."""
    own = router_addresses(topology.nodes)
    namespaces: dict[str, Namespace] = {SEGMENT: Namespace(_NO_IPV6, (BRIDGE,)), ROUTER: _router(topology, own)}
    nodes = {node.name: node for node in topology.nodes}
    clouds = [cloud for cloud in topology.clouds if cloud.node in nodes]
    plugs = [(ROUTER, ROUTER)] + [(node.namespace, node.name) for node in topology.nodes]
    plugs += [(cloud.namespace, cloud.namespace) for cloud in clouds]
    veths = [
        Veth(
            End(SEGMENT, device_name("port", name), mac_of(f"port of {name}"), BRIDGE), End(name, UPLINK, mac_of(name))
        )
        for name, _ in plugs
    ]
    for node in topology.nodes:
        namespaces[node.namespace] = _node(node, topology, own)
    for cloud in clouds:
        namespaces[cloud.namespace] = _cloud(cloud, nodes[cloud.node])
    for pod in topology.pods:
        if f"node/{pod.node}" in namespaces:
            namespaces[pod_namespace(pod.namespace, pod.name)], veth = _pod(pod)
            veths.append(veth)
    for host in topology.hosts:
        namespaces[f"host/{host.name}"], veth = _host(host)
        veths.append(veth)
    return Network(namespaces, tuple(veths))


def only_ipv4(topology: Topology) -> Topology:
    """Give what a machine without IPv6 can have of a topology."""

    def four(items: Iterable[_Versioned]) -> tuple[_Versioned, ...]:
        return tuple(item for item in items if item.version == 4)

    return Topology(
        tuple(NodeNet(node.name, four(node.addresses), four(node.pod_cidrs)) for node in topology.nodes),
        tuple(PodNet(pod.namespace, pod.name, pod.node, four(pod.addresses)) for pod in topology.pods),
        tuple(
            HostNet(
                host.name, four(host.addresses), four(host.gateways), tuple(r for r in host.routes if r[0].version == 4)
            )
            for host in topology.hosts
        ),
        tuple(CloudNet(cloud.name, cloud.node, four(cloud.addresses)) for cloud in topology.clouds),
    )
