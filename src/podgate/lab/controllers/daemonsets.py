"""DaemonSets: one Pod on each node that may have it. Pure.

Here: which nodes, making and removing Pods, the rolling update, the status. Not here: binding: a Pod asks for its node
by node affinity, as the real controller has it, and the scheduler binds it.
Invariant: once it has settled, each eligible node has exactly one Pod of the current template (with ``OnDelete``: of
some template), and no other node has any.

Deviations: ``minReadySeconds`` is not honoured: ready is available; Pods that belong to nobody are not adopted.
"""

from typing import Final, NamedTuple

from podgate.lab.controllers.making import count, pod_from, pod_name, template_hash
from podgate.lab.controllers.seeing import Seen, nodes, pods_of, seen
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write
from podgate.lab.kinds import Object
from podgate.lab.selecting import BLOCKING, allows, untolerated
from podgate.lab.shapes import DaemonSet, Node, Pod, Toleration
from podgate.model.frozen import ObjectRef

HASH_LABEL: Final = "controller-revision-hash"
_NAME_FIELD: Final = "metadata.name"


def _automatic(*, host_network: bool) -> tuple[Toleration, ...]:
    """Give the tolerations that every daemon Pod gets."""
    always = [("not-ready", "NoExecute"), ("unreachable", "NoExecute")]
    always += [(key, "NoSchedule") for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")]
    if host_network:
        always.append(("network-unavailable", "NoSchedule"))
    return tuple(Toleration(f"node.kubernetes.io/{key}", "Exists", effect=effect) for key, effect in always)


class _OnNode(NamedTuple):
    """The Pods of a DaemonSet on one node that have not ended, and whether the node shall have one."""

    node: str
    current: list[Seen[Pod]]
    old: list[Seen[Pod]]
    terminating: int
    wanted: bool
    may_stay: bool

    @property
    def ready(self) -> bool:
        """Whether some Pod there serves."""
        return any(pod.value.ready for pod in (*self.current, *self.old))


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give the writes for all DaemonSets."""
    owned = pods_of(objects)
    known = [node.value for node in nodes(objects)]
    writes: list[Write] = []
    for one in seen(objects, "DaemonSet", DaemonSet):
        if one.value.metadata.uid:
            writes += _daemon_set(objects, one, known, owned.get(one.value.metadata.uid, []))
    return tuple(writes)


def _daemon_set(objects: Objects, owner: Seen[DaemonSet], known: list[Node], mine: list[Seen[Pod]]) -> list[Write]:
    template = template_hash(owner.obj)
    places = [_on_node(owner.value, node, mine, template) for node in known]
    writes: list[Write] = [Remove(pod.ref) for pod in mine if pod.value.ended and not pod.value.terminating]
    names = {node.metadata.name for node in known}
    writes += (
        Remove(pod.ref)
        for pod in mine
        if _node_of(pod.value) not in names and not pod.value.ended and not pod.value.terminating
    )
    for place in places:
        if not place.may_stay:
            writes += (Remove(pod.ref) for pod in (*place.current, *place.old))
        elif len(place.current) > 1:
            writes += (Remove(pod.ref) for pod in place.current[1:])
    writes += (
        made
        for place in places
        if place.wanted and not (place.current or place.old or place.terminating)
        for made in _made(objects, owner.obj, place.node, template)
    )
    if owner.value.spec.update_strategy.type == "RollingUpdate":
        writes += _updated(objects, owner, [place for place in places if place.may_stay], template)
    status = _status(places)
    have = owner.obj.get("status") or {}
    if any(have.get(key) != value for key, value in status.items()):
        writes.append(PutStatus(owner.ref, status))
    return writes


def _on_node(owner: DaemonSet, node: Node, mine: list[Seen[Pod]], template: str) -> _OnNode:
    spec = owner.spec.template.spec
    name = node.metadata.name
    tolerations = (*spec.tolerations, *_automatic(host_network=spec.host_network))
    fits = allows(spec, node) and spec.node_name in {"", name}
    here = [pod for pod in mine if _node_of(pod.value) == name and not pod.value.ended]
    alive = [pod for pod in here if not pod.value.terminating]
    return _OnNode(
        node=name,
        current=[pod for pod in alive if pod.value.metadata.labels.get(HASH_LABEL) == template],
        old=[pod for pod in alive if pod.value.metadata.labels.get(HASH_LABEL) != template],
        terminating=len(here) - len(alive),
        wanted=fits and untolerated(tolerations, node, BLOCKING) is None,
        may_stay=fits and untolerated(tolerations, node, frozenset({"NoExecute"})) is None,
    )


def _node_of(pod: Pod) -> str:
    """Give the node that a daemon Pod is on, or is meant for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == _NAME_FIELD and field.values:
                return field.values[0]
    return ""


def _made(objects: Objects, owner: Object, node: str, template: str) -> list[Write]:
    """Make the Pod of a node, unless a Pod that goes away still has its name."""
    name = pod_name(owner, node, template)
    if ObjectRef("Pod", name, owner["metadata"]["namespace"]) in objects:
        return []
    pod = pod_from(owner, name, {HASH_LABEL: template})
    spec = dict(pod["spec"])
    automatic = _automatic(host_network=bool(spec.get("hostNetwork")))
    spec["tolerations"] = [
        *spec.get("tolerations", ()),
        *({"key": one.key, "operator": one.operator, "effect": one.effect} for one in automatic),
    ]
    spec["affinity"] = _bound_to(spec, node)
    return [Put({**pod, "spec": spec})]


def _bound_to(spec: Object, node: str) -> Object:
    """Give the template's affinity with its terms narrowed to one node."""
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    field = {"key": _NAME_FIELD, "operator": "In", "values": [node]}
    terms = (node_affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, "matchFields": [*term.get("matchFields", ()), field]} for term in terms]
    return {**affinity, "nodeAffinity": {**node_affinity, key: {"nodeSelectorTerms": narrowed}}}


