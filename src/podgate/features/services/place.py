"""place: one Service and its slices become its ports, as this node serves them.

Here: the join of what ports.py and slices.py read, source ranges, the health check. Not here: choosing endpoints
(endpoints.py), all Services (compile.py).
Invariant: what is given depends on this Service, its slices and Here alone.
"""

from collections.abc import Iterable, Mapping

from podgate.features.services.addresses import Span, family_of, merged, within
from podgate.features.services.endpoints import Here, choose, endpoints_of, ready_here
from podgate.features.services.intent import FAMILIES, Guard, HealthCheck, ServicePort
from podgate.features.services.ports import FamilyFacts, PortFacts, ServiceFacts
from podgate.features.services.slices import SliceFacts
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family


class Placed(Frozen, frozen=True, gc=False):
    """A Service as this node serves it.

    Attributes:
        ip, ip6: its ports by family.
        health_port: its health check node port, 0 for none.
        health: what that answers.
    """

    ip: tuple[ServicePort, ...] = ()
    ip6: tuple[ServicePort, ...] = ()
    health_port: int = 0
    health: HealthCheck | None = None


def place(
    here: Here,
    ref: ObjectRef,
    found: tuple[ServiceFacts | None, Mapping[ObjectRef, SliceFacts] | None],
) -> Placed | None:
    """Place a Service; None for slices whose Service is not there, or is for no proxy."""
    facts, slices = found
    if facts is None:
        return None
    each = () if slices is None else slices.values()
    ip = () if facts.ip is None else _ports("ip", facts, facts.ip, each, here)
    ip6 = () if facts.ip6 is None else _ports("ip6", facts, facts.ip6, each, here)
    if not facts.health_port:
        return Placed(ip, ip6)
    return Placed(ip, ip6, facts.health_port, _health(ref, facts, each, here))


def _ports(
    family: Family, facts: ServiceFacts, part: FamilyFacts, slices: Iterable[SliceFacts], here: Here
) -> tuple[ServicePort, ...]:
    own = [each for each in slices if each.family == family]
    # A tuple of a list is made faster than one of a generator.
    return tuple([_port(facts, part, port, own, here) for port in part.ports])


def _port(
    facts: ServiceFacts, part: FamilyFacts, port: PortFacts, slices: Iterable[SliceFacts], here: Here
) -> ServicePort:
    reached = bool(port.node_port or port.external or port.balancers)
    external_local = facts.external_local and reached
    chosen = choose(
        endpoints_of(slices, port.name, port.protocol),
        here,
        uses_cluster=reached or not facts.internal_local,
        uses_local=facts.internal_local or external_local,
        udp=port.protocol == "udp",
    )
    external = port.external
    if port.balancers:
        external = tuple(sorted({*external, *port.balancers}))
    guard = None
    if part.sources is not None and port.balancers:
        guard = _guard(port.balancers, part.sources, here)
    return ServicePort(
        port.label,
        port.protocol,
        port.port,
        part.cluster_ip,
        external,
        port.node_port,
        chosen.cluster,
        chosen.local,
        facts.internal_local,
        external_local,
        chosen.anywhere,
        facts.sticky,
        guard,
        chosen.serving,
        chosen.own,
        not port.name,
    )


def _guard(balancers: tuple[bytes, ...], sources: tuple[Span, ...], here: Here) -> Guard | None:
    """Give who may use a load balancer's addresses; None when everybody may.

    Where this node is let in, so are the addresses themselves: a balancer may put them on the node, and what the node
    sends there has them as its source too.
    """
    if any(not any(first) and all(byte == 255 for byte in last) for first, last in sources):
        return None
    if any(within(address, sources) for address in here.addresses):
        family = family_of(balancers[0])
        own = [(address, address) for address in balancers if family_of(address) == family]
        sources = merged([*sources, *own])
    return Guard(balancers, sources)


def _health(ref: ObjectRef, facts: ServiceFacts, slices: Iterable[SliceFacts], here: Here) -> HealthCheck:
    ip, ip6 = (_ready(family, facts.of(family), slices, here) for family in FAMILIES)
    return HealthCheck(ref.namespace, ref.name, ip, ip6)


def _ready(family: Family, part: FamilyFacts | None, slices: Iterable[SliceFacts], here: Here) -> int | None:
    """Count the ready endpoints of a family on this node, by address."""
    if part is None:
        return None
    own = [each for each in slices if each.family == family]
    return ready_here(own, here, {(port.name, port.protocol) for port in part.ports})
