"""slices: one EndpointSlice, read.

Here: its endpoints as packed addresses with their state, its ports, complaints. Not here: joining slices, choosing
endpoints (endpoints.py).
Invariant: what is given depends on this slice alone; an entry that cannot be used is left out with a problem, and
never holds up another.
"""

from typing import Final

from podgate.features.services.addresses import SUSPECT, canonical, family_of, oddity, packed, special
from podgate.features.services.intent import ADDRESS_BYTES, Protocol
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.discovery import Endpoint, EndpointSlice
from podgate.model.kinds.services import SERVICE
from podgate.model.machine import Family
from podgate.model.problems import Problem

READY: Final = 1
SERVING: Final = 2
TERMINATING: Final = 4

PROTOCOLS: Final[dict[str, Protocol]] = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
_FAMILIES: Final[dict[str, Family]] = {"IPv4": "ip", "IPv6": "ip6"}


class SliceEndpoint(Frozen, frozen=True, gc=False):
    """One endpoint, whatever the port.

    Attributes:
        address: packed.
        state: READY, SERVING and TERMINATING, added.
        node: the node that it is on; empty when nobody says.
        zones: the zones that it is meant for.
        nodes: the nodes that it is meant for.
        pod: the UID of what it is; empty when nobody says.
        changed: when what its slice tells last changed, as text that sorts by time.
    """

    address: bytes
    state: int = READY | SERVING
    node: str = ""
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    pod: str = ""
    changed: str = ""


class SlicePort(Frozen, frozen=True, gc=False):
    """One port of all endpoints: which ports of the Service it is for, and its number, packed in 2 bytes."""

    name: str
    protocol: Protocol
    number: bytes


class SliceFacts(Frozen, frozen=True, gc=False):
    """What a slice says.

    Attributes:
        service: whose endpoints these are.
        family: of all its addresses.
        ports: those with a number.
        endpoints: in the order of the slice.
        problems: complaints about it.
    """

    service: ObjectRef
    family: Family
    ports: tuple[SlicePort, ...] = ()
    endpoints: tuple[SliceEndpoint, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_slice(ref: ObjectRef, found: EndpointSlice) -> SliceFacts | None:
    """Read a slice; None for one of host names (FQDN), which no proxy uses."""
    if found.address_type == "FQDN":
        return None
    problems: list[Problem] = []
    name = found.metadata.labels.service_name
    if not name:
        message = "no label kubernetes.io/service-name says whose endpoints these are: add it"
        problems.append(Problem(ref, "error", "NoService", "metadata.labels", message))
    family = _FAMILIES.get(found.address_type)
    if family is None:
        message = f'"{found.address_type}" is none of IPv4, IPv6 and FQDN: correct it'
        problems.append(Problem(ref, "error", "UnknownAddressType", "addressType", message))
    if family is None or not name:
        return SliceFacts(ObjectRef(SERVICE.kind, name, ref.namespace), family or "ip", problems=tuple(problems))
    return SliceFacts(
        ObjectRef(SERVICE.kind, name, ref.namespace),
        family,
        _ports(ref, found, problems),
        _endpoints(ref, found, family, problems),
        tuple(problems),
    )


def _ports(ref: ObjectRef, found: EndpointSlice, problems: list[Problem]) -> tuple[SlicePort, ...]:
    ports = []
    for index, port in enumerate(found.ports):
        protocol = PROTOCOLS.get(port.protocol)
        if protocol is None:
            message = f'"{port.protocol}" is none of TCP, UDP and SCTP: correct it'
            problems.append(Problem(ref, "error", "UnknownProtocol", f"ports[{index}].protocol", message))
        elif not 0 <= port.port < 65536:
            message = f"{port.port} is no port: write 1 to 65535"
            problems.append(Problem(ref, "error", "BadPort", f"ports[{index}].port", message))
        elif port.port:  # Without a number all ports are meant, which no Service can ask for.
            ports.append(SlicePort(port.name, protocol, port.port.to_bytes(2)))
    return tuple(ports)


def _endpoints(
    ref: ObjectRef, found: EndpointSlice, family: Family, problems: list[Problem]
) -> tuple[SliceEndpoint, ...]:
    changed = found.metadata.annotations.last_change.removesuffix("Z")
    wanted = ADDRESS_BYTES[family]
    suspect = SUSPECT[wanted]
    endpoints = []
    for index, endpoint in enumerate(found.endpoints):
        if not endpoint.addresses:
            continue
        text = endpoint.addresses[0]
        address = canonical(text)
        if address is None or len(address) != wanted or address[0] in suspect:
            problem = _address_problem(ref, index, text, found.address_type)
            if problem is not None:
                problems.append(problem)
            address = packed(text)
            if address is None or (problem is not None and problem.severity == "error"):
                continue
        endpoints.append(_endpoint(address, endpoint, changed))
    return tuple(endpoints)


def _endpoint(address: bytes, endpoint: Endpoint, changed: str) -> SliceEndpoint:
    conditions, hints, target = endpoint.conditions, endpoint.hints, endpoint.target_ref
    state = conditions.ready + 2 * conditions.serving + 4 * conditions.terminating
    pod = "" if target is None else target.uid
    if not hints.for_zones and not hints.for_nodes:
        return SliceEndpoint(address, state, endpoint.node_name, (), (), pod, changed)
    zones = tuple(hint.name for hint in hints.for_zones)
    nodes = tuple(hint.name for hint in hints.for_nodes)
    return SliceEndpoint(address, state, endpoint.node_name, zones, nodes, pod, changed)


def _address_problem(ref: ObjectRef, index: int, text: str, wanted: str) -> Problem | None:
    field, address = f"endpoints[{index}].addresses[0]", packed(text)
    if address is None:
        return Problem(ref, "error", "BadAddress", field, f'"{text}" is no {wanted} address: correct it')
    if _FAMILIES[wanted] != family_of(address):
        message = f"{text} is no {wanted} address, as addressType says: put it into a slice of its own family"
        return Problem(ref, "error", "WrongFamily", field, message)
    if kind := special(address):
        message = f"{text} is {kind}, which other nodes cannot reach: write the endpoint's own address"
        return Problem(ref, "error", "SpecialAddress", field, message)
    if canonical(text) is not None:
        return None
    reason, message = oddity(text)
    return Problem(ref, "warning", reason, field, message)
