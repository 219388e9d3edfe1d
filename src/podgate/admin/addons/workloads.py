"""Workloads: what the status of a DaemonSet, Deployment or StatefulSet says. Pure.

Here: ready, how many Pods of how many, started, on the host's network, which Pods are its own. Not here: what follows
from it (plan.py).
Invariant: a status that is older than the spec says nothing: such a workload is not ready.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def is_ready(obj: Object) -> bool:
    """Say whether all Pods are of the newest generation and available (as ``kubectl rollout status`` does)."""
    available, wanted = counted(obj)
    return not _is_old(obj) and available == wanted and (obj.get("status") or {}).get("replicas", 0) <= wanted


def counted(obj: Object) -> tuple[int, int]:
    """Give how many Pods are of the newest generation and available, and how many there are to be."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    if obj.get("kind") == "DaemonSet" or "desiredNumberScheduled" in status:
        wanted, names = status.get("desiredNumberScheduled", 0), ("updatedNumberScheduled", "numberAvailable")
    else:
        wanted, names = spec.get("replicas", 1), ("updatedReplicas", "availableReplicas")
    return 0 if _is_old(obj) else min(wanted, *(status.get(name, 0) for name in names)), wanted


def _is_old(obj: Object) -> bool:
    """Say whether the status is about an earlier spec."""
    return bool((obj.get("status") or {}).get("observedGeneration", 0) < (obj["metadata"].get("generation") or 1))


def on_host(obj: Object) -> bool:
    """Say whether its Pods are on the host's network."""
    return bool(_pod_spec(obj).get("hostNetwork"))


def selected(obj: Object) -> str:
    """Give the label selector of its Pods; only equality is read, which is what every workload's own labels give."""
    labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def all_started(obj: Object, pods: Iterable[Object]) -> bool:
    """Say whether each Pod that should be there is, and each of its containers has run at least once.

    So every image was found, and whatever keeps it from being ready is not that it cannot begin.
    """
    if _is_old(obj):
        return False
    status = obj.get("status") or {}
    wanted = status.get("desiredNumberScheduled", (obj.get("spec") or {}).get("replicas", 1))
    found = list(pods)
    return len(found) >= wanted and all(map(_pod_started, found))


def _pod_started(pod: Object) -> bool:
    names = {each["name"] for each in (pod.get("spec") or {}).get("containers") or ()}
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return names <= {each["name"] for each in statuses if _ran(each)}


def _ran(container: Object) -> bool:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return bool(container.get("restartCount") or {"running", "terminated"} & (state.keys() | last.keys()))


def _pod_spec(obj: Object) -> Object:
    return ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
