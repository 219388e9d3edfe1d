"""claims: Services that ask for the same address, protocol and port, or the same port of the node.

Here: who gets it, and what the others lose. Not here: reading a Service (ports.py).
Invariant: of what is given no two ports share a destination; who wins depends on the Services alone, not on the order
of events.

A cluster IP comes before a load balancer's address, and that before an external IP, since anybody who may write a
Service can claim any external IP (CVE-2020-8554). A node port comes before a health check node port, which packets
would never reach. After that the older Service wins, then the first by namespace and name.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from podgate.features.services.addresses import with_port
from podgate.features.services.intent import FAMILIES, Protocol
from podgate.features.services.ports import FamilyFacts, PortFacts, ServiceFacts
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.problems import Problem
from podgate.model.table import Table, changes

Rank = Literal[0, 1, 2, 3, 4]

_FIELDS: Final[Mapping[int, str]] = {
    0: "spec.clusterIPs",
    1: "status.loadBalancer.ingress",
    2: "spec.externalIPs",
}
_NODE_PORT: Final = 3
_HEALTH_PORT: Final = 4
_OF_NO_PORT: Final = -1


class Claimed(NamedTuple):
    """What is asked for; a node port has no address, and its family instead."""

    address: bytes
    protocol: Protocol
    port: int

    def __str__(self) -> str:
        """Show ``10.96.0.7:80/tcp`` or ``node port 30080/tcp``."""
        if len(self.address) < 4:
            return f"node port {self.port}/{self.protocol}"
        return f"{with_port(self.address, self.port)}/{self.protocol}"


_NODE: Final[Mapping[Family, bytes]] = {"ip": b"4", "ip6": b"6"}

Claim = tuple[Claimed, Rank, Family, int]
"""What a Service asks for: the destination, how strong the claim is (lower is stronger), and which of its ports."""


def claims_of(facts: ServiceFacts) -> Iterator[Claim]:
    """Give all that a Service asks for."""
    for family in FAMILIES:
        if facts.health_port:  # it is one port, whatever the families of the Service
            yield Claimed(_NODE[family], "tcp", facts.health_port), _HEALTH_PORT, family, _OF_NO_PORT
        part = facts.of(family)
        if part is None:
            continue
        for port in part.ports:
            protocol, number = port.protocol, port.port
            yield Claimed(part.cluster_ip, protocol, number), 0, family, port.index
            if port.node_port:
                yield Claimed(_NODE[family], protocol, port.node_port), _NODE_PORT, family, port.index
            for address in port.balancers:
                yield Claimed(address, protocol, number), 1, family, port.index
            for address in port.external:
                if address not in port.balancers:
                    yield Claimed(address, protocol, number), 2, family, port.index


class Contests:
    """Settles contests, again and again; only Services that changed are looked at, and those in a contest."""

    def __init__(self) -> None:
        self._input: Table[ObjectRef, ServiceFacts] = Table()
        self._output: Table[ObjectRef, ServiceFacts] = Table()
        self._first: dict[Claimed, ObjectRef] = {}
        self._contested: dict[Claimed, set[ObjectRef]] = {}

    def __call__(self, facts: Table[ObjectRef, ServiceFacts]) -> Table[ObjectRef, ServiceFacts]:
        """Give the Services without what they lost, with a problem for each loss."""
        if facts is self._input:
            return self._output
        for change in changes(self._input, facts):
            for claim in claims_of(change.old) if change.old is not None else ():
                self._remove(claim[0], change.key)
            for claim in claims_of(change.new) if change.new is not None else ():
                self._add(claim[0], change.key)
        self._input = facts
        lost = self._lost(facts) if self._contested else {}
        settled = {ref: _without(ref, facts[ref], gone) for ref, gone in lost.items()}
        self._output = facts.updated(settled) if settled else facts
        return self._output

    def _add(self, destination: Claimed, ref: ObjectRef) -> None:
        first = self._first.setdefault(destination, ref)
        if first is not ref and first != ref:
            self._contested.setdefault(destination, {first}).add(ref)

    def _remove(self, destination: Claimed, ref: ObjectRef) -> None:
        several = self._contested.get(destination)
        if several is None:
            self._first.pop(destination, None)
            return
        several.discard(ref)
        self._first[destination] = next(iter(several))
        if len(several) == 1:
            del self._contested[destination]

    def _lost(self, facts: Table[ObjectRef, ServiceFacts]) -> dict[ObjectRef, dict[Claimed, ObjectRef]]:
        """Give what each loser loses, and to whom. A port that loses its cluster IP asks for nothing else."""
        lost: dict[ObjectRef, dict[Claimed, ObjectRef]] = {}
        void: set[tuple[ObjectRef, Family, int]] = set()
        asked = {
            destination: [
                (claim[1], facts[ref].created, ref, (ref, claim[2], claim[3]))
                for ref in refs
                for claim in claims_of(facts[ref])
                if claim[0] == destination
            ]
            for destination, refs in self._contested.items()
        }
        for strongest in (True, False):
            for destination in sorted(asked):
                claims = sorted(claim for claim in asked[destination] if claim[3] not in void)
                if not claims or (claims[0][0] == 0) is not strongest:
                    continue
                for rank, _, ref, port in claims[1:]:
                    lost.setdefault(ref, {})[destination] = claims[0][2]
                    if rank == 0:
                        void.add(port)
        return lost


def _without(ref: ObjectRef, facts: ServiceFacts, lost: Mapping[Claimed, ObjectRef]) -> ServiceFacts:
    """Give a Service without what it lost."""
    # A node port is lost in each family, and told once.
    problems = dict.fromkeys(
        Problem(ref, "error", "Contested", _field(facts, destination), f"{destination} belongs to {winner}: {_ADVICE}")
        for destination, winner in sorted(lost.items())
    )
    health = {Claimed(node, "tcp", facts.health_port) for node in _NODE.values()}
    return replace(
        facts,
        ip=_family_without("ip", facts.ip, lost),
        ip6=_family_without("ip6", facts.ip6, lost),
        health_port=0 if health & lost.keys() else facts.health_port,
        problems=(*facts.problems, *problems),
    )


_ADVICE: Final = "ask for another one, or remove one of them"


def _field(facts: ServiceFacts, destination: Claimed) -> str:
    rank, index = next((claim[1], claim[3]) for claim in claims_of(facts) if claim[0] == destination)
    if rank == _HEALTH_PORT:
        return "spec.healthCheckNodePort"
    return f"spec.ports[{index}].nodePort" if rank == _NODE_PORT else _FIELDS[rank]


def _family_without(family: Family, part: FamilyFacts | None, lost: Mapping[Claimed, ObjectRef]) -> FamilyFacts | None:
    if part is None:
        return None

    def left(port: PortFacts, addresses: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return tuple(each for each in addresses if Claimed(each, port.protocol, port.port) not in lost)

    ports = tuple(
        replace(
            port,
            node_port=0 if Claimed(_NODE[family], port.protocol, port.node_port) in lost else port.node_port,
            external=left(port, port.external),
            balancers=left(port, port.balancers),
        )
        for port in part.ports
        if Claimed(part.cluster_ip, port.protocol, port.port) not in lost
    )
    return replace(part, ports=ports)
