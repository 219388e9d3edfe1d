"""The status of Pods, Hosts and Nodes, as a kubelet writes it.

Here: what containers do -> status JSON. Pure.
Not here: finding out what containers do (lab/workload.py), writing it (lab/daemon.py).
Invariant: equal states give equal status, so a status without news is not written.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from podgate.lab.pods import Workload
from podgate.model.frozen import Frozen


class ContainerState(Frozen, frozen=True):
    """What one container does.

    Attributes:
        state: ``waiting``, ``running`` or ``terminated``.
        reason: a kubelet's word, as CrashLoopBackOff.
        since: when the state began, as the API writes times.
        exit_code: of the last end; None before the first.
        end: the reason of the last end.
        started: its startup probe succeeded, or it has none.
        ready: its readiness probe succeeds, or it has none and runs.
        for_good: it ended and will not be started again.
    """

    name: str
    image: str = ""
    state: Literal["waiting", "running", "terminated"] = "waiting"
    reason: str = ""
    message: str = ""
    since: str = ""
    exit_code: int | None = None
    end: str = ""
    restarts: int = 0
    started: bool = False
    ready: bool = False
    for_good: bool = False
    pid: int = 0


def _container_status(state: ContainerState) -> dict[str, Any]:
    detail: dict[str, Any] = {}
    if state.state == "running":
        detail = {"startedAt": state.since}
    elif state.state == "terminated":
        detail = {"exitCode": state.exit_code, "reason": state.reason, "finishedAt": state.since}
    else:
        detail = {"reason": state.reason or "ContainerCreating"}
    if state.message:
        detail["message"] = state.message
    status: dict[str, Any] = {
        "name": state.name,
        "image": state.image,
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": {state.state: detail},
    }
    if state.exit_code is not None and state.state != "terminated":
        last = {"exitCode": state.exit_code, "reason": state.end} if state.end else {"exitCode": state.exit_code}
        status["lastState"] = {"terminated": last}
    return status


def phase(inits: Sequence[ContainerState], mains: Sequence[ContainerState]) -> str:
    """Give a Pod's phase."""
    failed = [state for state in (*inits, *mains) if state.for_good and state.exit_code]
    if any(state.for_good and state.exit_code for state in inits):
        return "Failed"
    if mains and all(state.for_good for state in mains):
        return "Failed" if failed else "Succeeded"
    if any(state.state != "waiting" or state.restarts for state in mains):
        return "Running"
    return "Pending"


def condition(kind: str, holds: bool, now: str, reason: str = "") -> dict[str, Any]:
    """Give a condition."""
    found = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": now}
    return found | ({"reason": reason} if reason else {})


def pod_status(
    workload: Workload,
    inits: Sequence[ContainerState],
    mains: Sequence[ContainerState],
    begun: str,
    now: str,
) -> dict[str, Any]:
    """Give a Pod's status but for its addresses, which a controller gives."""
    ready = bool(mains) and all(state.ready for state in mains)
    initialized = bool(mains) and all(state.ready or (state.for_good and not state.exit_code) for state in inits)
    reason = "" if ready else "ContainersNotReady"
    status: dict[str, Any] = {
        "phase": phase(inits, mains),
        "startTime": begun,
        "conditions": [
            condition("Initialized", initialized, now),
            condition("ContainersReady", ready, now, reason),
            condition("Ready", ready, now, reason),
        ],
        "containerStatuses": [_container_status(state) for state in mains],
    }
    if inits:
        status["initContainerStatuses"] = [_container_status(state) for state in inits]
    if workload.host_ips:
        status["hostIP"] = workload.host_ips[0]
        status["hostIPs"] = [{"ip": address} for address in workload.host_ips]
    return status


def host_status(mains: Sequence[ContainerState], now: str) -> dict[str, Any]:
    """Give a Host's status."""
    return {
        "phase": phase((), mains),
        "conditions": [condition("Ready", all(state.ready for state in mains), now)],
        "restartCount": sum(state.restarts for state in mains),
    }


def settled(status: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the time of a condition whose status did not change."""
    times = {entry["type"]: entry for entry in before.get("conditions") or ()}
    result = dict(status)
    result["conditions"] = [
        entry | {"lastTransitionTime": times[entry["type"]].get("lastTransitionTime", entry["lastTransitionTime"])}
        if times.get(entry["type"], {}).get("status") == entry["status"]
        else entry
        for entry in status["conditions"]
    ]
    return result
