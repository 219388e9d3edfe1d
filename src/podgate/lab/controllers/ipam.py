"""Addresses: Pod ranges for Nodes, addresses for Pods. Pure.

Here: who gets which address, and the condition that tells when one cannot. Not here: links and routes (lab/network.py).
Invariant: no two Pods that have not ended hold the same address, but for Pods on their node's network.

A Node without a range gets 10.244.N.0/24 (and fd00:10:244:N::/64 if it has an IPv6 address): the smallest N that
overlaps no other Node's. A Pod gets the smallest free address from the third of each range on; the annotation
``lab.podgate.dev/ip`` asks for certain ones, and is served before others. hostIP is left to whoever runs the Pod.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from podgate.commandline.options import listed
from podgate.lab.controllers.nodes import internal_ips
from podgate.lab.controllers.seeing import Seen, nodes, pods
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Write
from podgate.lab.kinds import Object
from podgate.lab.shapes import Node, Pod
from podgate.lab.validity import IP_ANNOTATION
from podgate.model.machine import IPAddress, IPNetwork

CONDITION: Final = "lab.podgate.dev/Address"
"""The condition of a Pod that could not get its address; ``True`` once it has it after all."""

_FIRST: Final = 2
"""The network's own address and the first one, which bridges use, are left out."""


class _Refused(Exception):  # noqa: N818 - becomes a condition
    """No address: a CamelCase reason and a message."""


def ranges(objects: Objects) -> tuple[Write, ...]:
    """Give Pod ranges to Nodes that lack them."""
    found = nodes(objects)
    taken = [ip_network(text, strict=False) for node in found for text in node.value.ranges]
    writes: list[Write] = []
    for node in found:
        wanted = node.value.ranges
        if not wanted:
            free = _free_ranges(node.value, taken)
            taken += free
            wanted = tuple(map(str, free))
        spec = {**(node.obj.get("spec") or {}), "podCIDR": wanted[0], "podCIDRs": list(wanted)}
        if spec != node.obj.get("spec"):
            writes.append(Put({**node.obj, "spec": spec}))
    return tuple(writes)


def _free_ranges(node: Node, taken: list[IPNetwork]) -> list[IPNetwork]:
    six = any(address.version == 6 for address in internal_ips(node))
    for number in range(256):
        candidates: list[IPNetwork] = [ip_network(f"10.244.{number}.0/24")]
        if six:
            candidates.append(ip_network(f"fd00:10:244:{number:x}::/64"))
        if not any(one.version == other.version and one.overlaps(other) for one in candidates for other in taken):
            return candidates
    return [ip_network("10.244.0.0/32")]  # more than 256 nodes: a range without a free address, told by conditions


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give addresses to Pods that are bound and have none, and follow the Node's for Pods on its network."""
    known = {node.ref.name: node for node in nodes(objects)}
    found = [pod for pod in pods(objects) if not pod.value.ended and pod.value.spec.node_name in known]
    own = [pod for pod in found if not pod.value.spec.host_network]
    holders: dict[IPAddress, str] = {
        ip_address(one.ip): f"{pod.ref.namespace}/{pod.ref.name}" for pod in own for one in pod.value.status.pod_ips
    }
    writes: list[Write] = []
    # Whoever asks for an address comes first, so that nobody else is given it by chance.
    for pod in sorted(found, key=lambda pod: not _asked(pod)):
        node = known[pod.value.spec.node_name]
        try:
            given = _addresses(pod, node, holders)
        except _Refused as refused:
            reason, message = refused.args
            condition = {"type": CONDITION, "status": "False", "reason": reason, "message": message}
            writes += _differing(pod, {"conditions": [condition]})
            continue
        status: Object = {"podIP": given[0], "podIPs": [{"ip": one} for one in given]}
        if any(one.type == CONDITION and one.status == "False" for one in pod.value.status.conditions):
            status["conditions"] = [{"type": CONDITION, "status": "True"}]
        writes += _differing(pod, status)
    return tuple(writes)


def _asked(pod: Seen[Pod]) -> tuple[str, ...]:
    return listed(pod.value.metadata.annotations.get(IP_ANNOTATION, ""))


def _addresses(pod: Seen[Pod], node: Seen[Node], holders: dict[IPAddress, str]) -> list[str]:
    """Give a Pod's addresses, and note who holds them.

    Raises:
        _Refused: with the reason and the message of the condition.
    """
    if pod.value.spec.host_network:
        return [str(address) for address in internal_ips(node.value)]
    if pod.value.status.pod_ips:
        return [one.ip for one in pod.value.status.pod_ips]
    pod_ranges = [ip_network(text, strict=False) for text in node.value.ranges]
    asked = [ip_address(word) for word in _asked(pod)]
    given = asked or [_free(one, holders, node.ref.name) for one in pod_ranges]
    for address in asked:
        _check(address, pod_ranges, holders, node.ref.name)
    for address in given:
        holders[address] = f"{pod.ref.namespace}/{pod.ref.name}"
    return [str(address) for address in given]


def _check(address: IPAddress, pod_ranges: list[IPNetwork], holders: Mapping[IPAddress, str], node: str) -> None:
    if not any(address in one for one in pod_ranges):
        shown = ", ".join(map(str, pod_ranges))
        raise _Refused(
            "OutsideRange", f"{address} is not in the ranges of the Node {node} ({shown}): see {IP_ANNOTATION}"
        )
    if address in holders:
        raise _Refused("AddressTaken", f"{address} is held by the Pod {holders[address]}: see {IP_ANNOTATION}")


def _free(pod_range: IPNetwork, holders: Mapping[IPAddress, str], node: str) -> IPAddress:
    broadcast = 1 if pod_range.version == 4 else 0
    for index in range(_FIRST, pod_range.num_addresses - broadcast):
        if pod_range[index] not in holders:
            return pod_range[index]
    raise _Refused("RangeExhausted", f"no address is free in {pod_range}, a range of the Node {node}")


def _differing(pod: Seen[Pod], status: Object) -> Iterator[Write]:
    have = pod.obj.get("status") or {}
    conditions = have.get("conditions") or ()
    same = all(
        all(one in conditions for one in value) if key == "conditions" else have.get(key) == value
        for key, value in status.items()
    )
    if not same:
        yield PutStatus(pod.ref, status)
