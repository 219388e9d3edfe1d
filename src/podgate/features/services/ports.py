"""ports: one Service, read: its ports, and the addresses that lead to them in each family.

Here: what a Service alone says, and complaints about it. Not here: endpoints (endpoints.py), two Services that ask for
the same address (claims.py).
Invariant: what cannot be used is left out with a problem and takes nothing else with it, except source ranges: one that
cannot be read lets nobody in, since leaving it out could let everybody in.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from podgate.features.services.addresses import Span, canonical, family_of, merged, oddity, packed, span, special
from podgate.features.services.intent import FAMILIES, STICKY_SECONDS, Protocol
from podgate.features.services.slices import PROTOCOLS
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.services import (
    AFFINITIES,
    IP_MODES,
    PORT_PROTOCOLS,
    TRAFFIC_POLICIES,
    TYPES,
    Service,
    ServiceSpec,
)
from podgate.model.machine import Family
from podgate.model.problems import Problem, Severity
from podgate.model.spelling import did_you_mean

_MOST_STICKY: Final = 86400
_NAMES: Final[Mapping[Family, str]] = {"ip": "IPv4", "ip6": "IPv6"}


class PortFacts(Frozen, frozen=True, gc=False):
    """One port in one family.

    Attributes:
        index: its place in ``spec.ports``.
        label: ``namespace/name:port``, for people.
        name: what joins it with ports of slices, with the protocol.
        external: external IPs, packed.
        balancers: addresses of load balancers, packed.
    """

    index: int
    label: str
    name: str
    protocol: Protocol
    port: int
    node_port: int = 0
    external: tuple[bytes, ...] = ()
    balancers: tuple[bytes, ...] = ()


class FamilyFacts(Frozen, frozen=True, gc=False):
    """A Service in one family; ``sources`` are who may use the load balancers' addresses, None for everybody."""

    cluster_ip: bytes
    ports: tuple[PortFacts, ...] = ()
    sources: tuple[Span, ...] | None = None


class ServiceFacts(Frozen, frozen=True, gc=False):
    """What a Service says.

    Attributes:
        ip, ip6: by family; None without a cluster IP of it.
        internal_local, external_local: the traffic policies.
        sticky: seconds of ClientIP affinity, 0 for none.
        health_port: the health check node port, 0 for none.
        created: since when it is there, as text that sorts by time.
        problems: complaints about it.
    """

    ip: FamilyFacts | None = None
    ip6: FamilyFacts | None = None
    internal_local: bool = False
    external_local: bool = False
    sticky: int = 0
    health_port: int = 0
    created: str = ""
    problems: tuple[Problem, ...] = ()

    def of(self, family: Family) -> FamilyFacts | None:
        """Give what it says of a family."""
        return self.ip if family == "ip" else self.ip6


class _Address(NamedTuple):
    """An address, the field that it stands in, and how it is written there."""

    packed: bytes
    field: str
    text: str


def read_service(ref: ObjectRef, service: Service, *, external_ips: bool = True) -> ServiceFacts | None:
    """Read a Service; None for one that no proxy is for: headless, or ExternalName.

    Args:
        ref: the Service.
        service: as the API has it.
        external_ips: whether ``spec.externalIPs`` is used (gate AllowServiceExternalIPs, KEP-5707).
    """
    spec = service.spec
    first = spec.cluster_ip or next(iter(spec.cluster_ips), "")
    wrong = tuple(_wrong_words(ref, spec))
    if spec.type == "ExternalName" or first in ("", "None"):
        return ServiceFacts(problems=wrong) if wrong else None
    facts = _Reading(ref, service).facts(external_ips=external_ips)
    return replace(facts, problems=(*wrong, *facts.problems)) if wrong else facts


def _wrong_words(ref: ObjectRef, spec: ServiceSpec) -> Iterator[Problem]:
    """Complain about words that are none of a field's; no API holds such a Service, a file may."""
    for value, words, field, used in (
        (spec.type, TYPES, "type", "ClusterIP"),
        (spec.external_traffic_policy, TRAFFIC_POLICIES, "externalTrafficPolicy", "Cluster"),
        (spec.internal_traffic_policy, TRAFFIC_POLICIES, "internalTrafficPolicy", "Cluster"),
        (spec.session_affinity, AFFINITIES, "sessionAffinity", "None"),
    ):
        if value and value not in words:
            meant = did_you_mean(value, words)
            message = f'"{value}" is none of {", ".join(words)}{meant}, and counts as {used}: correct it'
            yield Problem(ref, "error", "InvalidValue", f"spec.{field}", message)


