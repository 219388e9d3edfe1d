"""layout: the maps that hold all Services of a family, and the elements that one Service puts into them.

Here: the maps' names and types, keys, data, the number of a bucket. Not here: the rules that look into them
(to_nftables.py).
Invariant: what a Service writes depends on that Service alone, and on options of the node: a change of one endpoint is
a few elements, whatever the number of Services; no map but ``buckets`` has verdicts.

The way of a new connection: ``service-ips`` (or ``node-ports``) gives the set of endpoints, named by the Service's
cluster IP, port and protocol, and a bucket. ``buckets`` gives the chain for that number of endpoints, which draws a
slot and finds it in ``endpoints``. With an external policy Local, ``outside-ips`` and ``outside-node-ports`` give other
buckets to traffic from outside. Set and slot name an endpoint, so a Service with ten addresses writes each once.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

from podgate.features.services.intent import Protocol, ServicePort
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family
from podgate.targets.nftables.elements import MEMBER, Data, Element
from podgate.targets.nftables.state import Set

SERVICE_IPS: Final = "service-ips"
NODE_PORTS: Final = "node-ports"
OUTSIDE_IPS: Final = "outside-ips"
OUTSIDE_NODE_PORTS: Final = "outside-node-ports"
ENDPOINTS: Final = "endpoints"
BUCKETS: Final = "buckets"
REJECTED: Final = "rejected"
REJECTED_NODE_PORTS: Final = "rejected-node-ports"
DROPPED: Final = "dropped"
OUTSIDE_DROPPED: Final = "outside-dropped"
OUTSIDE_DROPPED_NODE_PORTS: Final = "outside-dropped-node-ports"
CLUSTER_IPS: Final = "cluster-ips"
GUARDED: Final = "guarded-ips"
ALLOWED: Final = "allowed-sources"
STICKY: Final = "sticky"
STICKY_ENDPOINTS: Final = "sticky-endpoints"
STICKY_LOCAL_ENDPOINTS: Final = "sticky-local-endpoints"
OWN_ENDPOINTS: Final = "own-endpoints"
NODE_PORT_IPS: Final = "node-port-ips"
SERVICE_RANGES: Final = "service-ranges"
POD_RANGES: Final = "pod-ranges"

LOCAL: Final = 1 << 16
"""Added to a bucket, and to a slot, of the endpoints on this node."""
MASQUERADED: Final = 1 << 17
"""Added to a bucket whose connections leave with the node's address."""
MOST_ENDPOINTS: Final = LOCAL - 1
"""Endpoints that one set can have; those beyond are not used."""

PROTOCOLS: Final[dict[Protocol, bytes]] = {"tcp": b"\x06\0\0\0", "udp": b"\x11\0\0\0", "sctp": b"\x84\0\0\0"}
_PORT: Final = struct.Struct(">Hxx")
_PAIR: Final = struct.Struct("=II")
_SLOT: Final = struct.Struct("=I")


class Bucket(Frozen, frozen=True, order=True):
    """What one chain does: draw one of ``size`` endpoints, on this node or anywhere.

    Attributes:
        sticky: seconds that a client stays with what was drawn, 0 for no time.
    """

    size: int
    local: bool = False
    masqueraded: bool = False
    sticky: int = 0

    @property
    def key(self) -> bytes:
        """Its key in the map of buckets, and its place in the data of the maps that lead there."""
        number = self.size | (LOCAL if self.local else 0) | (MASQUERADED if self.masqueraded else 0)
        return _PAIR.pack(number, self.sticky)

    @property
    def chain(self) -> str:
        """The name of its chain: ``to-2``, ``to-2-local``, ``to-2-sticky-10800``, ``masq-to-2``."""
        local = "-local" if self.local else ""
        sticky = f"-sticky-{self.sticky}" if self.sticky else ""
        return f"{'masq-' if self.masqueraded else ''}to-{self.size}{local}{sticky}"


