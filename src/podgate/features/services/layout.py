"""layout: the maps that hold all Services of a family, and the elements that one Service puts into them.

Here: the maps' names and types, keys, data, the number of a bucket. Not here: the rules that look into them
(to_nftables.py).
Invariant: what a Service writes depends on that Service alone, and on options of the node: a change of one endpoint is
a few elements, whatever the number of Services; no map but ``buckets`` has verdicts.

The way of a new connection: ``service-ips`` (or ``node-ports``) gives a bucket: how many endpoints there are.
``buckets`` gives the chain for that number, which draws a slot and finds it in ``endpoints`` (or
``node-port-endpoints``). With an external policy Local, ``outside-ips`` and ``outside-node-ports`` give other buckets
to traffic from outside. Where clients stick to endpoints, what was drawn is remembered when the packet leaves, by what
connection tracking knows of it: in ``sticky-clients``, which packets write. Its key is the protocol and the Service's
cluster IP and port, whatever address or node port was asked for: ``sticky-ips`` and ``sticky-node-ports`` tell them.
"""

import struct
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from podgate.features.services.intent import Protocol, ServicePort
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family
from podgate.targets.nftables.elements import MEMBER, Data, Element, host_words
from podgate.targets.nftables.state import Set

SERVICE_IPS: Final = "service-ips"
NODE_PORTS: Final = "node-ports"
OUTSIDE_IPS: Final = "outside-ips"
OUTSIDE_NODE_PORTS: Final = "outside-node-ports"
ENDPOINTS: Final = "endpoints"
NODE_PORT_ENDPOINTS: Final = "node-port-endpoints"
BUCKETS: Final = "buckets"
REJECTED: Final = "rejected"
REJECTED_NODE_PORTS: Final = "rejected-node-ports"
DROPPED: Final = "dropped"
OUTSIDE_DROPPED: Final = "outside-dropped"
OUTSIDE_DROPPED_NODE_PORTS: Final = "outside-dropped-node-ports"
CLUSTER_IPS: Final = "cluster-ips"
GUARDED: Final = "guarded-ips"
ALLOWED: Final = "allowed-sources"
STICKY_IPS: Final = "sticky-ips"
STICKY_NODE_PORTS: Final = "sticky-node-ports"
STICKY_CLIENTS: Final = "sticky-clients"
STICKY_ENDPOINTS: Final = "sticky-endpoints"
STICKY_LOCAL_ENDPOINTS: Final = "sticky-local-endpoints"
REMEMBER: Final = "remember"
OWN_ENDPOINTS: Final = "own-endpoints"
NODE_PORT_IPS: Final = "node-port-ips"
SERVICE_RANGES: Final = "service-ranges"
POD_RANGES: Final = "pod-ranges"

LOCAL: Final = 1 << 16
"""Added to a bucket, and to a slot, of the endpoints on this node."""
MASQUERADED: Final = 1 << 17
"""Added to a bucket whose connections leave with the node's address."""
STICKY: Final = 1 << 18
"""Added to a bucket whose clients stay with their endpoint."""
MOST_ENDPOINTS: Final = LOCAL - 1
"""Endpoints that one set can have; those beyond are not used."""

PROTOCOLS: Final[dict[Protocol, bytes]] = {"tcp": b"\x06\0\0\0", "udp": b"\x11\0\0\0", "sctp": b"\x84\0\0\0"}
_PORT: Final = struct.Struct(">Hxx")
MOST_CLIENTS: Final = 1 << 20
"""Clients that are remembered, of all Services with affinity of a family: some 200 bytes of kernel memory each."""