def _updated(objects: Objects, owner: Seen[DaemonSet], places: list[_OnNode], template: str) -> list[Write]:
    """Give the removals of old Pods (and with maxSurge the new ones beside them) that the update may make now."""
    update = owner.value.spec.update_strategy.rolling_update
    wanted = sum(place.wanted for place in places)
    surge = count(0 if update.max_surge is None else update.max_surge, wanted, up=True)
    unavailable = count(1 if update.max_unavailable is None else update.max_unavailable, wanted, up=True)
    outdated = [place for place in places if place.old]
    if surge:
        return _surged(objects, owner, outdated, template, surge)
    # What does not serve anyway may go at once; what serves, only as far as the budget reaches.
    missing = sum(1 for place in places if place.wanted and not place.ready)
    useless = [place for place in outdated if not place.ready]
    serving = [place for place in outdated if place.ready]
    budget = max(0, unavailable - missing)
    return [Remove(pod.ref) for place in (*useless, *serving[:budget]) for pod in place.old]


def _surged(
    objects: Objects, owner: Seen[DaemonSet], outdated: list[_OnNode], template: str, surge: int
) -> list[Write]:
    writes: list[Write] = []
    beside = [place for place in outdated if place.current]
    for place in beside:
        if any(pod.value.ready for pod in place.current):
            writes += (Remove(pod.ref) for pod in place.old)
    alone = [place for place in outdated if not place.current and not place.terminating and place.wanted]
    for place in alone[: max(0, surge - len(beside))]:
        writes += _made(objects, owner.obj, place.node, template)
    return writes


def _status(places: list[_OnNode]) -> Object:
    wanted = [place for place in places if place.wanted]
    ready = sum(place.ready for place in wanted)
    return {
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": sum(bool(place.current or place.old) for place in wanted),
        "updatedNumberScheduled": sum(bool(place.current) for place in wanted),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(wanted) - ready,
        "numberMisscheduled": sum(bool(place.current or place.old) for place in places if not place.wanted),
    }