def declarations(family: Family) -> tuple[Set, ...]:
    """Give the sets and maps, in the order in which they are shown; those that dispatch come last."""
    address = "ipv4_addr" if family == "ip" else "ipv6_addr"
    service = (address, "inet_proto", "inet_service")
    endpoint = (address, "inet_service")
    named = (address, "inet_service", "inet_proto")
    port = ("inet_proto", "inet_service")
    bucket = ("mark", "mark")
    return (
        Set(ENDPOINTS, (*named, "mark"), data=endpoint, comment="cluster IP . port . protocol . slot : endpoint"),
        Set(STICKY, (*named, address), ("dynamic", "timeout"), endpoint, size=1 << 20, comment="clients' endpoints"),
        Set(STICKY_ENDPOINTS, (*named, *endpoint), comment="endpoints that clients may stay with"),
        Set(STICKY_LOCAL_ENDPOINTS, (*named, *endpoint), comment="those on this node"),
        Set(OWN_ENDPOINTS, (address, address), comment="endpoints that may reach themselves"),
        Set(CLUSTER_IPS, (address,), comment="cluster IPs, whatever their ports"),
        Set(SERVICE_RANGES, (address,), ("interval",), comment="where cluster IPs come from"),
        Set(POD_RANGES, (address,), ("interval",), comment="where this cluster's Pods send from"),
        Set(NODE_PORT_IPS, (address,), comment="addresses that node ports are open on"),
        Set(GUARDED, service, comment="load balancer addresses with source ranges"),
        Set(ALLOWED, (*service, address), ("interval",), comment="who may use them"),
        Set(REJECTED, service, comment="no endpoint anywhere"),
        Set(REJECTED_NODE_PORTS, port, comment="no endpoint anywhere"),
        Set(DROPPED, service, comment="policy Local, and no endpoint on this node"),
        Set(OUTSIDE_DROPPED, service, comment="for traffic from outside: policy Local, no endpoint here"),
        Set(OUTSIDE_DROPPED_NODE_PORTS, port, comment="for traffic from outside: policy Local, no endpoint here"),
        Set(BUCKETS, bucket, data=("verdict",), comment="number of endpoints . sticky seconds : chain"),
        Set(OUTSIDE_IPS, service, data=bucket, comment="for traffic from outside: policy Local : bucket"),
        Set(OUTSIDE_NODE_PORTS, port, data=bucket, comment="for traffic from outside: policy Local : bucket"),
        Set(SERVICE_IPS, service, data=(*endpoint, *bucket), comment="address : cluster IP . port . bucket"),
        Set(NODE_PORTS, port, data=(*endpoint, *bucket), comment="node port : cluster IP . port . bucket"),
    )


LAST: Final = (OUTSIDE_IPS, OUTSIDE_NODE_PORTS, SERVICE_IPS, NODE_PORTS)
"""The maps that are filled last when a table is filled in parts: what they lead to is there."""

Item = tuple[str, Element, Data]


def bucket_of(endpoints: tuple[bytes, ...], port: ServicePort, *, local: bool, masqueraded: bool = False) -> Bucket:
    """Give the bucket of a set of endpoints, which must not be empty."""
    return Bucket(min(len(endpoints), MOST_ENDPOINTS), local, masqueraded, port.sticky)


class Buckets(Frozen, frozen=True, gc=False):
    """Where a port's addresses lead; None where nothing can be used.

    Attributes:
        inside: the cluster IP.
        external: all other addresses, from this cluster.
        outside: all other addresses under a policy Local, from outside.
    """

    inside: Bucket | None
    external: Bucket | None
    outside: Bucket | None


def buckets_of(port: ServicePort, *, masquerade_all: bool) -> Buckets:
    """Say where a port's addresses lead."""
    chosen = port.local if port.internal_local else port.cluster
    inside = bucket_of(chosen, port, local=port.internal_local, masqueraded=masquerade_all) if chosen else None
    external = outside = None
    if port.external or port.node_port:
        if port.cluster:
            external = bucket_of(port.cluster, port, local=False, masqueraded=not port.external_local)
        if port.external_local and port.local:
            outside = bucket_of(port.local, port, local=True)
    return Buckets(inside, external, outside)


