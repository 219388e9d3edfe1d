"""Nodes: their labels, addresses and readiness, and Pods that a taint drives off. Pure.

Here: what a kubelet registers of its node, and the eviction by NoExecute taints. Not here: Pod ranges (ipam.py).
Invariant: a Node of the lab is Ready as long as it exists: the lab is its kubelet.

A Node has the addresses of its annotation ``lab.podgate.dev/addresses``, else those of its manifest's
``status.addresses``, else the next free one of 172.18.0.0/16. Deviation: ``tolerationSeconds`` is not honoured; a
toleration holds for ever.
"""

from collections.abc import Collection, Iterator
from ipaddress import ip_interface, ip_network
from typing import Final

from podgate.lab.controllers.seeing import Seen, nodes, pods
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write
from podgate.lab.kinds import Object
from podgate.lab.selecting import untolerated
from podgate.lab.shapes import Node, view
from podgate.lab.validity import ADDRESSES_ANNOTATION, words
from podgate.model.frozen import ObjectRef
from podgate.model.machine import IPInterface

SEGMENT: Final = ip_network("172.18.0.0/16")
"""Where Nodes without addresses get theirs; as kind has it."""

_FIRST: Final = 2
_PREFIXES: Final = {4: 16, 6: 64}
"""Prefix lengths of addresses that a manifest gives without one."""

_READY: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "the lab runs this node",
}


def interfaces(node: Object) -> tuple[IPInterface, ...]:
    """Give a Node's addresses on the segment, with prefix lengths; the first of a family is the primary one."""
    value = view(node, Node)
    given = words(value.metadata.annotations.get(ADDRESSES_ANNOTATION, ""))
    if given:
        return tuple(ip_interface(word) for word in given)
    internal = (ip_interface(one.address) for one in value.status.addresses if one.type == "InternalIP")
    return tuple(ip_interface(f"{one.ip}/{_PREFIXES[one.version]}") for one in internal)


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give what is missing on Nodes, and the evictions."""
    found = nodes(objects)
    taken = {one.ip for node in found for one in interfaces(node.obj)}
    writes: list[Write] = []
    for node in found:
        body = _body(node, taken)
        taken.update(one.ip for one in interfaces(body))
        if body != node.obj:
            writes.append(Put(body))
        have = node.obj.get("status") or {}
        addresses = _addresses(node, body)
        if have.get("addresses") != addresses or _READY not in have.get("conditions", ()):
            writes.append(PutStatus(node.ref, {"addresses": addresses, "conditions": [_READY]}))
    return (*writes, *_evictions(objects, {node.ref.name: node.value for node in found}))


def _body(node: Seen[Node], taken: Collection[object]) -> Object:
    """Give the Node with its labels, and with an address of its own if it has none."""
    labels = {"kubernetes.io/hostname": node.ref.name, "kubernetes.io/os": "linux", **node.value.metadata.labels}
    metadata = {**node.obj["metadata"], "labels": labels}
    if not interfaces(node.obj):
        free = next(SEGMENT[index] for index in range(_FIRST, SEGMENT.num_addresses) if SEGMENT[index] not in taken)
        address = f"{free}/{SEGMENT.prefixlen}"
        metadata["annotations"] = {**node.value.metadata.annotations, ADDRESSES_ANNOTATION: address}
    return {**node.obj, "metadata": metadata}


def _addresses(node: Seen[Node], body: Object) -> list[Object]:
    internal = [{"type": "InternalIP", "address": str(one.ip)} for one in interfaces(body)]
    given = [{"type": one.type, "address": one.address} for one in node.value.status.addresses]
    others = [one for one in given if one["type"] not in {"InternalIP", "Hostname"}]
    return [*internal, *others, {"type": "Hostname", "address": node.ref.name}]


def _evictions(objects: Objects, known: dict[str, Node]) -> Iterator[Remove]:
    effects = frozenset({"NoExecute"})
    for pod in pods(objects):
        node = known.get(pod.value.spec.node_name)
        if node is None or pod.value.terminating:
            continue
        if untolerated(pod.value.spec.tolerations, node, effects):
            yield Remove(ObjectRef("Pod", pod.ref.name, pod.ref.namespace))
