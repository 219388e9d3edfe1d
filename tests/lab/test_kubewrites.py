"""Writes to an API: what is sent, and that nothing is sent when nothing changes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.kubeapi.requests import Request
from podgate.lab.controllers.writes import Put, PutStatus, Remove, Write
from podgate.lab.kubekinds import kind_named
from podgate.lab.kubewrites import Erase, TokenKey, lease, merge_patch, request_for, token
from podgate.model.frozen import ObjectRef

POD, NODE = ObjectRef("Pod", "web", "shop"), ObjectRef("Node", "one")


def pod(**more: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "5"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}, **more}


def node(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "uid": "n1"}, **more}


def sent(have: dict[str, Any], *writes: Write) -> tuple[str, str, Any]:
    request = request_for(kind_named(writes[0].ref.kind), have, writes)
    assert request is not None
    return request.method, request.path, msgspec.json.decode(request.body)


def test_a_pod_gets_its_node_by_a_binding() -> None:
    bound = pod(spec={"containers": [], "nodeName": "one"})
    method, path, body = sent(pod(), Put(bound))
    assert (method, path) == ("POST", "/api/v1/namespaces/shop/pods/web/binding")
    assert (body["target"]["name"], body["metadata"]["uid"]) == ("one", "u1")
    assert request_for(kind_named("Pod"), bound, [Put(bound)]) is None


def test_a_node_is_patched_where_it_differs_and_nowhere_else() -> None:
    have = node(spec={"podCIDRs": ["10.0.0.0/24"], "taints": [{"key": "a", "effect": "NoSchedule"}]})
    want = {**have, "metadata": {**have["metadata"], "labels": {"a": "b"}}}
    assert sent(have, Put(want)) == ("PATCH", "/api/v1/nodes/one", {"metadata": {"labels": {"a": "b"}, "uid": "n1"}})
    assert request_for(kind_named("Node"), want, [Put(want)]) is None


def test_statuses_in_a_row_are_one_patch() -> None:
    writes = (PutStatus(POD, {"podIP": "10.0.0.2"}), PutStatus(POD, {"phase": "Running", "message": None}))
    method, path, body = sent(pod(status={"message": "old", "phase": "Pending"}), *writes)
    assert (method, path) == ("PATCH", "/api/v1/namespaces/shop/pods/web/status")
    assert body == {"metadata": {"uid": "u1"}, "status": {"podIP": "10.0.0.2", "phase": "Running", "message": None}}


def test_empty_fields_that_the_api_server_adds_are_no_difference() -> None:
    ours = {"containerStatuses": [{"name": "a", "ready": True, "state": {"running": {"startedAt": "t"}}}]}
    theirs = {"containerStatuses": [{**ours["containerStatuses"][0], "imageID": "", "lastState": {}}], "qosClass": "x"}
    assert request_for(kind_named("Pod"), pod(status=theirs), [PutStatus(POD, ours)]) is None


def test_of_a_pod_only_our_conditions_are_sent_and_lose_reasons_that_are_over() -> None:
    have = [
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        {"type": "DisruptionTarget", "status": "True"},
    ]
    _, _, body = sent(
        pod(status={"conditions": have}), PutStatus(POD, {"conditions": [{"type": "Ready", "status": "True"}]})
    )
    assert body["status"]["conditions"] == [{"type": "Ready", "status": "True", "reason": None}]


def test_of_a_node_the_whole_list_is_sent() -> None:
    have = node(status={"conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "Other", "status": "True"}]})
    _, _, body = sent(have, PutStatus(NODE, {"conditions": [{"type": "Ready", "status": "True"}]}))
    assert {one["type"]: one["status"] for one in body["status"]["conditions"]} == {"Ready": "True", "Other": "True"}


def test_a_pod_whose_containers_ended_goes_at_once() -> None:
    assert sent(pod(), Erase(POD))[2] == {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0}
    assert sent(pod(), Remove(POD))[2] == {"preconditions": {"uid": "u1"}}


def test_a_lease_is_the_nodes_and_a_token_is_bound_to_its_pod() -> None:
    renewal: Request = lease(kind_named("Lease"), node(), "now")
    body = msgspec.json.decode(renewal.body)
    assert renewal.path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/one"
    assert (body["spec"]["renewTime"], body["metadata"]["ownerReferences"][0]["uid"]) == ("now", "n1")
    asked = token(kind_named("ServiceAccount"), TokenKey("shop", "robot", "web", "u1", "", 3607))
    spec = msgspec.json.decode(asked.body)["spec"]
    assert asked.path == "/api/v1/namespaces/shop/serviceaccounts/robot/token"
    assert (spec["boundObjectRef"]["uid"], spec["expirationSeconds"], "audiences" in spec) == ("u1", 3607, False)


def patched(value: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    base = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            base.pop(key, None)
        else:
            base[key] = patched(base.get(key), part)
    return base


VALUES = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(MAPS, MAPS)
def test_a_merge_patch_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    assert patched(before, merge_patch(before, after)) == after


@pytest.mark.parametrize("value", [{}, {"a": {"b": [1]}}])
def test_no_difference_is_an_empty_patch(value: Any) -> None:
    assert merge_patch(value, value) == {}
