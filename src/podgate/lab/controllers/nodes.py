"""Nodes: their labels, addresses and readiness, and Pods that a taint drives off. Pure.

Here: what a kubelet registers of its node, and the eviction by NoExecute taints. Not here: Pod ranges (ipam.py).
Invariant: a Node that is there has an InternalIP and a Ready condition; whoever runs its Pods changes that condition.

A Node without an InternalIP in its manifest's ``status.addresses`` gets the smallest free one of 172.18.0.0/24.
Deviation: ``tolerationSeconds`` is not honoured; a toleration holds for ever.
"""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from podgate.lab.controllers.seeing import Seen, nodes, pods
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write
from podgate.lab.kinds import Object
from podgate.lab.selecting import untolerated
from podgate.lab.shapes import Node
from podgate.model.frozen import ObjectRef
from podgate.model.machine import IPAddress

SEGMENT: Final = ip_network("172.18.0.0/24")
"""Where Nodes without addresses get theirs."""

_FIRST: Final = 2
_READY: Final = {"type": "Ready", "status": "True", "reason": "Registered"}


def internal_ips(node: Node) -> tuple[IPAddress, ...]:
    """Give a Node's own addresses; the first of a family is the primary one."""
    return tuple(ip_address(one.address) for one in node.status.addresses if one.type == "InternalIP")


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give what is missing on Nodes, and the evictions."""
    return (*registered(objects), *_evictions(objects, {node.ref.name: node.value for node in nodes(objects)}))


def registered(objects: Objects) -> tuple[Write, ...]:
    """Give what a kubelet registers of its Node and is missing there."""
    found = nodes(objects)
    taken = {address for node in found for address in internal_ips(node.value)}
    writes: list[Write] = []
    for node in found:
        labels = {"kubernetes.io/hostname": node.ref.name, "kubernetes.io/os": "linux", **node.value.metadata.labels}
        if labels != node.value.metadata.labels:
            writes.append(Put({**node.obj, "metadata": {**node.obj["metadata"], "labels": labels}}))
        status = _status(node, taken)
        have = node.obj.get("status") or {}
        if any(have.get(key) != value for key, value in status.items()):
            writes.append(PutStatus(node.ref, status))
    return tuple(writes)


def _status(node: Seen[Node], taken: set[IPAddress]) -> Object:
    """Give the status that a Node should have; an address that is given out is noted in ``taken``."""
    given = [{"type": one.type, "address": one.address} for one in node.value.status.addresses]
    if not internal_ips(node.value):
        free = next(SEGMENT[index] for index in range(_FIRST, SEGMENT.num_addresses) if SEGMENT[index] not in taken)
        taken.add(free)
        given.insert(0, {"type": "InternalIP", "address": str(free)})
    if not any(one["type"] == "Hostname" for one in given):
        given.append({"type": "Hostname", "address": node.ref.name})
    known = any(one.type == "Ready" for one in node.value.status.conditions)
    return {"addresses": given, **({} if known else {"conditions": [_READY]})}


def _evictions(objects: Objects, known: dict[str, Node]) -> Iterator[Remove]:
    effects = frozenset({"NoExecute"})
    for pod in pods(objects):
        node = known.get(pod.value.spec.node_name)
        if node is None or pod.value.terminating:
            continue
        if untolerated(pod.value.spec.tolerations, node, effects):
            yield Remove(ObjectRef("Pod", pod.ref.name, pod.ref.namespace))
