"""Service validity: what an API server would refuse of Services, ServiceCIDRs and EndpointSlices. Pure.

Here: faults of one object. Not here: other kinds (validity.py), what two of them contend for (controllers/services.py).
Invariant: as validity.py has it: an object without a fault makes no controller fail or run in circles.

The rules are those of Kubernetes 1.36 (pkg/apis/core/validation); ServiceCIDR is KEP-1880.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from podgate.lab.kinds import Object
from podgate.lab.serviceshapes import HEADLESS, EndpointSlice, Service, ServiceCIDR, ServicePort, ServiceSpec
from podgate.lab.shapes import ShapeFault, misfit, view
from podgate.model.kinds.services import AFFINITIES, PORT_PROTOCOLS, TRAFFIC_POLICIES, TYPES
from podgate.model.machine import IPNetwork

NODE_PORTS: Final = range(30000, 32768)
"""Node ports of a cluster whose API server was told nothing else (``--service-node-port-range``)."""

DEFAULT_RANGES: Final = ("10.96.0.0/12", "fd00:10:96::/112")
"""Ranges of cluster IPs of a lab without a ServiceCIDR: kubeadm's own, and one of IPv6."""

FAMILIES: Final[Mapping[str, int]] = {"IPv4": 4, "IPv6": 6}
DISTRIBUTIONS: Final = ("PreferClose", "PreferSameNode", "PreferSameZone")

_LONGEST_AFFINITY: Final = 86400
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_PORT_NAME: Final = re.compile(r"(?=[a-z0-9-]{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)

_Fault = ShapeFault


def service(obj: Object) -> Iterator[ShapeFault]:
    """Give the faults of a Service."""
    fault = misfit(obj, Service)
    if fault is not None:
        yield fault
        return
    spec = view(obj, Service).spec
    yield from _one_of(spec.type, TYPES, "spec.type")
    yield from _ports(spec)
    yield from _addresses(spec)
    yield from _families(spec)
    yield from _affinity(spec)
    yield from _policies(spec)
    yield from _load_balancer(spec)


def _one_of(value: str, words: Collection[str], field: str) -> Iterator[ShapeFault]:
    if value not in words:
        yield _Fault(field, f"{value!r} is not one of {', '.join(sorted(words))}")


def _ports(spec: ServiceSpec) -> Iterator[ShapeFault]:
    if not spec.ports and not spec.headless and not spec.named_elsewhere:
        yield _Fault("spec.ports", "a Service needs a port, unless it is headless or an ExternalName; add one")
    names: set[str] = set()
    ports: set[tuple[str, int]] = set()
    node_ports: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.ports):
        field = f"spec.ports[{index}]"
        yield from _port(port, field)
        if not port.name and len(spec.ports) > 1:
            yield _Fault(f"{field}.name", "each of several ports needs a name; add one")
        if port.name and port.name in names:
            yield _Fault(f"{field}.name", f"{port.name!r} is the name of another port; choose another one")
        if (port.protocol, port.port) in ports:
            yield _Fault(field, f"{port.protocol} {port.port} is given twice; remove one")
        if port.node_port and (port.protocol, port.node_port) in node_ports:
            yield _Fault(f"{field}.nodePort", f"{port.protocol} {port.node_port} is given twice; remove one")
        if port.node_port and spec.type == "ClusterIP":
            yield _Fault(f"{field}.nodePort", "a Service of type ClusterIP has no node ports; remove it")
        names.add(port.name)
        ports.add((port.protocol, port.port))
        node_ports.add((port.protocol, port.node_port))


def _port(port: ServicePort, field: str) -> Iterator[ShapeFault]:
    if not port.port:
        yield _Fault(f"{field}.port", "0 is no port: use 1 to 65535")
    if port.name and not _LABEL.fullmatch(port.name):
        yield _Fault(f"{field}.name", f"{port.name!r} is not a name: use lower case letters, digits and '-'")
    yield from _one_of(port.protocol, PORT_PROTOCOLS, f"{field}.protocol")
    if isinstance(port.target_port, str) and not _PORT_NAME.fullmatch(port.target_port):
        yield _Fault(
            f"{field}.targetPort",
            f"{port.target_port!r} is not the name of a port: at most 15 lower case letters, digits and '-'",
        )
    if port.node_port and port.node_port not in NODE_PORTS:
        yield _Fault(f"{field}.nodePort", f"{port.node_port} is not within {NODE_PORTS[0]} to {NODE_PORTS[-1]}")


