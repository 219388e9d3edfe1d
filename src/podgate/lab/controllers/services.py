"""Services: cluster IPs, node ports and health check node ports, as an API server gives them. Pure.

Here: who gets which address and port, the default ServiceCIDR, and what an API server would refuse because of other
objects. Not here: endpoints (endpointslices.py), rules (an agent).
Invariant: what a user asks for is never given to somebody else, and what was given is kept.

An API server draws at random; here it is the smallest that is free, above the part of a range that both leave for
whoever asks for a certain one (KEP-3070, KEP-3668), and that part last. Deviations: there are no IPAddress objects; a
request that contradicts what another Service has is refused when it is applied, and otherwise kept as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

from podgate.lab.controllers.seeing import Seen, seen
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Write
from podgate.lab.kinds import Object
from podgate.lab.serviceshapes import HEADLESS, Service, ServiceCIDR, ServiceSpec
from podgate.lab.servicevalidity import DEFAULT_RANGES, FAMILIES, NODE_PORTS
from podgate.lab.shapes import ShapeFault, view
from podgate.model.frozen import ObjectRef
from podgate.model.machine import IPAddress, IPNetwork

DEFAULT_CIDR: Final = "kubernetes"
"""The name of the ServiceCIDR that every cluster begins with; its first range is of the cluster's primary family."""

_ASKED_PORTS: Final = 86
"""How many node ports are left for whoever asks: a 32nd of them, 128 at most (KEP-3668)."""

_READY: Final = {"type": "Ready", "status": "True"}


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give addresses and ports to Services that lack them."""
    services = seen(objects, "Service", Service)
    cidrs = seen(objects, "ServiceCIDR", ServiceCIDR)
    writes: list[Write] = []
    if services and not cidrs:
        writes.append(Put(_default_cidr()))
    unmarked = (one for one in cidrs if _READY not in ((one.obj.get("status") or {}).get("conditions") or ()))
    writes += (PutStatus(one.ref, {"conditions": [_READY]}) for one in unmarked)
    ranges = service_ranges(objects)
    addresses = {ip for one in services for ip in _addresses(one.value.spec)}
    ports = {number for one in services for number in _node_ports(one.value.spec)}
    for one in services:
        if not one.value.spec.named_elsewhere:
            spec = _with_ports(_with_addresses(one, ranges, addresses), one.value.spec, ports)
            if spec != one.obj.get("spec"):
                writes.append(Put({**one.obj, "spec": spec}))
    return tuple(writes)


def _default_cidr() -> Object:
    metadata = {"name": DEFAULT_CIDR}
    spec = {"cidrs": list(DEFAULT_RANGES)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": metadata, "spec": spec}


def service_ranges(objects: Objects) -> tuple[IPNetwork, ...]:
    """Give the ranges of cluster IPs, the cluster's primary family first."""
    cidrs = seen(objects, "ServiceCIDR", ServiceCIDR)
    ordered = sorted(cidrs, key=lambda one: one.ref.name != DEFAULT_CIDR)
    texts = [text for one in ordered for text in one.value.spec.cidrs] or list(DEFAULT_RANGES)
    return tuple(ip_network(text) for text in texts)


def _addresses(spec: ServiceSpec) -> Iterator[IPAddress]:
    return (ip_address(text) for text in spec.given_ips if text != HEADLESS)


def _node_ports(spec: ServiceSpec) -> Iterator[int]:
    return (number for number in (*(port.node_port for port in spec.ports), spec.health_check_node_port) if number)


def _families(spec: ServiceSpec, ranges: Sequence[IPNetwork]) -> tuple[str, tuple[str, ...]]:
    """Give the policy and the families of a Service, as an API server completes them."""
    selectorless = spec.headless and not spec.selector
    policy = spec.ip_family_policy or ("RequireDualStack" if selectorless else "SingleStack")
    known = dict.fromkeys(f"IPv{one.version}" for one in ranges)
    given = spec.ip_families or tuple(f"IPv{ip.version}" for ip in _addresses(spec)) or tuple(known)[:1]
    if policy == "SingleStack":
        return policy, given[:1]
    more = (name for name in FAMILIES if name not in given and (name in known or selectorless))
    return policy, (*given, *more)


