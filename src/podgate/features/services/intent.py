"""intent: which address of a Service leads to which endpoints, and how; no back end yet.

Here: the values between choosing and writing. Not here: choosing (compile.py and its parts), any back end (to_*.py).
Invariant: within one family no two ports share a destination (address, protocol, port), so writers never meet a
conflict; addresses are packed (4 or 16 bytes, network order), endpoints are an address followed by a port of 2 bytes.
"""

from collections.abc import Mapping
from typing import Final, Literal

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table

Protocol = Literal["tcp", "udp", "sctp"]

FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")

ADDRESS_BYTES: Final[Mapping[Family, int]] = {"ip": 4, "ip6": 16}

STICKY_SECONDS: Final = 10800
"""Seconds of ClientIP affinity where a Service does not say (API default of timeoutSeconds)."""


PackedDestination = tuple[bytes, int]
"""Packed address and port. The address of node ports is empty; the port 0 stands for all of a cluster IP."""


class Guard(Frozen, frozen=True, gc=False):
    """Who may use a load balancer's addresses of one port.

    Attributes:
        addresses: those addresses, packed.
        sources: ranges of senders as (first, last), packed, disjoint and sorted.
    """

    addresses: tuple[bytes, ...]
    sources: tuple[tuple[bytes, bytes], ...]


class ServicePort(Frozen, frozen=True, gc=False):
    """One port of a Service, in one family.

    Attributes:
        name: ``namespace/name:port``, by the port's name where it has one.
        protocol: ``tcp``, ``udp`` or ``sctp``.
        port: the port of all its addresses, 1 to 65535.
        cluster_ip: packed; with protocol and port it names the set of endpoints.
        external: external IPs and load balancer addresses that lead here, packed, sorted.
        node_port: 0 for none.
        cluster: the endpoints for traffic that may go anywhere (KEP-2433 zone hints and fall-backs applied), sorted.
        local: the endpoints on this node, for traffic under a policy Local, sorted; empty when no policy needs them.
        internal_local: ``internalTrafficPolicy: Local``: the cluster IP leads to ``local``.
        external_local: ``externalTrafficPolicy: Local``: from outside, all other addresses lead to ``local``, with the
            sender's address kept.
        anywhere: whether any endpoint could be used somewhere in the cluster: an address whose set is empty drops then,
            and rejects otherwise.
        sticky: seconds that a client stays with its endpoint, 0 for no affinity.
        guard: set when source ranges narrow who may use the load balancer's addresses.
        serving: of a UDP port the endpoints whose open flows go on, sorted: ready ones, and terminating ones that
            still serve, wherever they are. Empty for other protocols, whose flows nobody cuts.
        own: addresses of endpoints on this node, or of unknown place: those that could talk to themselves through it.
        unnamed: the port has no name, and stands by its number in ``name``; another port may be called so.
    """

    name: str
    protocol: Protocol
    port: int
    cluster_ip: bytes
    external: tuple[bytes, ...] = ()
    node_port: int = 0
    cluster: tuple[bytes, ...] = ()
    local: tuple[bytes, ...] = ()
    internal_local: bool = False
    external_local: bool = False
    anywhere: bool = False
    sticky: int = 0
    guard: Guard | None = None
    serving: tuple[bytes, ...] = ()
    own: tuple[bytes, ...] = ()
    unnamed: bool = False


class LocalTraffic(Frozen, frozen=True):
    """How traffic of this cluster's Pods is told from other traffic (kube-proxy's detectLocalMode).

    Attributes:
        ranges: source ranges in text, of one family (ClusterCIDR, NodeCIDR).
        interface: a bridge's name (BridgeInterface), or a prefix of names that ends with ``*`` (InterfaceNamePrefix).
            With neither, nothing tells them apart.
    """

    ranges: tuple[str, ...] = ()
    interface: str = ""

    def __bool__(self) -> bool:
        return bool(self.ranges or self.interface)


class NodeWide(Frozen, frozen=True):
    """What holds for all Services on this node, in one family.

    Attributes:
        local: how Pods' traffic is known.
        masquerade_all: whether Pods' traffic to cluster IPs leaves with the node's address too.
        mark: the bit of the packet mark that says "masquerade".
        node_port_ips: addresses that node ports are open on, packed, sorted; None for all local ones but loopback.
        service_ranges: ranges that cluster IPs come from, in text: an address of theirs that no Service has drops.
        localhost: node ports are open on loopback addresses too.
        proxied: this process answers there, for TCP alone, since rules do not lead loopback addresses elsewhere.
        closed: a port of a cluster IP that no Service has is refused.
    """

    local: LocalTraffic = LocalTraffic()
    masquerade_all: bool = False
    mark: int = 0x4000
    node_port_ips: tuple[bytes, ...] | None = None
    service_ranges: tuple[str, ...] = ()
    localhost: bool = False
    proxied: bool = False
    closed: bool = True


class FamilyIntent(Frozen, frozen=True):
    """All Services of one family. ``ports`` has no entry for a Service without a cluster IP of this family."""

    family: Family
    node: NodeWide = NodeWide()
    ports: Table[ObjectRef, tuple[ServicePort, ...]] = Table()


class HealthCheck(Frozen, frozen=True):
    """What a Service's health check node port answers to whom asks by an address of a family.

    Attributes:
        namespace, name: the Service.
        ip, ip6: how many ready endpoints of the family are on this node; None without a cluster IP of it, where nobody
            listens.
    """

    namespace: str
    name: str
    ip: int | None = None
    ip6: int | None = None

    def of(self, family: Family) -> int | None:
        """Give a family's ready endpoints."""
        return self.ip if family == "ip" else self.ip6


class Intent(Frozen, frozen=True):
    """What this node should do for Services.

    Attributes:
        ip, ip6: by family; None for a family that is switched off (the kernel or the node lacks it).
        health_checks: by health check node port.
        proxy_name: ``spec.serviceProxyName``; empty for the cluster's default proxy.
        theirs: where UDP flows of other proxies' Services are sent to, by Service.
        node_eligible: False when this node is being deleted, or tainted so by the cluster autoscaler (KEP-3836).
        unknown: why Services or their endpoints are not known (the kind is forbidden, there is no source); empty when
            they are. While it is not, what is in force stays as it is, whatever the other fields say.
    """

    ip: FamilyIntent | None = None
    ip6: FamilyIntent | None = None
    health_checks: Table[int, HealthCheck] = Table()
    proxy_name: str = ""
    theirs: Table[ObjectRef, frozenset[PackedDestination]] = Table()
    node_eligible: bool = True
    unknown: str = ""

    def of(self, family: Family) -> FamilyIntent | None:
        """Give a family's Services."""
        return self.ip if family == "ip" else self.ip6

    @property
    def families(self) -> tuple[FamilyIntent, ...]:
        """The families that are not switched off."""
        return tuple(part for part in (self.ip, self.ip6) if part is not None)