class Bucket(Frozen, frozen=True, order=True):
    """What one chain does: draw one of ``size`` endpoints, on this node or anywhere.

    Attributes:
        sticky: whether clients stay with what was drawn.
    """

    size: int
    local: bool = False
    masqueraded: bool = False
    sticky: bool = False

    @property
    def number(self) -> int:
        """Its size and its flags in one number."""
        flags = (LOCAL if self.local else 0) | (MASQUERADED if self.masqueraded else 0) | (STICKY if self.sticky else 0)
        return self.size | flags

    @property
    def data(self) -> bytes:
        """What leads to it in the maps of addresses."""
        return host_words(self.number)

    @property
    def chain(self) -> str:
        """The name of its chain: ``to-2``, ``to-2-local``, ``to-2-sticky``, ``masq-to-2``."""
        local, sticky = "-local" if self.local else "", "-sticky" if self.sticky else ""
        return f"{'masq-' if self.masqueraded else ''}to-{self.size}{local}{sticky}"


def remembering_chain(seconds: int) -> str:
    """Name the chain that remembers where a client was sent for some seconds."""
    return f"remember-{seconds}"


def declarations(family: Family) -> tuple[Set, ...]:
    """Give the sets and maps, in the order in which they are shown; those that dispatch come last."""
    address = "ipv4_addr" if family == "ip" else "ipv6_addr"
    service = (address, "inet_proto", "inet_service")
    port = ("inet_proto", "inet_service")
    endpoint = (address, "inet_service")
    clients = ("dynamic", "timeout")
    known_as = ("inet_proto", *endpoint)
    sticky = "sticky seconds . protocol . cluster IP . port"
    stays = "protocol . cluster IP . port . an endpoint that clients may stay with"
    return (
        Set(ENDPOINTS, (*service, "mark"), data=endpoint, comment="address . protocol . port . slot : endpoint"),
        Set(NODE_PORT_ENDPOINTS, (*port, "mark"), data=endpoint, comment="protocol . node port . slot : endpoint"),
        Set(STICKY_IPS, service, data=("mark", *known_as), comment=f"address . protocol . port : {sticky}"),
        Set(STICKY_NODE_PORTS, port, data=("mark", *known_as), comment=f"protocol . node port : {sticky}"),
        Set(
            STICKY_CLIENTS,
            (*known_as, address),
            clients,
            endpoint,
            size=MOST_CLIENTS,
            comment="protocol . cluster IP . port . client : endpoint",
        ),
        Set(STICKY_ENDPOINTS, (*known_as, *endpoint), comment=stays),
        Set(STICKY_LOCAL_ENDPOINTS, (*known_as, *endpoint), comment="the same, on this node"),
        Set(REMEMBER, ("mark", "mark"), data=("verdict",), comment="0 . sticky seconds : chain"),
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
        Set(BUCKETS, ("mark", "mark"), data=("verdict",), comment="masquerade . bucket : chain"),
        Set(OUTSIDE_IPS, service, data=("mark",), comment="policy Local, from outside: address : bucket"),
        Set(OUTSIDE_NODE_PORTS, port, data=("mark",), comment="policy Local, from outside: node port : bucket"),
        Set(SERVICE_IPS, service, data=("mark",), comment="address . protocol . port : bucket"),
        Set(NODE_PORTS, port, data=("mark",), comment="protocol . node port : bucket"),
    )


LAST: Final = (OUTSIDE_IPS, OUTSIDE_NODE_PORTS, SERVICE_IPS, NODE_PORTS)
"""The maps that are filled last when a table is filled in parts: what they lead to is there."""

Item = tuple[str, Element, Data]


def bucket_of(endpoints: tuple[bytes, ...], port: ServicePort, *, local: bool, masqueraded: bool = False) -> Bucket:
    """Give the bucket of a set of endpoints, which must not be empty."""
    return Bucket(min(len(endpoints), MOST_ENDPOINTS), local, masqueraded, port.sticky > 0)


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
        for port in ports:
            buckets = buckets_of(port, masquerade_all=masquerade_all)
            yield from _port_items(port, buckets)
            if port.guard:
                yield from _guard(port)

    return items


class _Maps(NamedTuple):
    """The maps of addresses, or those of node ports."""

    leads: str
    outside: str
    rejected: str
    outside_dropped: str
    endpoints: str
    sticky: str