def _with_addresses(service: Seen[Service], ranges: Sequence[IPNetwork], taken: set[IPAddress]) -> Object:
    """Give a Service's spec with addresses; what is given out is noted in ``taken``."""
    spec = service.value.spec
    policy, families = _families(spec, ranges)
    if spec.headless:
        ips = [HEADLESS]
    else:
        ips = [str(ip) for ip in _addresses(spec)][: len(families)]
        for family in families[len(ips) :]:
            free = _free_address([one for one in ranges if one.version == FAMILIES[family]], taken)
            if free is None:
                break
            taken.add(free)
            ips.append(str(free))
    completed: Object = {**service.obj["spec"], "ipFamilyPolicy": policy, "ipFamilies": list(families)}
    return {**completed, "clusterIP": ips[0], "clusterIPs": ips} if ips else completed


def _free_address(ranges: Sequence[IPNetwork], taken: set[IPAddress]) -> IPAddress | None:
    for one in ranges:
        asked = min(max(16, one.num_addresses // 16), 256)
        last = one.num_addresses - (1 if one.version == 4 else 0)
        # At most as many as are taken have to be tried before one is free.
        for start, stop in ((asked + 1, last), (1, min(asked + 1, last))):
            for index in range(start, min(stop, start + len(taken) + 1)):
                if one[index] not in taken:
                    return one[index]
    return None


def _with_ports(spec: Object, wanted: ServiceSpec, taken: set[int]) -> Object:
    """Give a Service's spec with node ports. Ports of one number share one, as TCP and UDP 53 do."""
    if wanted.wants_node_ports:
        given = {port.port: port.node_port for port in wanted.ports if port.node_port}
        ports: list[Mapping[str, Any]] = []
        for port in spec.get("ports", ()):
            number = port.get("nodePort") or given.get(port["port"]) or _free_port(taken)
            given[port["port"]] = number
            ports.append({**port, "nodePort": number} if number else port)
        spec = {**spec, "ports": ports}
    if wanted.wants_health_check and not wanted.health_check_node_port:
        number = _free_port(taken)
        spec = {**spec, "healthCheckNodePort": number} if number else spec
    return spec


def _free_port(taken: set[int]) -> int:
    """Give a node port that is free, and note it; 0 when there is none."""
    free = next((n for n in (*NODE_PORTS[_ASKED_PORTS:], *NODE_PORTS[:_ASKED_PORTS]) if n not in taken), 0)
    taken.add(free)
    return free


def contested(objects: Objects, ref: ObjectRef) -> ShapeFault | None:
    """Say what a Service cannot have, because of others or because the cluster has no such range; None: all is well."""
    spec = view(objects[ref], Service).spec
    ranges = service_ranges(objects)
    others = [one for one in seen(objects, "Service", Service) if one.ref != ref]
    holders = {ip: one.ref for one in others for ip in _addresses(one.value.spec)}
    field = "spec.clusterIPs[{}]" if spec.cluster_ips else "spec.clusterIP"
    for index, ip in enumerate(_addresses(spec)):
        where = field.format(index)
        if ip in holders:
            return ShapeFault(
                where, f"{ip} is the address of {holders[ip]} already; choose another one or leave it out"
            )
        if not any(ip in one for one in ranges):
            shown = ", ".join(map(str, ranges))
            return ShapeFault(where, f"{ip} is not in the cluster's ranges ({shown}); choose one that is")
    known = {f"IPv{one.version}" for one in ranges}
    for index, family in enumerate(spec.ip_families if spec.selector or not spec.headless else ()):
        if family not in known:
            return ShapeFault(f"spec.ipFamilies[{index}]", f"the cluster has no range of {family} for Services")
    if spec.ip_family_policy == "RequireDualStack" and len(known) == 1 and not spec.headless:
        return ShapeFault(
            "spec.ipFamilyPolicy", "the cluster has ranges of one family only; PreferDualStack takes that"
        )
    return _contested_port(spec, others)


def _contested_port(spec: ServiceSpec, others: Sequence[Seen[Service]]) -> ShapeFault | None:
    # An API server's allocator knows numbers alone: TCP of one Service and UDP of another never share one.
    holders = {number: one.ref for one in others for number in _node_ports(one.value.spec)}
    asked = {f"spec.ports[{index}].nodePort": port.node_port for index, port in enumerate(spec.ports)}
    for field, number in {**asked, "spec.healthCheckNodePort": spec.health_check_node_port}.items():
        if number and number in holders:
            return ShapeFault(field, f"{number} is a node port of {holders[number]} already; choose another one")
    return None
