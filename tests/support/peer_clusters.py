"""Random clusters: Services and EndpointSlices of every kind that an API server takes, and how they change.

Here: the network that they stand in, objects by chance. Not here: who serves them (peer_proxies.py), packets to them
(peer_flows.py).
Invariant: everything depends on the ``Random`` that is given alone. No two Services ask for one address, protocol and
port, or for one node port: of such, kube-proxy serves either (docs/critiques/kube-proxy.md).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

from podgate.lab.kinds import Object
from podgate.model.machine import Family

FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
TYPES: Final[Mapping[Family, str]] = {"ip": "IPv4", "ip6": "IPv6"}
NODES: Final = ("node-1", "node-2", "node-3")
"""Rules are those of node-1."""

ADDRESSES: Final[Mapping[Family, tuple[str, ...]]] = {
    "ip": ("10.140.0.1", "10.140.0.2", "10.140.0.3"),
    "ip6": ("fd00:140::1", "fd00:140::2", "fd00:140::3"),
}
"""The nodes' own addresses, by the order of NODES."""

SECOND: Final[Mapping[Family, str]] = {"ip": "10.141.0.1", "ip6": "fd00:141::1"}
"""Another address of node-1, in no Node."""

RANGES: Final = ("10.180.0.0/16", "fd00:180::/32")
"""Of all Pods."""

NAMESPACES: Final = ("bank", "shop")
_SHARING: Final = 4
"""How many Services share the addresses of load balancers, with ports of their own."""