def _addresses(spec: ServiceSpec) -> Iterator[ShapeFault]:
    ips = spec.cluster_ips
    if ips and not spec.cluster_ip:
        yield _Fault("spec.clusterIPs", f"it goes with spec.clusterIP, the first of them; add clusterIP: {ips[0]}")
    elif ips and ips[0] != spec.cluster_ip:
        yield _Fault("spec.clusterIPs", f"{ips[0]} is not spec.clusterIP, {spec.cluster_ip}; align them")
    if HEADLESS in ips and len(ips) > 1:
        yield _Fault("spec.clusterIPs", "'None' is the only value where it is given")
    elif spec.headless and spec.type in {"LoadBalancer", "NodePort"}:
        yield _Fault("spec.clusterIP", f"'None' does not go with type {spec.type}")
    elif spec.named_elsewhere and spec.given_ips:
        yield _Fault("spec.clusterIP", "a Service of type ExternalName has no cluster IP; remove it")
    elif not spec.headless:
        name = "spec.clusterIPs[{}]" if ips else "spec.clusterIP"
        for index, text in enumerate(spec.given_ips):
            yield from _parsed(text, ip_address, name.format(index), "an address, as 10.96.0.10")
        if len(ips) > len({_version(text) for text in ips}):
            yield _Fault("spec.clusterIPs", "one address of each family at most")
    for index, text in enumerate(spec.external_ips):
        yield from _external(text, f"spec.externalIPs[{index}]")
    if spec.named_elsewhere and not spec.external_name:
        yield _Fault("spec.externalName", "a Service of type ExternalName needs it; add it")


def _external(text: str, field: str) -> Iterator[ShapeFault]:
    faults = tuple(_parsed(text, ip_address, field, "an address, as 192.0.2.10"))
    yield from faults
    if not faults:
        found = ip_address(text)
        odd = ("is_unspecified", "is_loopback", "is_link_local", "is_multicast")
        yield from (_Fault(field, f"{text} {name.replace('_', ' ')}") for name in odd if getattr(found, name))


def _version(text: str) -> int:
    return 6 if ":" in text else 4


def _families(spec: ServiceSpec) -> Iterator[ShapeFault]:
    given = spec.ip_families
    for index, family in enumerate(given):
        yield from _one_of(family, FAMILIES, f"spec.ipFamilies[{index}]")
    if len(set(given)) < len(given):
        yield _Fault("spec.ipFamilies", f"{given[0]} is given twice; remove one")
    if spec.ip_family_policy:
        words = ("PreferDualStack", "RequireDualStack", "SingleStack")
        yield from _one_of(spec.ip_family_policy, words, "spec.ipFamilyPolicy")
    if spec.named_elsewhere and (given or spec.ip_family_policy):
        yield _Fault("spec.ipFamilies", "a Service of type ExternalName has no IP families; remove them")
    selectorless = spec.headless and not spec.selector
    if spec.ip_family_policy in {"", "SingleStack"} and not selectorless:
        for name, values in (("clusterIPs", spec.cluster_ips), ("ipFamilies", given)):
            if len(values) > 1:
                yield _Fault("spec.ipFamilyPolicy", f"PreferDualStack or RequireDualStack goes with two spec.{name}")
    for index, (text, family) in enumerate(zip(() if spec.headless else spec.given_ips, given, strict=False)):
        if FAMILIES.get(family) != _version(text):
            yield _Fault(f"spec.clusterIPs[{index}]", f"{text} is not of {family}, as spec.ipFamilies[{index}] says")


