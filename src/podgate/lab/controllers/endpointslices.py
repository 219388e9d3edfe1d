"""EndpointSlices: where the Pods of a Service can be reached, as kube-controller-manager tells it. Pure.

Here: which Pods are endpoints, with which ports, conditions and hints, and in which slice each of them stands.
Not here: a Service's own addresses (services.py), choosing among endpoints (an agent).
Invariant: once it has settled, each Pod that a selector chooses stands in exactly one slice of each family of its
Service, with what is true of it now; and an endpoint stays in its slice as long as there is room for it.

So the contents depend on the objects alone, and how they are spread over slices also on what was there before. The
rules are those of k8s.io/endpointslice 0.36. Deviations: the annotation ``service.kubernetes.io/topology-mode`` gives
no hints, and Endpoints objects are not mirrored.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from podgate.lab.controllers.making import digest, owner_reference
from podgate.lab.controllers.seeing import Seen, nodes, pods, seen
from podgate.lab.controllers.writes import Objects, Put, Remove, Write
from podgate.lab.kinds import Object
from podgate.lab.selecting import matches
from podgate.lab.serviceshapes import EndpointSlice, Service, ServicePort
from podgate.lab.servicevalidity import FAMILIES
from podgate.lab.shapes import LabelSelector, Pod
from podgate.model.frozen import ObjectRef

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
CONTROLLER: Final = "endpointslice-controller.k8s.io"
HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
TRIGGERED: Final = "endpoints.kubernetes.io/last-change-trigger-time"
"""When the newest of the changes happened that a slice tells of: what an agent's delay is measured from."""

ZONE: Final = "topology.kubernetes.io/zone"
LARGEST: Final = 100
"""Endpoints in a slice (``--max-endpoints-per-slice``)."""

_SUFFIX: Final = 5
_RESERVED: Final = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS_LABEL})

Group = dict[str, Object]
"""The endpoints of one family that have the same ports, by Pod."""


class _Slice(NamedTuple):
    """A slice while it is worked on: its reference, what it shall hold, and how it was."""

    ref: ObjectRef
    ports: list[Object]
    endpoints: list[Object]
    before: Object | None