class _Reading:
    """One Service being read."""

    def __init__(self, ref: ObjectRef, service: Service) -> None:
        self._ref = ref
        self._service = service
        self._spec = service.spec
        self._problems: list[Problem] = []

    def facts(self, *, external_ips: bool) -> ServiceFacts:
        spec = self._spec
        clusters = self._cluster_ips()
        ports = tuple(self._ports())
        external = self._by_family(self._external_ips(used=external_ips), clusters) if spec.external_ips else {}
        ingress = self._service.status.load_balancer.ingress
        balancers = self._by_family(self._balancers(), clusters) if ingress else {}
        sources = self._sources() if spec.load_balancer_source_ranges else {}
        families: dict[Family, FamilyFacts] = {}
        for family, cluster_ip in clusters.items():
            own_external, own_balancers = external.get(family, ()), balancers.get(family, ())
            placed = ports
            if own_external or own_balancers:
                placed = tuple(_with_addresses(port, own_external, own_balancers) for port in ports)
            families[family] = FamilyFacts(cluster_ip, placed, sources.get(family))
        external_local = spec.external_traffic_policy == "Local"
        return ServiceFacts(
            families.get("ip"),
            families.get("ip6"),
            spec.internal_traffic_policy == "Local",
            external_local,
            self._sticky() if spec.session_affinity == "ClientIP" else 0,
            self._health_port(ports) if external_local and spec.type == "LoadBalancer" else 0,
            self._service.metadata.creation_timestamp or "",
            tuple(self._problems),
        )

    def _complain(self, reason: str, field: str, message: str, severity: Severity = "error") -> None:
        self._problems.append(Problem(self._ref, severity, reason, field, message))

    def _address(self, text: str, field: str) -> bytes | None:
        address = canonical(text)
        if address is None:
            address = packed(text)
            if address is None:
                self._complain("BadAddress", field, f'"{text}" is no IP address: correct it')
                return None
            reason, message = oddity(text)
            self._complain(reason, field, message, "warning")
        if kind := special(address):
            self._complain("SpecialAddress", field, f"{text} is {kind}, which no Service can have: correct it")
            return None
        return address

    def _cluster_ips(self) -> dict[Family, bytes]:
        spec = self._spec
        found: dict[Family, bytes] = {}
        plural = bool(spec.cluster_ips)
        for index, text in enumerate(spec.cluster_ips or (spec.cluster_ip,)):
            field = "spec.clusterIP" if not plural else f"spec.clusterIPs[{index}]"
            address = self._address(text, field)
            if address is None:
                continue
            family: Family = "ip" if len(address) == 4 else "ip6"
            if family in found:
                self._complain("WrongFamily", field, f"{text} is the second {_NAMES[family]} address: remove it")
            else:
                found[family] = address
        return found

    def _ports(self) -> Iterator[PortFacts]:
        namespace, name = self._ref.namespace, self._ref.name
        taken: set[tuple[Protocol, int]] = set()
        named: set[tuple[Protocol, str]] = set()
        node_ports: set[tuple[Protocol, int]] = set()
        for index, port in enumerate(self._spec.ports):
            protocol = PROTOCOLS.get(port.protocol)
            if protocol is None:
                meant = did_you_mean(port.protocol, PORT_PROTOCOLS)
                message = f'"{port.protocol}" is none of TCP, UDP and SCTP{meant}: correct it'
                self._complain("UnknownProtocol", f"spec.ports[{index}].protocol", message)
                continue
            if not 0 < port.port < 65536:
                self._complain("BadPort", f"spec.ports[{index}].port", f"{port.port} is no port: write 1 to 65535")
                continue
            if (protocol, port.port) in taken:
                message = f"{port.port}/{protocol} is the port of an earlier entry, which counts: remove one"
                self._complain("DuplicatePort", f"spec.ports[{index}].port", message)
                continue
            if (protocol, port.name) in named:
                self._complain("DuplicateName", f"spec.ports[{index}].name", _named_twice(port.name))
                continue
            taken.add((protocol, port.port))
            named.add((protocol, port.name))
            node_port = port.node_port and self._node_port(index, port.node_port, protocol, node_ports)
            label = f"{namespace}/{name}:{port.name or port.port}"
            yield PortFacts(index, label, port.name, protocol, port.port, node_port)

    def _node_port(self, index: int, number: int, protocol: Protocol, taken: set[tuple[Protocol, int]]) -> int:
        """Give a node port, or 0 for one that cannot be used."""
        field = f"spec.ports[{index}].nodePort"
        if not 0 < number < 65536:
            self._complain("BadPort", field, f"{number} is no port: write 1 to 65535, or nothing")
            return 0
        if (protocol, number) in taken:
            message = f"{number}/{protocol} is the node port of an earlier entry, which counts: remove one"
            self._complain("DuplicatePort", field, message)
            return 0
        taken.add((protocol, number))
        return number

    def _external_ips(self, *, used: bool) -> Iterator[_Address]:
        if not used:
            message = "external IPs are switched off on this node (--no-external-ips): use a load balancer"
            self._complain("ExternalIPsOff", "spec.externalIPs", message)
            return
        for index, text in enumerate(self._spec.external_ips):
            field = f"spec.externalIPs[{index}]"
            address = self._address(text, field)
            if address is not None:
                yield _Address(address, field, text)

    def _balancers(self) -> Iterator[_Address]:
        for index, ingress in enumerate(self._service.status.load_balancer.ingress):
            if ingress.ip_mode not in ("", *IP_MODES):
                message = f'"{ingress.ip_mode}" is none of {", ".join(IP_MODES)}, and counts as Proxy: correct it'
                self._complain("InvalidValue", f"status.loadBalancer.ingress[{index}].ipMode", message)
            # In mode Proxy packets come with a node's address, and who sends to this one means the balancer (KEP-1860).
            elif ingress.ip and ingress.ip_mode != "Proxy":
                field = f"status.loadBalancer.ingress[{index}].ip"
                address = self._address(ingress.ip, field)
                if address is not None:
                    yield _Address(address, field, ingress.ip)

    def _by_family(
        self, addresses: Iterator[_Address], clusters: Mapping[Family, bytes]
    ) -> dict[Family, tuple[bytes, ...]]:
        """Sort addresses into families; the cluster IP itself is no other address."""
        found: dict[Family, set[bytes]] = {}
        for address, field, text in addresses:
            family = family_of(address)
            if family not in clusters:
                name = _NAMES[family]
                message = f"{text} leads nowhere, as the Service has no {name} cluster IP: remove it, or add the family"
                self._complain("WrongFamily", field, message)
            elif address != clusters[family]:
                found.setdefault(family, set()).add(address)
        return {family: tuple(sorted(each)) for family, each in found.items()}

    def _sources(self) -> dict[Family, tuple[Span, ...]]:
        """Give the ranges by family; a family that none is of is not narrowed, as with kube-proxy."""
        found: dict[Family, list[Span]] = {}
        closed = False
        for index, text in enumerate(self._spec.load_balancer_source_ranges):
            field = f"spec.loadBalancerSourceRanges[{index}]"
            given = span(text.strip())
            if given is None:
                closed = True
                message = f'"{text}" is no range, and lets nobody in: write one as 198.51.100.0/24, for example'
                self._complain("BadRange", field, message)
                continue
            first = text.strip().partition("/")[0]
            if canonical(first) is None:
                reason, message = oddity(first)
                self._complain(reason, field, message, "warning")
            found.setdefault(family_of(given[0]), []).append(given)
        ranges = {family: merged(spans) for family, spans in found.items()}
        return {**dict.fromkeys(FAMILIES, ()), **ranges} if closed else ranges

    def _sticky(self) -> int:
        seconds = self._spec.session_affinity_config.client_ip.timeout_seconds
        if 0 < seconds <= _MOST_STICKY:
            return seconds
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        message = f"{seconds} is not between 1 and {_MOST_STICKY}: {STICKY_SECONDS} is used"
        self._complain("BadTimeout", field, message)
        return STICKY_SECONDS

    def _health_port(self, ports: Iterable[PortFacts]) -> int:
        field, port = "spec.healthCheckNodePort", self._spec.health_check_node_port
        if not 0 < port < 65536:
            asks = "the load balancer cannot ask which nodes have endpoints"
            self._complain("BadPort", field, f"{port} is no port, and {asks}: write 1 to 65535")
            return 0
        if any((each.protocol, each.node_port) == ("tcp", port) for each in ports):
            self._complain("DuplicatePort", field, f"{port}/tcp is a node port of this Service, too: write another one")
            return 0
        return port


def _named_twice(name: str) -> str:
    """Say why a port is not used: what joins it with ports of slices is the name of another one."""
    if not name:
        return "an earlier entry, which counts, has no name either: give each a name"
    return f'"{name}" is the name of an earlier entry, which counts: give each a name of its own'


def _with_addresses(port: PortFacts, external: tuple[bytes, ...], balancers: tuple[bytes, ...]) -> PortFacts:
    return PortFacts(port.index, port.label, port.name, port.protocol, port.port, port.node_port, external, balancers)
