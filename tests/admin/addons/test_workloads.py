"""What the status of a workload says."""

from typing import Any

import pytest

from podgate.admin.addons.workloads import all_started, counted, is_ready, on_host, selected

SPEC = {"selector": {"matchLabels": {"k8s-app": "proxy", "version": "v0.2"}}, "template": {"spec": {}}}


def workload(generation: int = 1, replicas: int | None = None, **status: int) -> dict[str, Any]:
    spec = SPEC if replicas is None else {**SPEC, "replicas": replicas}
    return {"metadata": {"generation": generation}, "spec": spec, "status": status}


def daemons(desired: int, updated: int, available: int, *, seen: int = 1, generation: int = 1) -> dict[str, Any]:
    return workload(
        generation,
        observedGeneration=seen,
        desiredNumberScheduled=desired,
        updatedNumberScheduled=updated,
        numberAvailable=available,
    )


@pytest.mark.parametrize(
    ("obj", "ready"),
    [
        (daemons(2, 2, 2), True),
        (daemons(0, 0, 0), True),
        (daemons(2, 2, 1), False),
        (daemons(2, 1, 2), False),
        (daemons(2, 2, 2, seen=1, generation=2), False),
        ({**daemons(0, 0, 0), "status": {"desiredNumberScheduled": 0}}, False),
        ({"kind": "DaemonSet", "metadata": {}, "spec": SPEC}, False),
        (workload(replicas=2, observedGeneration=1, updatedReplicas=2, availableReplicas=2), True),
        (workload(observedGeneration=1, updatedReplicas=1, availableReplicas=0), False),
        ({**workload(replicas=1), "status": {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1,
                                             "replicas": 2}}, False),
        (workload(replicas=0, observedGeneration=1), True),
    ],
)  # fmt: skip
def test_ready(obj: dict[str, Any], ready: bool) -> None:
    assert is_ready(obj) is ready


RUNNING = {"name": "a", "state": {"running": {}}}
WAITING = {"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}}
CRASHED = {"name": "a", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
ENDED = {"name": "a", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}


def pod(*statuses: dict[str, Any], containers: str = "a") -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name} for name in containers]}, "status": {"containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("pods", "started"),
    [
        ([pod(RUNNING), pod(CRASHED)], True),
        ([pod(ENDED), pod(RUNNING)], True),
        ([pod(RUNNING), pod(WAITING)], False),
        ([pod(RUNNING)], False),
        ([pod(RUNNING), {"spec": {"containers": [{"name": "a"}]}}], False),
        ([pod(RUNNING), pod(RUNNING, containers="ab")], False),
    ],
)
def test_started(pods: list[dict[str, Any]], started: bool) -> None:
    assert all_started(daemons(2, 2, 0), pods) is started
    assert not all_started(daemons(2, 2, 0, generation=2), pods)


def test_its_pods_and_its_network() -> None:
    assert selected(daemons(1, 1, 1)) == "k8s-app=proxy,version=v0.2"
    assert not on_host(daemons(1, 1, 1))
    assert on_host({"spec": {"template": {"spec": {"hostNetwork": True}}}})


@pytest.mark.parametrize(
    ("obj", "pods"),
    [
        (daemons(3, 3, 1), (1, 3)),
        (daemons(3, 1, 3), (1, 3)),
        (daemons(3, 3, 3, generation=2), (0, 3)),
        ({"kind": "DaemonSet", "metadata": {}, "spec": SPEC}, (0, 0)),
        (workload(replicas=3, observedGeneration=1, updatedReplicas=3, availableReplicas=2), (2, 3)),
        (workload(observedGeneration=1, updatedReplicas=1), (0, 1)),
        (workload(replicas=1, observedGeneration=1, updatedReplicas=2, availableReplicas=2), (1, 1)),
    ],
)
def test_how_many_pods_of_how_many(obj: dict[str, Any], pods: tuple[int, int]) -> None:
    assert counted(obj) == pods
