"""The scheduler: binds Pods to Nodes. Pure.

Here: filtering by nodeSelector, required node affinity and taints; the node with the fewest Pods, then the first by
name. Not here: resources, Pod affinity, topology spread, priorities: a lab has no load.
Invariant: the result depends on the objects alone; a Pod that is bound is never moved.
"""

from collections import Counter
from collections.abc import Mapping

from podgate.lab.controllers.seeing import Seen, nodes, pods
from podgate.lab.controllers.writes import Objects, Put, PutStatus, Write
from podgate.lab.selecting import allows, untolerated
from podgate.lab.shapes import Node, Pod

_CONDITION = "PodScheduled"


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give the bindings, and a condition on each Pod that fits nowhere."""
    known = {node.ref.name: node.value for node in nodes(objects)}
    found = pods(objects)
    load = Counter(pod.value.spec.node_name for pod in found if not pod.value.ended)
    writes: list[Write] = []
    for pod in found:
        if pod.value.spec.node_name or pod.value.ended or pod.value.terminating:
            continue
        reasons = {name: _reason(pod.value, node) for name, node in known.items()}
        fitting = [name for name, reason in reasons.items() if not reason]
        if fitting:
            name = min(fitting, key=lambda candidate: (load[candidate], candidate))
            load[name] += 1
            writes.append(Put({**pod.obj, "spec": {**pod.obj["spec"], "nodeName": name}}))
            writes += _condition(pod, {"type": _CONDITION, "status": "True"})
        else:
            message = _message(reasons)
            unfit = {"type": _CONDITION, "status": "False", "reason": "Unschedulable", "message": message}
            writes += _condition(pod, unfit)
    return tuple(writes)


def _reason(pod: Pod, node: Node) -> str:
    """Say why a node does not take a Pod; empty if it does."""
    if not allows(pod.spec, node):
        return "does not match nodeSelector or the required node affinity"
    taint = untolerated(pod.spec.tolerations, node)
    if taint is None:
        return ""
    value = f"={taint.value}" if taint.value else ""
    return f"has the taint {taint.key}{value}:{taint.effect}, which the Pod does not tolerate"


def _message(reasons: Mapping[str, str]) -> str:
    if not reasons:
        return "there is no Node: apply one"
    return f"none of {len(reasons)} nodes fits: " + "; ".join(f"{name} {why}" for name, why in reasons.items())


def _condition(pod: Seen[Pod], condition: dict[str, str]) -> list[Write]:
    have = (pod.obj.get("status") or {}).get("conditions") or ()
    return [] if condition in have else [PutStatus(pod.ref, {"conditions": [condition]})]