def _affinity(spec: ServiceSpec) -> Iterator[ShapeFault]:
    yield from _one_of(spec.session_affinity, AFFINITIES, "spec.sessionAffinity")
    config = spec.session_affinity_config
    if config is None or spec.session_affinity == "None":
        return  # without affinity the API drops what belongs to it
    client = config.get("clientIP")
    seconds = client.get("timeoutSeconds") if isinstance(client, dict) else None
    if not isinstance(seconds, int) or not 0 < seconds <= _LONGEST_AFFINITY:
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        yield _Fault(field, f"{seconds} is not within 1 to {_LONGEST_AFFINITY} seconds")


def _policies(spec: ServiceSpec) -> Iterator[ShapeFault]:
    accessible = spec.type in {"LoadBalancer", "NodePort"} or (spec.type == "ClusterIP" and bool(spec.external_ips))
    if spec.external_traffic_policy:
        field = "spec.externalTrafficPolicy"
        yield from _one_of(spec.external_traffic_policy, TRAFFIC_POLICIES, field)
        if not accessible:
            yield _Fault(field, f"a Service of type {spec.type} is not reached from outside; remove it")
    yield from _one_of(spec.internal_traffic_policy, TRAFFIC_POLICIES, "spec.internalTrafficPolicy")
    if spec.traffic_distribution:
        yield from _one_of(spec.traffic_distribution, DISTRIBUTIONS, "spec.trafficDistribution")
    port = spec.health_check_node_port
    if port and not spec.wants_health_check:
        yield _Fault(
            "spec.healthCheckNodePort", "it goes with type LoadBalancer and externalTrafficPolicy: Local; remove it"
        )
    elif port and port not in NODE_PORTS:
        yield _Fault("spec.healthCheckNodePort", f"{port} is not within {NODE_PORTS[0]} to {NODE_PORTS[-1]}")


def _load_balancer(spec: ServiceSpec) -> Iterator[ShapeFault]:
    balanced = spec.type == "LoadBalancer"
    if spec.allocate_load_balancer_node_ports is not None and not balanced:
        yield _Fault("spec.allocateLoadBalancerNodePorts", "it goes with type LoadBalancer only; remove it")
    if spec.load_balancer_source_ranges and not balanced:
        yield _Fault("spec.loadBalancerSourceRanges", "they go with type LoadBalancer only; remove them")
    for index, text in enumerate(spec.load_balancer_source_ranges):
        field = f"spec.loadBalancerSourceRanges[{index}]"
        yield from _parsed(text.strip(), _range, field, "a range, as 192.0.2.0/24")


def _range(text: str) -> IPNetwork:
    return ip_network(text, strict=False)


def _parsed(text: str, read: Callable[[str], object], field: str, what: str) -> Iterator[ShapeFault]:
    try:
        read(text)
    except ValueError as error:
        yield _Fault(field, f"{text!r} is not {what}: {error}")


def service_cidr(obj: Object) -> Iterator[ShapeFault]:
    """Give the faults of a ServiceCIDR."""
    fault = misfit(obj, ServiceCIDR)
    if fault is not None:
        yield fault
        return
    cidrs = view(obj, ServiceCIDR).spec.cidrs
    for index, text in enumerate(cidrs):
        yield from _parsed(text, ip_network, f"spec.cidrs[{index}]", "a range, as 10.96.0.0/12")
    if len(cidrs) > len({_version(text) for text in cidrs}):
        yield _Fault("spec.cidrs", "one range of each family at most")


def endpoint_slice(obj: Object) -> Iterator[ShapeFault]:
    """Give the faults of an EndpointSlice."""
    fault = misfit(obj, EndpointSlice)
    if fault is not None:
        yield fault
        return
    value = view(obj, EndpointSlice)
    yield from _one_of(value.address_type, ("FQDN", *FAMILIES), "addressType")
    version = FAMILIES.get(value.address_type)
    for index, endpoint in enumerate(value.endpoints):
        for place, text in enumerate(endpoint.addresses if version else ()):
            field = f"endpoints[{index}].addresses[{place}]"
            faults = tuple(_parsed(text, ip_address, field, "an address, as 10.16.1.6"))
            yield from faults
            if not faults and ip_address(text).version != version:
                yield _Fault(field, f"{text} is not of {value.address_type}, as addressType says")
    for index, port in enumerate(value.ports):
        yield from _one_of(port.protocol, PORT_PROTOCOLS, f"ports[{index}].protocol")