def items_of(*, masquerade_all: bool) -> Callable[[ObjectRef, tuple[ServicePort, ...]], Iterator[Item]]:
    """Give the function that says which elements the ports of a Service put into which maps."""

    def items(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> Iterator[Item]:
        if ports:
            yield CLUSTER_IPS, ports[0].cluster_ip, MEMBER
        for port in ports:
            buckets = buckets_of(port, masquerade_all=masquerade_all)
            yield from _ways(port, buckets)
            yield from _endpoints(port, buckets)
            if port.guard:
                yield from _guard(port)

    return items


def _ways(port: ServicePort, buckets: Buckets) -> Iterator[Item]:
    """Give what the addresses lead to, or why they lead nowhere."""
    protocol, number = PROTOCOLS[port.protocol], _PORT.pack(port.port)
    named = port.cluster_ip + number
    key = port.cluster_ip + protocol + number
    if buckets.inside:
        yield SERVICE_IPS, key, named + buckets.inside.key
    else:
        yield DROPPED if port.internal_local and port.anywhere else REJECTED, key, MEMBER
    outside_dropped = port.external_local and not port.local and port.anywhere
    for address in port.external:
        key = address + protocol + number
        if buckets.external:
            yield SERVICE_IPS, key, named + buckets.external.key
        else:
            yield REJECTED, key, MEMBER
        if buckets.outside:
            yield OUTSIDE_IPS, key, buckets.outside.key
        elif outside_dropped:
            yield OUTSIDE_DROPPED, key, MEMBER
    if port.node_port:
        key = protocol + _PORT.pack(port.node_port)
        if buckets.external:
            yield NODE_PORTS, key, named + buckets.external.key
        else:
            yield REJECTED_NODE_PORTS, key, MEMBER
        if buckets.outside:
            yield OUTSIDE_NODE_PORTS, key, buckets.outside.key
        elif outside_dropped:
            yield OUTSIDE_DROPPED_NODE_PORTS, key, MEMBER


def _endpoints(port: ServicePort, buckets: Buckets) -> Iterator[Item]:
    name = port.cluster_ip + _PORT.pack(port.port) + PROTOCOLS[port.protocol]
    used = {bucket.local for bucket in (buckets.inside, buckets.external, buckets.outside) if bucket}
    for local, endpoints, members in (
        (False, port.cluster, STICKY_ENDPOINTS),
        (True, port.local, STICKY_LOCAL_ENDPOINTS),
    ):
        if local in used:
            first = LOCAL if local else 0
            for slot, endpoint in enumerate(endpoints[:MOST_ENDPOINTS], first):
                data = endpoint + b"\0\0"
                yield ENDPOINTS, name + _SLOT.pack(slot), data
                if port.sticky:
                    yield members, name + data, MEMBER


def _guard(port: ServicePort) -> Iterator[Item]:
    guard = port.guard
    if guard is None:
        return
    service = PROTOCOLS[port.protocol] + _PORT.pack(port.port)
    for address in guard.addresses:
        key = address + service
        yield GUARDED, key, MEMBER
        for first, last in guard.sources:
            yield ALLOWED, key + first + key + last, MEMBER


def buckets_in_use(*, masquerade_all: bool) -> Callable[[ObjectRef, tuple[ServicePort, ...]], set[Bucket]]:
    """Give the function that says which buckets the ports of a Service lead to."""

    def used(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> set[Bucket]:
        found: set[Bucket] = set()
        for port in ports:
            buckets = buckets_of(port, masquerade_all=masquerade_all)
            found.update(bucket for bucket in (buckets.inside, buckets.external, buckets.outside) if bucket)
        return found

    return used


def own_endpoints(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> set[bytes]:
    """Give the elements of endpoints that may reach themselves through a Service: sender and destination are one."""
    return {address + address for port in ports for address in port.own}