_IPS: Final = _Maps(SERVICE_IPS, OUTSIDE_IPS, REJECTED, OUTSIDE_DROPPED, ENDPOINTS, STICKY_IPS)
_NODE_PORTS: Final = _Maps(
    *(NODE_PORTS, OUTSIDE_NODE_PORTS, REJECTED_NODE_PORTS, OUTSIDE_DROPPED_NODE_PORTS),
    *(NODE_PORT_ENDPOINTS, STICKY_NODE_PORTS),
)


class _Way(NamedTuple):
    """An address or a node port: the maps, and its key in them."""

    maps: _Maps
    key: bytes


def _port_items(port: ServicePort, buckets: Buckets) -> Iterator[Item]:
    service = PROTOCOLS[port.protocol] + _PORT.pack(port.port)
    way = _Way(_IPS, port.cluster_ip + service)
    if buckets.inside:
        yield SERVICE_IPS, way.key, buckets.inside.data
        yield from _endpoints(way, port, {buckets.inside.local})
    else:
        yield DROPPED if port.internal_local and port.anywhere else REJECTED, way.key, MEMBER
    for address in port.external:
        yield from _way_items(_Way(_IPS, address + service), port, buckets)
    if port.node_port:
        key = PROTOCOLS[port.protocol] + _PORT.pack(port.node_port)
        yield from _way_items(_Way(_NODE_PORTS, key), port, buckets)
    if port.sticky:
        yield from _stays(
            port, {bucket.local for bucket in (buckets.inside, buckets.external, buckets.outside) if bucket}
        )


def _way_items(way: _Way, port: ServicePort, buckets: Buckets) -> Iterator[Item]:
    maps, key = way.maps, way.key
    if buckets.external:
        yield maps.leads, key, buckets.external.data
    else:
        yield maps.rejected, key, MEMBER
    if buckets.outside:
        yield maps.outside, key, buckets.outside.data
    elif port.external_local and port.anywhere:
        yield maps.outside_dropped, key, MEMBER
    yield from _endpoints(way, port, {bucket.local for bucket in (buckets.external, buckets.outside) if bucket})


def _endpoints(way: _Way, port: ServicePort, used: Collection[bool]) -> Iterator[Item]:
    """Give the slots of the sets of endpoints in use: anywhere, on this node, or both."""
    maps = way.maps
    for local in used:
        endpoints, first = (port.local, LOCAL) if local else (port.cluster, 0)
        for slot, endpoint in enumerate(endpoints[:MOST_ENDPOINTS], first):
            yield maps.endpoints, way.key + host_words(slot), endpoint + b"\0\0"
    if port.sticky and used:
        yield maps.sticky, way.key, host_words(port.sticky) + _id(port)


def _id(port: ServicePort) -> bytes:
    """Give what a port is known by, whatever address it was asked for at."""
    return PROTOCOLS[port.protocol] + port.cluster_ip + _PORT.pack(port.port)


def _stays(port: ServicePort, used: Collection[bool]) -> Iterator[Item]:
    """Give the endpoints that clients may stay with."""
    for local in used:
        endpoints, members = (port.local, STICKY_LOCAL_ENDPOINTS) if local else (port.cluster, STICKY_ENDPOINTS)
        for endpoint in endpoints[:MOST_ENDPOINTS]:
            yield members, _id(port) + endpoint + b"\0\0", MEMBER


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


def cluster_ips(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> tuple[bytes, ...]:
    """Give a Service's cluster IP, which all its ports have; two Services of a folder may share one."""
    return tuple(port.cluster_ip for port in ports[:1])


def own_endpoints(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> set[bytes]:
    """Give the elements of endpoints that may reach themselves through a Service: sender and destination are one."""
    return {address + address for port in ports for address in port.own}


def sticky_seconds(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> set[int]:
    """Give for how long clients stay with their endpoints."""
    return {port.sticky for port in ports if port.sticky}