_FAMILIES: Final[Sequence[tuple[Family, ...]]] = (("ip",), ("ip6",), ("ip", "ip6"), ("ip", "ip6"), ("ip6", "ip"))
_ZONES: Final = ("zone-a", "zone-b", "zone-c")
_SOURCES: Final = (
    "203.0.113.0/24", "203.0.113.10/32", "203.0.113.0/28", "10.140.0.0/24", "10.140.0.1/32", "10.180.0.0/16",
    "198.51.100.0/25", "0.0.0.0/0", "2001:db8:1::/64", "2001:db8:1::10/128", "fd00:140::/64", "fd00:180::/32", "::/0",
)  # fmt: skip
_STATES: Final[Sequence[Mapping[str, bool]]] = (
    *({"ready": True, "serving": True, "terminating": False},) * 6,
    {},
    {"ready": True},
    {"ready": False},
    {"ready": False, "serving": False, "terminating": False},
    {"ready": False, "serving": True, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": True},
    {"ready": False, "terminating": True},
    {"ready": True, "serving": True, "terminating": True},
)


def pod_address(family: Family, node: int, number: int) -> str:
    """Give the address of a Pod."""
    return f"10.180.{node}.{number}" if family == "ip" else str(ip_address(f"fd00:180:{node}::{number:x}"))


def node_objects(zone: str) -> list[Object]:
    """Give the Nodes; ``zone`` is node-1's, empty for none."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": where} if where else {}},
            "spec": {"podCIDR": f"10.180.{each}.0/24", "podCIDRs": [f"10.180.{each}.0/24", _pods_of(each)]},
            "status": {"addresses": [{"type": "InternalIP", "address": ADDRESSES[f][each]} for f in FAMILIES]},
        }
        for each, (name, where) in enumerate(zip(NODES, (zone, *_ZONES[1:]), strict=False))
    ]


def _pods_of(node: int) -> str:
    return str(ip_network(f"fd00:180:{node}::/48"))


class Slot:
    """What one Service, by its number, may ask for without meeting another one."""

    def __init__(self, number: int) -> None:
        self.name = f"s{number}"
        self.namespace = NAMESPACES[number % 2]
        group, place = divmod(number, _SHARING)
        self.ports = tuple(place * 100 + port for port in (80, 81, 53, 443))
        self.node_ports = tuple(range(30000 + 4 * number, 30004 + 4 * number))
        self.health_port = 32000 + number
        self.cluster_ips: Mapping[Family, tuple[str, ...]] = {
            "ip": tuple(f"10.96.{hundred + number // 200}.{1 + number % 200}" for hundred in (10, 20)),
            "ip6": tuple(f"fd00:10:96::{base + number:x}" for base in (0x1000, 0x2000)),
        }
        self.outside: Mapping[Family, tuple[str, ...]] = {
            "ip": (*(f"192.0.2.{1 + group % 80 + step}" for step in (0, 80)), *_special(number, "ip")),
            "ip6": (*(f"2001:db8:9::{1 + group:x}:{step}" for step in (1, 2)), *_special(number, "ip6")),
        }


def _special(number: int, family: Family) -> tuple[str, ...]:
    """Give an address that is somebody's, to the first groups; one of a Service's to Services with other ports."""
    group, place = divmod(number, _SHARING)
    node, other, _ = ADDRESSES[family]
    neighbour = Slot(8 + (place + 1) % _SHARING).cluster_ips[family][0] if group == 3 else ""
    mine = {0: node, 1: SECOND[family], 2: other, 3: neighbour, 4: pod_address(family, 1, 77)}
    return (mine[group],) * 3 if group in mine else ()


class Chance:
    """Draws objects.

    Args:
        seed: gives the same ones again.
        count: how many Services there are at most.
    """

    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self._slots = [Slot(number) for number in range(count)]

    def objects(self, share: float) -> Iterator[tuple[str, str, list[Object]]]:
        """Draw some Services anew: namespace, name and objects of each; without objects, all of it goes.

        Args:
            share: how many of all Services, 0 to 1.
        """
        for slot in self._slots:
            if self.random.random() < share:
                yield slot.namespace, slot.name, list(self._one(slot))

    def _is(self, probability: float) -> bool:
        return self.random.random() < probability

    def _some(self, of: Sequence[Any], most: int) -> list[Any]:
        return self.random.sample(of, self.random.randint(0, min(most, len(of))))

    def _one(self, slot: Slot) -> Iterator[Object]:
        service = self._service(slot)
        if not self._is(0.06):
            yield service
        if not self._is(0.06):
            known: dict[str, Object] = {}
            for number in range(self.random.choice((1, 1, 2, 3))):
                for family in FAMILIES:
                    if self._is(0.9):
                        yield self._slice(slot, family, number, service["spec"].get("ports", ()), known)

    def _service(self, slot: Slot) -> Object:
        labels = {}
        if self._is(0.02):
            labels["service.kubernetes.io/service-proxy-name"] = "other"
        if self._is(0.02):
            labels["service.kubernetes.io/headless"] = ""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": slot.name, "namespace": slot.namespace, "labels": labels},
            **self._asked(slot),
        }

    def _asked(self, slot: Slot) -> Object:
        """Draw what is asked for, and what a load balancer gave."""
        kind = self.random.choice(("ClusterIP", "ClusterIP", "NodePort", "NodePort", *("LoadBalancer",) * 4))
        if self._is(0.03):
            return {"spec": {"type": "ExternalName", "externalName": "a.example"}}
        families = self.random.choice(_FAMILIES)
        addresses = [self.random.choice(slot.cluster_ips[family]) for family in families]
        spec: Object = {
            "type": kind,
            "clusterIPs": addresses,
            "clusterIP": addresses[0],
            "ipFamilies": [TYPES[family] for family in families],
            "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
            "internalTrafficPolicy": self.random.choice(("Cluster", "Cluster", "Local")),
            "publishNotReadyAddresses": self._is(0.1),
        }
        if kind == "ClusterIP" and self._is(0.1):
            spec |= {"clusterIPs": ["None"], "clusterIP": "None"}
            spec["ports"] = self._ports(slot, with_node_ports=False)
            return {"spec": spec}
        if self._is(0.25):
            seconds = self.random.choice((1, 10800, 86400))
            spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}
        if self._is(0.2):
            spec["trafficDistribution"] = self.random.choice(("PreferClose", "PreferSameZone", "PreferSameNode"))
        if self._is(0.3):
            spec["externalIPs"] = self._outside(slot)
        gives = kind == "NodePort" or (kind == "LoadBalancer" and not self._is(0.2))
        if kind == "LoadBalancer" and not gives:
            spec["allocateLoadBalancerNodePorts"] = False
        if kind != "ClusterIP" or spec.get("externalIPs"):
            spec["externalTrafficPolicy"] = self.random.choice(("Cluster", "Local"))
        spec["ports"] = self._ports(slot, with_node_ports=gives)
        if kind != "LoadBalancer":
            return {"spec": spec}
        if spec["externalTrafficPolicy"] == "Local":
            spec["healthCheckNodePort"] = slot.health_port
        if self._is(0.35):
            spec["loadBalancerSourceRanges"] = self._some(_SOURCES, 3)
        return {"spec": spec, "status": {"loadBalancer": {"ingress": list(self._ingress(slot))}}}

    def _outside(self, slot: Slot) -> list[str]:
        return sorted({each for family in FAMILIES for each in self._some(slot.outside[family], 2)})

    def _ingress(self, slot: Slot) -> Iterator[Object]:
        for address in self._outside(slot):
            yield {"ip": address, "ipMode": "Proxy" if self._is(0.15) else "VIP"}
        if self._is(0.1):
            yield {"hostname": "balancer.example"}

    def _ports(self, slot: Slot, *, with_node_ports: bool) -> list[Object]:
        found: list[Object] = []
        numbers = [*slot.ports, *((30044,) if slot.name == "s0" else ())]
        for number, port in enumerate(self.random.sample(numbers, self.random.choice((1, 1, 2, 3)))):
            protocol = self.random.choice(("TCP", "TCP", "UDP", "SCTP"))
            entry = {"name": "abc"[number], "port": port, "protocol": protocol, "targetPort": "named"}
            node_port = slot.node_ports[number]
            if found and found[-1]["protocol"] != protocol and self._is(0.3):
                entry["port"], node_port = found[-1]["port"], found[-1].get("nodePort", node_port)
            found.append({**entry, **({"nodePort": node_port} if with_node_ports else {})})
        if len(found) == 1 and self._is(0.4):
            del found[0]["name"]
        return found

    def _slice(
        self, slot: Slot, family: Family, number: int, ports: Sequence[Object], known: dict[str, Object]
    ) -> Object:
        labels, name = {"kubernetes.io/service-name": slot.name}, f"{slot.name}-{family}-{number}"
        if self._is(0.02):  # Another slice, as kube-proxy does not notice that one loses its label.
            labels, name = {}, f"{name}-lost"
        if self._is(0.02):
            labels["service.kubernetes.io/headless"] = ""
        metadata: Object = {"name": name, "namespace": slot.namespace, "labels": labels}
        if self._is(0.5):
            when = f"2026-01-01T00:00:{self.random.randint(10, 59)}Z"
            metadata["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": when}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": TYPES[family],
            "ports": list(self._slice_ports(ports)),
            "endpoints": list(self._endpoints(family, number, known)),
        }

    def _slice_ports(self, ports: Sequence[Object]) -> Iterator[Object]:
        for number, port in enumerate(ports):
            if self._is(0.06):
                continue
            protocol = "UDP" if self._is(0.02) else port["protocol"]
            entry = {"name": port.get("name", ""), "protocol": protocol}
            yield entry if self._is(0.02) else {**entry, "port": self.random.choice((8080, 8080, 9090)) + number}
        if self._is(0.05):
            yield {"name": "more", "protocol": "TCP", "port": 7070}

    def _endpoints(self, family: Family, number: int, known: dict[str, Object]) -> Iterator[Object]:
        """Draw endpoints; an address that a slice of the Service has already is mostly told with the same state."""
        hints = self.random.choice((None, None, None, "zones", "nodes", "both", "some"))
        many = self._is(0.02)
        for _ in range(self.random.randint(17, 40) if many else self.random.choice((0, 1, 1, 2, 3, 5))):
            drawn = self._endpoint(family, number, hints, 60 if many else 6)
            (address, *_) = drawn["addresses"]
            yield drawn if self._is(0.1) else known.setdefault(address, drawn)

    def _endpoint(self, family: Family, number: int, hints: str | None, hosts: int) -> Object:
        node = self.random.choice((0, 0, 1, 2))
        host = self.random.randint(1, hosts) + (0 if self._is(0.1) else 10 * number)
        address = pod_address(family, node, host)
        if self._is(0.05):
            address = ADDRESSES[family][node]
        entry: Object = {"addresses": [address], "conditions": dict(self.random.choice(_STATES))}
        if self._is(0.03):
            entry["addresses"].append(pod_address(family, node, 200))
        if not self._is(0.06):
            entry |= {"nodeName": NODES[node], "zone": _ZONES[node]}
        if self._is(0.5):
            entry["targetRef"] = {"kind": "Pod", "name": f"p{node}-{host}", "uid": f"uid-{node}-{host}"}
        if hints is not None and not (hints == "some" and self._is(0.3)):
            zones = [{"name": zone} for zone in self._some(_ZONES, 2)] if hints != "nodes" else []
            nodes = [{"name": name} for name in self._some(NODES, 2)] if hints in ("nodes", "both") else []
            entry["hints"] = {"forZones": zones, "forNodes": nodes}
        return entry
