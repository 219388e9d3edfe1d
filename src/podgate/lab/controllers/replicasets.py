"""ReplicaSets: a number of equal Pods. Pure.

Here: making and removing Pods, and the status. Not here: updates (deployments.py).
Invariant: at most ``replicas`` Pods are neither ended nor terminating once it has settled. When there are too many,
unbound ones go first, then those not ready, then the last ones by index.

Deviations: Pods that match the selector and belong to nobody are not adopted; a Pod that ended is removed at once;
``minReadySeconds`` is not honoured: ready is available.
"""

from itertools import count

from podgate.lab.controllers.making import pod_from, pod_name
from podgate.lab.controllers.seeing import Seen, active, pods_of, seen
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write
from podgate.lab.kinds import Object
from podgate.lab.shapes import Pod, ReplicaSet
from podgate.model.frozen import ObjectRef


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give the writes for all ReplicaSets."""
    owned = pods_of(objects)
    writes: list[Write] = []
    for one in seen(objects, "ReplicaSet", ReplicaSet):
        if one.value.metadata.uid and not one.value.metadata.deletion_timestamp:
            mine = owned.get(one.value.metadata.uid, [])
            writes += _scaled(objects, one, mine)
            status = _status(mine)
            have = one.obj.get("status") or {}
            if any(have.get(key) != value for key, value in status.items()):
                writes.append(PutStatus(one.ref, status))
    return tuple(writes)


def _scaled(objects: Objects, owner: Seen[ReplicaSet], mine: list[Seen[Pod]]) -> list[Write]:
    running = list(active(mine))
    writes: list[Write] = [Remove(pod.ref) for pod in mine if pod.value.ended and not pod.value.terminating]
    surplus = len(running) - owner.value.spec.replicas
    if surplus > 0:
        indexes = {pod.ref.name: index for index, pod in enumerate(_by_index(owner.obj, running))}
        running.sort(key=lambda pod: (bool(pod.value.spec.node_name), pod.value.ready, -indexes[pod.ref.name]))
        writes += (Remove(pod.ref) for pod in running[:surplus])
    names = (pod_name(owner.obj, str(index)) for index in count())
    free = (name for name in names if ObjectRef("Pod", name, owner.ref.namespace) not in objects)
    writes += (Put(pod_from(owner.obj, next(free), {})) for _ in range(-surplus))
    return writes


def _by_index(owner: Object, found: list[Seen[Pod]]) -> list[Seen[Pod]]:
    """Order Pods by the index that their name was made from; the bound only matters for names that are not ours."""
    order = {pod_name(owner, str(index)): index for index in range(2 * len(found) + 16)}
    return sorted(found, key=lambda pod: (order.get(pod.ref.name, len(order)), pod.ref.name))


def _status(mine: list[Seen[Pod]]) -> Object:
    running = list(active(mine))
    ready = sum(pod.value.ready for pod in running)
    return {
        "replicas": len(running),
        "fullyLabeledReplicas": len(running),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }
