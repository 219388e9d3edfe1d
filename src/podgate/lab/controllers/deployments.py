"""Deployments: ReplicaSets, and the way from one template to the next. Pure.

Here: the ReplicaSet of the current template, rolling and recreating updates, the history limit, the status.
Not here: Pods (replicasets.py makes them).
Invariant: during a rolling update at most ``replicas + maxSurge`` Pods are wanted, and a ready Pod is only given up
while more than ``replicas - maxUnavailable`` are ready; both are 25 % by default, rounded up and down.

Deviations: when a Deployment is scaled during an update, the old ReplicaSets are not scaled in proportion; revision
numbers and ``progressDeadlineSeconds`` are not kept.
"""

from typing import Final, NamedTuple

from podgate.lab.controllers.making import count, owner_reference, template_hash
from podgate.lab.controllers.seeing import Seen, active, pods_of, seen
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write
from podgate.lab.kinds import Object
from podgate.lab.shapes import Deployment, Pod, ReplicaSet

HASH_LABEL: Final = "pod-template-hash"


class _Part(NamedTuple):
    """A ReplicaSet of a Deployment: how many Pods it wants, has (terminating ones too), keeps and has ready."""

    body: Object
    wanted: int
    present: int
    running: int
    ready: int


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give the writes for all Deployments."""
    owned = pods_of(objects)
    sets: dict[str, list[Seen[ReplicaSet]]] = {}
    for one in seen(objects, "ReplicaSet", ReplicaSet):
        sets.setdefault(one.value.metadata.controller_uid, []).append(one)
    writes: list[Write] = []
    for deployment in seen(objects, "Deployment", Deployment):
        uid = deployment.value.metadata.uid
        if uid:
            writes += _deployment(deployment, sets.get(uid, []), owned)
    return tuple(writes)


def _deployment(
    owner: Seen[Deployment], sets: list[Seen[ReplicaSet]], owned: dict[str, list[Seen[Pod]]]
) -> list[Write]:
    wanted_hash = template_hash(owner.obj)
    parts = [_part(one, owned.get(one.value.metadata.uid, [])) for one in sets]
    current = next((part for part in parts if _hash(part) == wanted_hash), None)
    old = [part for part in parts if part is not current]
    writes: list[Write] = []
    if current is None and not owner.value.spec.paused:
        current = _Part(_replica_set(owner.obj, wanted_hash), -1, 0, 0, 0)  # -1: not written yet
    held = owner.value.spec.paused and any(part.wanted for part in old)  # paused in the middle of an update
    if current is not None and not held:
        targets = _targets(owner.value, current, old)
        for part, target in zip((current, *old), targets, strict=True):
            if part.wanted != target:
                writes.append(Put({**part.body, "spec": {**part.body["spec"], "replicas": target}}))
        writes += _history(owner.value, old)
    status = _status(owner.value, current, old)
    have = owner.obj.get("status") or {}
    if any(have.get(key) != value for key, value in status.items() if key != "conditions") or not all(
        one in have.get("conditions", ()) for one in status["conditions"]
    ):
        writes.append(PutStatus(owner.ref, status))
    return writes


def _part(one: Seen[ReplicaSet], mine: list[Seen[Pod]]) -> _Part:
    running = list(active(mine))
    ready = sum(pod.value.ready for pod in running)
    return _Part(one.obj, one.value.spec.replicas, len(mine), len(running), ready)


def _hash(part: _Part) -> str:
    return str((part.body["metadata"].get("labels") or {}).get(HASH_LABEL, ""))


def _replica_set(owner: Object, template: str) -> Object:
    """Make the ReplicaSet of a template, with the hash in its name, its selector and its Pods' labels."""
    spec = owner["spec"]
    metadata = spec["template"].get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: template}
    selector = {
        **spec["selector"],
        "matchLabels": {**(spec["selector"].get("matchLabels") or {}), HASH_LABEL: template},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{owner['metadata']['name']}-{template}",
            "namespace": owner["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "selector": selector,
            "template": {**spec["template"], "metadata": {**metadata, "labels": labels}},
        },
    }


def bounds(deployment: Deployment) -> tuple[int, int]:
    """Give how many Pods may be missing and how many there may be too many, as numbers."""
    spec = deployment.spec
    if spec.strategy.type == "Recreate":
        return spec.replicas, 0
    update = spec.strategy.rolling_update
    unavailable = count("25%" if update.max_unavailable is None else update.max_unavailable, spec.replicas, up=False)
    surge = count("25%" if update.max_surge is None else update.max_surge, spec.replicas, up=True)
    # Small percentages may both round to nothing, and then no update could move.
    return (1 if unavailable == surge == 0 else min(unavailable, spec.replicas)), surge


def _targets(deployment: Deployment, current: _Part, old: list[_Part]) -> list[int]:
    """Give how many Pods each ReplicaSet shall want: the current one first, then the old ones."""
    replicas = deployment.spec.replicas
    if deployment.spec.strategy.type == "Recreate":
        gone = all(part.present == 0 for part in old)
        return [replicas if gone else max(0, current.wanted), *(0 for _ in old)]
    unavailable, surge = bounds(deployment)
    have = max(0, current.wanted)
    total = have + sum(part.wanted for part in old)
    target = replicas if have >= replicas else have + max(0, min(replicas - have, replicas + surge - total))
    # Old Pods that are not ready go first: they serve nobody. Then ready ones, as far as the new ones stand in.
    budget = total - (replicas - unavailable) - (have - min(have, current.ready))
    rest = [part.wanted for part in old]
    for index, part in enumerate(old):
        sick = max(0, min(part.wanted - part.ready, rest[index], budget))
        rest[index] -= sick
        budget -= sick
    spare = current.ready + sum(part.ready for part in old) - (replicas - unavailable)
    for index in range(len(old)):
        fewer = max(0, min(rest[index], spare, budget))
        rest[index] -= fewer
        spare -= fewer
        budget -= fewer
    return [target, *rest]


def _history(deployment: Deployment, old: list[_Part]) -> list[Write]:
    """Give the removal of old ReplicaSets that want and have nothing, beyond the history limit, oldest first."""
    idle = [part.body for part in old if part.wanted == 0 and part.present == 0]
    idle.sort(key=lambda body: (body["metadata"].get("creationTimestamp", ""), body["metadata"]["name"]))
    surplus = max(0, len(idle) - deployment.spec.revision_history_limit)
    return [Remove(Put(body).ref) for body in idle[:surplus]]


def _status(deployment: Deployment, current: _Part | None, old: list[_Part]) -> Object:
    parts = [*([current] if current else []), *old]
    ready = sum(part.ready for part in parts)
    replicas = deployment.spec.replicas
    available = ready >= replicas - bounds(deployment)[0]
    return {
        "replicas": sum(part.running for part in parts),
        "updatedReplicas": current.running if current else 0,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, replicas - ready),
        "conditions": [{"type": "Available", "status": "True" if available else "False"}],
    }
