"""Applying: what stays of an object when a user applies it again. Pure.

Here: what controllers filled in, by kind; what is refused because of other objects. Not here: what is wrong with an
object by itself (validity.py); UIDs and deletion marks, which every write keeps (objects.py).
Invariant: a field that the user sets wins; applying the same manifest again changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from podgate.lab.controllers.services import contested
from podgate.lab.controllers.writes import Objects
from podgate.lab.kinds import Object, group_of, ref_of
from podgate.lab.serviceshapes import Service, ServiceSpec
from podgate.lab.shapes import view

_SPEC: Final[Mapping[str, tuple[str, ...]]] = {"Pod": ("nodeName",), "Node": ("podCIDR", "podCIDRs")}
_NODE_LABELS: Final = ("kubernetes.io/hostname", "kubernetes.io/os")


def applied(before: Object | None, given: Object) -> Object:
    """Give what a user wrote, completed by what controllers filled in earlier.

    Of a Pod that is nodeName; of a Node its Pod ranges, the labels that every Node has, and its Hostname address; of a
    Service its addresses and node ports, as far as its type still has any.
    """
    if before is not None and given["kind"] == "Service" and group_of(given) == "":
        return _service(before, given)
    if before is None or given["kind"] not in _SPEC:
        return given
    spec = _spec(before.get("spec") or {}, given.get("spec") or {}, _SPEC[given["kind"]])
    whole = {**given, **({"spec": spec} if spec or "spec" in given else {})}
    if given["kind"] == "Node":
        have = before["metadata"].get("labels") or {}
        labels = {key: have[key] for key in _NODE_LABELS if key in have} | (given["metadata"].get("labels") or {})
        whole["metadata"] = {**given["metadata"], **({"labels": labels} if labels else {})}
        if "status" in given:
            whole["status"] = _status(before.get("status") or {}, given["status"])
    return whole


def refusal(before: Objects, given: Sequence[Object]) -> str:
    """Say why objects cannot be applied to those that are there, each with its namespace; empty when they can."""
    after = {**before, **{ref_of(obj): applied(before.get(ref_of(obj)), obj) for obj in given}}
    services = [ref for ref in map(ref_of, given) if ref.kind == "Service"]
    # Whoever has something already is not the one to blame.
    for ref in sorted(services, key=lambda ref: ref in before):
        fault = contested(after, ref)
        if fault is not None:
            return f"{ref}: {fault.field}: {fault.message}; nothing was applied"
    return ""


def _spec(before: Object, given: Object, names: tuple[str, ...]) -> Object:
    """Keep all of the fields or none: they only make sense together."""
    kept = {name: before[name] for name in names if name in before}
    same = all(given[name] == kept.get(name) for name in names if name in given)
    return {**given, **kept} if same else given


def _status(before: Object, given: Mapping[str, Any]) -> Object:
    addresses = list(given.get("addresses") or ())
    types = {one["type"] for one in addresses}
    more = [one for one in before.get("addresses") or () if one["type"] == "Hostname" and one["type"] not in types]
    return {**given, "addresses": [*addresses, *more]}


def _service(before: Object, given: Object) -> Object:
    was, now = view(before, Service).spec, view(given, Service).spec
    spec = dict(given.get("spec") or {})
    if not was.named_elsewhere and not now.named_elsewhere and not now.given_ips:
        spec |= {name: before["spec"][name] for name in ("clusterIP", "clusterIPs") if name in before["spec"]}
        policy = now.ip_family_policy or was.ip_family_policy
        if policy == "SingleStack" and len(was.cluster_ips) > 1:
            spec |= {"clusterIP": was.cluster_ips[0], "clusterIPs": [was.cluster_ips[0]]}
        spec |= {"ipFamilyPolicy": policy} if policy else {}
        if not now.ip_families and was.ip_families:
            spec["ipFamilies"] = list(was.ip_families[:1] if policy == "SingleStack" else was.ip_families)
    if was.wants_node_ports and now.wants_node_ports:
        spec["ports"] = _node_ports(was, now, spec["ports"])
    if was.wants_health_check and now.wants_health_check and not now.health_check_node_port:
        spec |= {"healthCheckNodePort": was.health_check_node_port} if was.health_check_node_port else {}
    return {**given, "spec": spec}


def _node_ports(was: ServiceSpec, now: ServiceSpec, ports: list[Object]) -> list[Object]:
    """Keep node ports by the names of their ports, as an API server does."""
    asked = {port.node_port for port in now.ports}
    known = {port.name: port.node_port for port in was.ports if port.node_port not in asked}
    return [
        {**port, "nodePort": known[name]}
        if not port.get("nodePort") and known.get(name := port.get("name", ""))
        else port
        for port in ports
    ]
