"""claims: Services that ask for the same address, protocol and port, or the same port of the node.

Here: who gets it, and what the others lose. Not here: reading a Service (ports.py).
Invariant: of what is given no two ports share a destination; who wins depends on the Services alone, not on the order
of events.

A cluster IP comes before a load balancer's address, and that before an external IP, since anybody who may write a
Service can claim any external IP (CVE-2020-8554). A node port comes before a health check node port, which packets
would never reach. After that the older Service wins, then the first by namespace and name.
"""

from collections.abc import Iterable, Iterator, Mapping
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


_Port = tuple[ObjectRef, Family, int]


class _Bid(NamedTuple):
    """One claim for a destination, ordered by what decides; a Service's port is told by its family and number."""

    rank: Rank
    created: str
    ref: ObjectRef
    family: Family
    number: int

    @property
    def port(self) -> _Port:
        """Whose claim it is."""
        return self.ref, self.family, self.number


class Contests:
    """Settles contests, again and again; only destinations that changed Services ask for are looked at.

    A port that loses its cluster IP asks for nothing else: that is all by which contests depend on each other.
    """

    def __init__(self) -> None:
        self._input: Table[ObjectRef, ServiceFacts] = Table()
        self._output: Table[ObjectRef, ServiceFacts] = Table()
        self._first: dict[Claimed, ObjectRef] = {}
        self._contested: dict[Claimed, set[ObjectRef]] = {}
        self._void: set[_Port] = set()  # those that lost their cluster IP
        self._losers: dict[Claimed, dict[ObjectRef, ObjectRef]] = {}  # by destination, and who has it
        self._lost: dict[ObjectRef, dict[Claimed, ObjectRef]] = {}  # the same by loser
        self._settled: dict[ObjectRef, ServiceFacts] = {}

    def __call__(self, facts: Table[ObjectRef, ServiceFacts]) -> Table[ObjectRef, ServiceFacts]:
        """Give the Services without what they lost, with a problem for each loss."""
        if facts is self._input:
            return self._output
        touched: set[Claimed] = set()
        moved: set[ObjectRef] = set()
        for change in changes(self._input, facts):
            moved.add(change.key)
            had = tuple(claims_of(change.old)) if change.old is not None else ()
            self._void.difference_update((change.key, family, index) for _, _, family, index in had)
            touched.update(each for each in {claim[0] for claim in had} if self._remove(each, change.key))
            for claim in claims_of(change.new) if change.new is not None else ():
                if self._add(claim[0], change.key):
                    touched.add(claim[0])
        self._input = facts
        self._output = self._without_lost(facts, moved | self._decide(touched, facts) if touched else moved)
        return self._output

    def _add(self, destination: Claimed, ref: ObjectRef) -> bool:
        """Say whether it is contested now."""
        first = self._first.setdefault(destination, ref)
        if first is ref or first == ref:
            return destination in self._contested
        self._contested.setdefault(destination, {first}).add(ref)
        return True

    def _remove(self, destination: Claimed, ref: ObjectRef) -> bool:
        """Say whether it was contested before."""
        several = self._contested.get(destination)
        if several is None:
            self._first.pop(destination, None)
            return False
        several.discard(ref)
        self._first[destination] = next(iter(several))
        if len(several) == 1:
            del self._contested[destination]
        return True

    def _decide(self, touched: Iterable[Claimed], facts: Table[ObjectRef, ServiceFacts]) -> set[ObjectRef]:
        """Decide again who gets these destinations; give the Services that lose something else than before."""
        bids = self._bids(touched, facts)
        freed = {port for each in bids.values() for port in self._voided(each)}
        more = {
            destination
            for ref in {port[0] for port in freed}
            for destination, _, family, index in claims_of(facts[ref])
            if (ref, family, index) in freed and destination in self._contested
        }
        found: set[ObjectRef] = set()
        for destination, each in (*bids.items(), *self._bids(more - bids.keys(), facts).items()):
            found |= self._award(destination, sorted(bid for bid in each if not bid.rank or bid.port not in self._void))
        return found

    def _bids(
        self, destinations: Iterable[Claimed], facts: Table[ObjectRef, ServiceFacts]
    ) -> dict[Claimed, list[_Bid]]:
        found: dict[Claimed, list[_Bid]] = {each: [] for each in destinations}
        refs = {ref for each in found for ref in self._contested.get(each, (self._first.get(each),)) if ref is not None}
        for ref in refs:
            created = facts[ref].created
            for destination, rank, family, index in claims_of(facts[ref]):
                if destination in found:
                    found[destination].append(_Bid(rank, created, ref, family, index))
        return found

    def _voided(self, bids: Iterable[_Bid]) -> Iterator[_Port]:
        """Note which ports have their cluster IP and which lost it; give those of which that is news."""
        for place, bid in enumerate(sorted(bid for bid in bids if not bid.rank)):
            if (place > 0) != (bid.port in self._void):
                self._void ^= {bid.port}
                yield bid.port

    def _award(self, destination: Claimed, bids: list[_Bid]) -> set[ObjectRef]:
        """Give a destination to the first of those who ask; give the Services for which that is news."""
        losers = {bid.ref: bids[0].ref for bid in bids if bid.ref != bids[0].ref}
        before = self._losers.pop(destination, {})
        if losers:
            self._losers[destination] = losers
        news = {ref for ref in before.keys() | losers.keys() if before.get(ref) != losers.get(ref)}
        for ref in news:
            lost = self._lost.setdefault(ref, {})
            lost.pop(destination, None)
            if ref in losers:
                lost[destination] = losers[ref]
            if not lost:
                del self._lost[ref]
        return news

    def _without_lost(
        self, facts: Table[ObjectRef, ServiceFacts], moved: Iterable[ObjectRef]
    ) -> Table[ObjectRef, ServiceFacts]:
        """Give all Services; of the last answer only what moved is made anew."""
        had_losers = bool(self._settled)
        now = {}
        for ref in moved:
            found = facts.get(ref)
            self._settled.pop(ref, None)
            if found is not None and ref in self._lost:
                found = self._settled[ref] = _without(ref, found, self._lost[ref])
            now[ref] = found
        if not self._settled:
            return facts
        if not had_losers:
            return facts.updated(self._settled)
        there = {ref: found for ref, found in now.items() if found is not None}
        return self._output.updated(there, now.keys() - there.keys())


def _without(ref: ObjectRef, facts: ServiceFacts, lost: Mapping[Claimed, ObjectRef]) -> ServiceFacts:
    """Give a Service without what it lost."""
    fields = {claim[0]: _field(claim) for claim in reversed(tuple(claims_of(facts)))}
    # A node port is lost in each family, and told once.
    problems = dict.fromkeys(
        Problem(ref, "error", "Contested", fields[destination], f"{destination} belongs to {winner}: {_ADVICE}")
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


def _field(claim: Claim) -> str:
    _, rank, _, index = claim
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
