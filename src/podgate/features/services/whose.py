"""whose: which Services are this proxy's, and which destinations are another proxy's.

Here: the label ``service-proxy-name``, read. Not here: what a Service says (ports.py), flows (to_conntrack.py).
Invariant: a Service is one proxy's; the default one has those without the label, whatever its value.
"""

from collections.abc import Iterator

from podgate.features.services.intent import PackedDestination
from podgate.features.services.ports import read_service
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.services import Service


def is_ours(service: Service, proxy_name: str) -> bool:
    """Say whether a Service is this proxy's; one with a name watches no others."""
    return bool(proxy_name) or service.metadata.labels.proxy_name is None


def theirs(proxy_name: str, ref: ObjectRef, service: Service) -> frozenset[PackedDestination] | None:
    """Give where first packets to another proxy's Service are sent to; None for one of ours, or without any."""
    return None if is_ours(service, proxy_name) else frozenset(_destinations(ref, service)) or None


def _destinations(ref: ObjectRef, service: Service) -> Iterator[PackedDestination]:
    facts = read_service(ref, service)
    for part in (facts.ip, facts.ip6) if facts is not None else ():
        if part is None:
            continue
        yield part.cluster_ip, 0
        for port in part.ports:
            if port.protocol != "udp":
                continue
            yield from ((address, port.port) for address in (*port.external, *port.balancers))
            if port.node_port:
                yield b"", port.node_port