class _Layout(NamedTuple):
    """The slices of one family of a Service, and those that are not needed any more."""

    slices: list[_Slice]
    unneeded: list[ObjectRef]


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give the writes for the slices of all Services with a selector."""
    services = [one for one in seen(objects, "Service", Service) if _selects(one.value)]
    if not services:
        return ()
    zones = {node.ref.name: node.value.metadata.labels.get(ZONE, "") for node in nodes(objects)}
    found = pods(objects)
    slices: dict[str, list[Seen[EndpointSlice]]] = {}
    for one in seen(objects, "EndpointSlice", EndpointSlice):
        if one.value.metadata.labels.get(MANAGED_BY) == CONTROLLER:
            slices.setdefault(one.value.metadata.controller_uid, []).append(one)
    times = {pod.ref: _changed(pod.obj) for pod in found}
    writes: list[Write] = []
    for service in services:
        chosen = [pod for pod in found if _belongs(pod, service)]
        have = slices.get(service.value.metadata.uid, [])
        wanted = service.value.spec.ip_families
        writes += (Remove(one.ref) for one in have if one.value.address_type not in wanted)
        for family in wanted:
            mine = [one for one in have if one.value.address_type == family]
            layout = _layout(objects, service, family, _groups(service, family, chosen, zones), mine)
            writes += _written(service, family, layout, times)
    return tuple(writes)


def _selects(service: Service) -> bool:
    # Without a selector the slices are the user's own, also those that were ours before it was removed.
    return bool(service.spec.selector and service.metadata.uid) and not service.spec.named_elsewhere


def _belongs(pod: Seen[Pod], service: Seen[Service]) -> bool:
    selector = LabelSelector(match_labels=service.value.spec.selector)
    return (
        pod.ref.namespace == service.ref.namespace
        and matches(selector, pod.value.metadata.labels)
        and not pod.value.ended
        and bool(pod.value.status.pod_ips or pod.value.status.pod_ip)
    )


# --- what a Pod becomes -------------------------------------------------------------------------------------------


def _groups(
    service: Seen[Service], family: str, chosen: Iterable[Seen[Pod]], zones: Mapping[str, str]
) -> list[tuple[list[Object], Group]]:
    """Give the endpoints by their ports: Pods that call different numbers by one name need different slices."""
    found: list[tuple[list[Object], Group]] = []
    for pod in chosen:
        node = pod.value.spec.node_name
        if node not in zones and not service.value.spec.publish_not_ready_addresses:
            continue  # the Node is gone: so will be the Pod
        endpoint = _endpoint(service, family, pod, zones.get(node, ""))
        if not endpoint["addresses"]:
            continue
        ports = [port for one in service.value.spec.ports for port in _port(one, pod.obj["spec"])]
        group = next((group for known, group in found if known == ports), None)
        if group is None:
            found.append((ports, group := {}))
        group[pod.ref.name] = endpoint
    return found


def _endpoint(service: Seen[Service], family: str, pod: Seen[Pod], zone: str) -> Object:
    ips = [ip_address(one.ip) for one in pod.value.status.pod_ips] or [ip_address(pod.value.status.pod_ip)]
    serving, terminating = pod.value.ready, pod.value.terminating
    ready = service.value.spec.publish_not_ready_addresses or (serving and not terminating)
    uid = pod.value.metadata.uid
    endpoint: Object = {
        "addresses": [str(ip) for ip in ips if ip.version == FAMILIES[family]],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": pod.ref.namespace, "name": pod.ref.name, "uid": uid},
    }
    node = pod.value.spec.node_name
    if node:
        endpoint["nodeName"] = node
    if zone:
        endpoint["zone"] = zone
    spec = pod.obj["spec"]
    if spec.get("hostname") and spec.get("subdomain") == service.ref.name:
        endpoint["hostname"] = spec["hostname"]
    hints = _hints(service.value.spec.traffic_distribution, node, zone) if ready else {}
    return {**endpoint, "hints": hints} if hints else endpoint


def _hints(distribution: str, node: str, zone: str) -> Object:
    """Give what ``trafficDistribution`` makes of a place (KEP-4444, KEP-3015)."""
    hints: Object = {"forZones": [{"name": zone}]} if zone and distribution else {}
    return hints | ({"forNodes": [{"name": node}]} if node and distribution == "PreferSameNode" else {})


def _port(port: ServicePort, pod: Object) -> Iterator[Object]:
    """Give a port of a Service as a Pod has it; nothing when no container calls a port by that name."""
    number = _number(port, pod) if isinstance(port.target_port, str) else port.target_port or port.port
    if number:
        found: Object = {"name": port.name, "port": number, "protocol": port.protocol}
        yield {**found, "appProtocol": port.app_protocol} if port.app_protocol else found


def _number(port: ServicePort, pod: Object) -> int:
    sidecars = (one for one in pod.get("initContainers") or () if one.get("restartPolicy") == "Always")
    for container in (*pod["containers"], *sidecars):
        for one in container.get("ports") or ():
            if one.get("name") == port.target_port and one.get("protocol", "TCP") == port.protocol:
                return int(one["containerPort"])
    return 0


# --- which slice it stands in -------------------------------------------------------------------------------------


def _layout(
    objects: Objects,
    service: Seen[Service],
    family: str,
    groups: list[tuple[list[Object], Group]],
    have: list[Seen[EndpointSlice]],
) -> _Layout:
    """Give the slices of one family: they change in place, and one that is not needed serves for one that is."""
    spare = [one for one in have if not any(_ports_of(one.obj) == ports for ports, _ in groups)]
    slices: list[_Slice] = []
    more: list[tuple[list[Object], list[Object]]] = []
    for ports, group in groups:
        kept: list[_Slice] = []
        left = dict(group)
        for one in (one for one in have if _ports_of(one.obj) == ports):
            endpoints = [left.pop(name) for name in _pods_in(one.obj) if name in left]
            if endpoints:
                kept.append(_Slice(one.ref, ports, endpoints, one.obj))
            else:
                spare.append(one)
        new = _filled(kept, [left[name] for name in sorted(left)])
        slices += kept
        more += ((ports, new[start : start + LARGEST]) for start in range(0, len(new), LARGEST))
    if not slices and not more:
        more = [([], [])]  # a Service without endpoints has an empty slice: so agents know that there are none
    names = _names(objects, service, family)
    for ports, endpoints in more:
        reused = spare.pop(0) if spare else None
        ref, before = (reused.ref, reused.obj) if reused else (next(names), None)
        slices.append(_Slice(ref, ports, endpoints, before))
    return _Layout(slices, [one.ref for one in spare])


def _written(service: Seen[Service], family: str, layout: _Layout, times: Mapping[ObjectRef, str]) -> Iterator[Write]:
    for one in layout.slices:
        body = _body(service, family, one, times)
        if _differs(one.before, body):
            yield Put(body)
    yield from map(Remove, layout.unneeded)


def _pods_in(body: Object) -> Iterator[str]:
    return (_pod_of(endpoint) for endpoint in body.get("endpoints") or ())


def _pod_of(endpoint: Object) -> str:
    return str((endpoint.get("targetRef") or {}).get("name", ""))


def _ports_of(body: Object) -> list[Object]:
    return list(body.get("ports") or ())


def _filled(kept: list[_Slice], new: list[Object]) -> list[Object]:
    """Put new endpoints where there is room, first into slices that change anyway; give those that are left over."""
    changed = [one for one in kept if one.before is None or one.endpoints != list(one.before.get("endpoints") or ())]
    same = [one for one in kept if one not in changed]
    for one in sorted(changed, key=lambda slice_: -len(slice_.endpoints)):
        room = LARGEST - len(one.endpoints)
        one.endpoints.extend(new[:room])
        new = new[room:]
    rest = len(new) % LARGEST
    fitting = [one for one in same if len(one.endpoints) + rest <= LARGEST]
    if rest and fitting:
        fullest = max(fitting, key=lambda slice_: len(slice_.endpoints))
        fullest.endpoints.extend(new[len(new) - rest :])
        new = new[: len(new) - rest]
    return new


def _names(objects: Objects, service: Seen[Service], family: str) -> Iterator[ObjectRef]:
    """Give references that are free."""
    number = 0
    while True:
        suffix = digest([service.value.metadata.uid, family, number], _SUFFIX)
        ref = ObjectRef("EndpointSlice", f"{service.ref.name}-{suffix}", service.ref.namespace)
        if ref not in objects:
            yield ref
        number += 1


def _body(service: Seen[Service], family: str, one: _Slice, times: Mapping[ObjectRef, str]) -> Object:
    labels = {key: value for key, value in service.value.metadata.labels.items() if key not in _RESERVED}
    labels |= {HEADLESS_LABEL: ""} if service.value.spec.headless else {}
    labels |= {SERVICE_NAME: service.ref.name, MANAGED_BY: CONTROLLER}
    refs = (ObjectRef("Pod", _pod_of(endpoint), service.ref.namespace) for endpoint in one.endpoints)
    newest = max((service.value.metadata.creation_timestamp, *(times.get(ref, "") for ref in refs)))
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": one.ref.name,
            "namespace": one.ref.namespace,
            "labels": labels,
            **({"annotations": {TRIGGERED: newest}} if newest else {}),
            "ownerReferences": [owner_reference(service.obj)],
        },
        "addressType": family,
        "endpoints": one.endpoints,
        "ports": one.ports,
    }


def _changed(pod: Object) -> str:
    """Give when a Pod last got ready, or not ready; empty where nobody says."""
    conditions: Iterable[Any] = (pod.get("status") or {}).get("conditions") or ()
    times = (one.get("lastTransitionTime") for one in conditions if one.get("type") == "Ready")
    return next((str(time) for time in times if time), "")


def _differs(before: Object | None, body: Object) -> bool:
    """Whether a slice has to be written; a newer time alone is no reason."""
    if before is None:
        return True
    plain = ("addressType", "endpoints", "ports")
    return any(before.get(key) != body[key] for key in plain) or any(
        before["metadata"].get(key) != body["metadata"][key] for key in ("labels", "ownerReferences")
    )
