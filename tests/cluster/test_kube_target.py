"""Writing to the real kube-apiserver: server-side apply, its conflicts, Events and leases."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from podgate.joints import ApplyError
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Watch
from podgate.targets.kubernetes.apply import KubernetesTarget
from podgate.targets.kubernetes.leading import Leadership
from podgate.targets.kubernetes.leases import Terms
from podgate.targets.kubernetes.state import (
    EMPTY,
    Notice,
    Part,
    State,
    Subject,
    labels_of,
    own_object,
    state_of,
    status_of,
)
from tests.support.asynchronous import in_loop
from tests.support.cluster import ControlPlane
from tests.support.real_api import RealApi

MANAGER = "podgate-test"
NODE_1, OWN = ObjectRef("Node", "written"), ObjectRef("ConfigMap", "own", "default")
READY = {"type": "PodgateReady", "status": "True", "reason": "Fine", "message": "it is"}
WANT = state_of(
    [
        status_of(NODE_1, {"conditions": [READY]}),
        labels_of(NODE_1, {"podgate.io/agent": "ready"}),
        own_object(OWN, {"data": {"x": "y"}}, MANAGER),
    ]
)


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[RealApi]:
    found = RealApi(plane)
    found.remove("nodes", "written")
    found.put("nodes", {"metadata": {"name": "written", "labels": {"kubernetes.io/os": "linux"}}})
    yield found
    found.remove("nodes", "written")
    found.remove("configmaps", "own")


def access(api: RealApi, user: str = "") -> Access:
    return load_kubeconfig(str(api.plane.login(user) if user else api.plane.kubeconfig))


def target_for(api: RealApi, user: str = "") -> KubernetesTarget:
    return KubernetesTarget(Connection(access(api, user)), (Watch(CONFIG_MAP), Watch(NODE)), MANAGER, "test")


async def bring(target: KubernetesTarget, want: State) -> dict[Any, str]:
    return dict(await target.apply(target.diff(await target.read(), want)))


def node(api: RealApi) -> dict[str, Any]:
    found = api.get("nodes", "written")
    assert found is not None
    return found


@in_loop
async def test_what_was_applied_is_read_back_and_cleaned_up(api: RealApi) -> None:
    target = target_for(api)
    assert await bring(target, WANT) == {}
    assert READY.items() <= node(api)["status"]["conditions"][0].items()
    assert node(api)["metadata"]["labels"]["podgate.io/agent"] == "ready"
    assert not target_for(api).diff(await target_for(api).read(), WANT)
    assert await bring(target, EMPTY) == {}
    assert "conditions" not in node(api)["status"]
    # Kubernetes itself adds the older form of this one.
    assert node(api)["metadata"]["labels"].keys() - {"beta.kubernetes.io/os"} == {"kubernetes.io/os"}
    assert api.get("configmaps", "own") is None
    assert await target.read() == EMPTY


@in_loop
async def test_drift_is_put_right(api: RealApi) -> None:
    target = target_for(api)
    await bring(target, WANT)
    api.put("configmaps", {"metadata": {"name": "own"}, "data": {"x": "changed"}})
    assert str(target.diff(await target.read(), WANT)) == "apply ConfigMap/default/own"
    assert await bring(target, WANT) == {}
    found = api.get("configmaps", "own")
    assert found is not None
    assert found["data"] == {"x": "y"}


@in_loop
async def test_conflicts_and_missing_objects_are_refused_by_part(api: RealApi) -> None:
    nobody = ObjectRef("Node", "nobody")
    parts = [
        labels_of(NODE_1, {"kubernetes.io/os": "plan9"}),
        labels_of(nobody, {"a": "b"}),
        status_of(nobody, {"x": 1}),
    ]
    refused = await bring(target_for(api), state_of(parts))
    assert refused.pop(Part(NODE_1)).startswith(
        "others own these fields: .metadata.labels.kubernetes.io/os (conflict with"
    )
    assert {str(part): why.split(":")[0] for part, why in refused.items()} == {
        "Node/nobody": "404 NotFound",
        "status of Node/nobody": "404 NotFound",
    }
    assert api.get("nodes", "nobody") is None
    assert node(api)["metadata"]["labels"]["kubernetes.io/os"] == "linux"


@in_loop
async def test_who_may_not_is_told_so(api: RealApi) -> None:
    with pytest.raises(ApplyError, match="list ConfigMap: 403 Forbidden"):
        await target_for(api, "podgate-stranger").read()


@in_loop
async def test_events_are_taken_and_are_told_once(api: RealApi) -> None:
    subject = Subject("v1", node(api)["metadata"]["uid"])
    want = state_of([], [(Notice(NODE_1, "Odd", "it is odd"), subject), (Notice(OWN, "Bad", "it is"), Subject())])
    for _ in range(2):
        assert await bring(target_for(api), want) == {}
    _, answer = api.plane.get("/apis/events.k8s.io/v1/namespaces/default/events")
    ours = [item for item in json.loads(answer)["items"] if item["reportingController"] == f"podgate.io/{MANAGER}"]
    told = {(item["reason"], item["note"], item["regarding"]["name"], item["type"]) for item in ours}
    assert told == {("Odd", "it is odd", "written", "Warning"), ("Bad", "it is", "own", "Warning")}
    assert sum(item["regarding"].get("uid") == subject.uid for item in ours) == 1


@in_loop
async def test_a_lease_is_taken_and_given_back(api: RealApi) -> None:
    def candidate(identity: str) -> Leadership:
        terms = Terms(duration=2, deadline=1.5, retry=0.1)
        return Leadership(Connection(access(api)), "default", "podgate-test", identity, MANAGER, terms)

    for identity in ("one", "two"):
        leadership = candidate(identity)
        leads = leadership.run()
        assert await anext(leads) is True
        assert leadership.trouble == ""
        await leads.aclose()  # type: ignore[attr-defined]
