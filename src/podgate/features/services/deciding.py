"""deciding: what happens to the first packet of a flow.

Here: from the intent, the sender and the destination to a verdict, the endpoints and the masquerade. Not here: who the
sender is in a user's words (explain.py), the rules that do the same (to_*.py).
Invariant: an answer is read from the intent that rules are written from, and tests hold every back end to it.

Traffic from this cluster's Pods and from the node itself is under no external policy: it goes as if it had left for a
load balancer, which then chose a node with endpoints (KEP-1669's matrix, kube-proxy's short circuit).
"""

from collections.abc import Iterator
from typing import Final, Literal

from podgate.features.services.addresses import Span, span, within
from podgate.features.services.intent import FamilyIntent, LocalTraffic, ServicePort
from podgate.features.services.loopback_ports import is_answered
from podgate.features.services.node import is_loopback
from podgate.model.frozen import Frozen

Verdict = Literal["forward", "drop", "reject", "none"]
From = Literal["pod", "node", "outside"]

LEFT_OUT: Final = "loadBalancerSourceRanges leave this sender out"


class Sender(Frozen, frozen=True):
    """Who sends.

    Attributes:
        kind: what the packet looks like on this node: a Pod's (as LocalTraffic tells), the node's own, or another.
        addresses: its addresses, packed: the node has several, the first is what it sends from.
    """

    kind: From
    addresses: tuple[bytes, ...] = ()


class Decision(Frozen, frozen=True):
    """What happens.

    Attributes:
        verdict: ``none``: it is nobody's, and goes where routes say.
        reason: why, as a phrase.
        port: the Service's port; None for none.
        policy: ``Cluster`` or ``Local``, as it counts for this packet; empty where none is asked.
        endpoints: those that it may go to, packed.
        masquerade: whether the endpoint sees the node as the sender, hairpin left out.
        hairpin: endpoints on this node that see the node as the sender since they are the sender.
    """

    verdict: Verdict
    reason: str
    port: ServicePort | None = None
    policy: Literal["", "Cluster", "Local"] = ""
    endpoints: tuple[bytes, ...] = ()
    masquerade: bool = False
    hairpin: tuple[bytes, ...] = ()


def is_pods(address: bytes, local: LocalTraffic) -> bool:
    """Say whether source ranges tell that an address is a Pod's."""
    return within(address, tuple(_spans(local.ranges)))


def _spans(texts: tuple[str, ...]) -> Iterator[Span]:
    for text in texts:
        given = span(text)
        if given is not None:
            yield given


def decide(
    part: FamilyIntent, sender: Sender, address: bytes, protocol: str, number: int, *, own: frozenset[bytes]
) -> Decision:
    """Decide about a packet.

    Args:
        part: what is wanted in the family of the address.
        sender: who sends.
        address: the destination, packed.
        protocol: ``tcp``, ``udp`` or ``sctp``.
        number: the destination's port; 0 for one that no Service has.
        own: this node's addresses, packed.
    """
    ports = [port for of_service in part.ports.values() for port in of_service if port.protocol == protocol]
    for port in ports:
        if port.port == number and port.cluster_ip == address:
            return _to_cluster_ip(part, sender, port)
        if port.port == number and address in port.external:
            return _from_outside(part, sender, port, address)
    node_port = next((port for port in ports if number and port.node_port == number), None)
    if node_port is not None and _is_node_port(part, address, own):
        by_us = part.node.proxied and is_loopback(address)
        return _through_us(node_port) if by_us else _from_outside(part, sender, node_port, None)
    if part.node.closed and any(port.cluster_ip == address for each in part.ports.values() for port in each):
        return Decision("reject", "the Service with this cluster IP has no such port")
    if within(address, tuple(_spans(part.node.service_ranges))):
        return Decision("drop", "the address is in the Services' range, and no Service has it")
    return Decision("none", "no Service has this address and port")


def _is_node_port(part: FamilyIntent, address: bytes, own: frozenset[bytes]) -> bool:
    if is_loopback(address):
        return part.node.localhost
    opened = part.node.node_port_ips
    return address in own if opened is None else address in opened


def _to_cluster_ip(part: FamilyIntent, sender: Sender, port: ServicePort) -> Decision:
    local = port.internal_local
    masquerade = part.node.masquerade_all or (bool(part.node.local) and sender.kind != "pod")
    if part.node.masquerade_all:
        why = "all traffic to cluster IPs is masqueraded"
    elif masquerade:
        why = "traffic to a cluster IP that is no Pod's is masqueraded, so that answers come back here"
    elif part.node.local:
        why = "Pods keep their address"
    else:
        why = "nothing tells Pods' traffic from other traffic, so all keep their address"
    policy = "internalTrafficPolicy: Local, so only endpoints on this node; " if local else ""
    return _sent(sender, port, policy + why, local=local, masquerade=masquerade)


def _from_outside(part: FamilyIntent, sender: Sender, port: ServicePort, address: bytes | None) -> Decision:
    """Decide about a packet to a node port (address None), external IP or load balancer."""
    guard = port.guard
    if guard is not None and address in guard.addresses and not within(_first(sender, address), guard.sources):
        return Decision("drop", LEFT_OUT, port)
    if not port.external_local:
        why = "an endpoint may be on another node, so that answers must come back through this one"
        return _sent(sender, port, why, local=False, masquerade=True)
    if sender.kind == "pod" and part.node.local:
        return _sent(sender, port, _SHORT, local=False, masquerade=False)
    if sender.kind == "node":
        return _sent(sender, port, _SHORT, local=False, masquerade=True)
    why = "externalTrafficPolicy: Local, so only endpoints on this node, which see the sender"
    return _sent(sender, port, why, local=True, masquerade=False)


def _through_us(port: ServicePort) -> Decision:
    """Decide about a packet to a node port on a loopback address that this process answers."""
    if is_answered(port):
        why = "the agent itself answers node ports on loopback addresses, and passes connections on"
        return Decision("forward", why, port, "Cluster", port.cluster, masquerade=True)
    if not port.cluster:
        return Decision("reject", _NOTHING, port)
    if port.protocol != "tcp":
        return Decision("reject", "on loopback addresses the agent answers TCP alone", port)
    why = "externalTrafficPolicy: Local, and no endpoint is on this node: nobody listens on its loopback addresses"
    return Decision("reject", why, port, "Local")


_NOTHING: Final = "the Service has no endpoint that is ready, or terminates and still serves"
_SHORT: Final = "externalTrafficPolicy: Local is for traffic from outside: from this cluster all endpoints are used"


def _first(sender: Sender, like: bytes) -> bytes:
    """Give the address that is sent from, of the destination's family."""
    return next((each for each in sender.addresses if len(each) == len(like)), b"")


def _sent(sender: Sender, port: ServicePort, why: str, *, local: bool, masquerade: bool) -> Decision:
    policy: Literal["Cluster", "Local"] = "Local" if local else "Cluster"
    endpoints = port.local if local else port.cluster
    if not endpoints:
        if port.anywhere:
            return Decision("drop", f"{why}; there is none here, and there are some elsewhere", port, policy)
        return Decision("reject", _NOTHING, port)
    hairpin = tuple(each for each in endpoints if each[:-2] in sender.addresses and each[:-2] in port.own)
    return Decision("forward", why, port, policy, endpoints, masquerade, hairpin)
