"""What a lab sees of an API: histories of watches, answers and writes, without any I/O."""

from typing import Any

from podgate.lab.controllers.writes import Put, PutStatus
from podgate.lab.kubeview import OWNER, View, merged, tokens_wanted, unfinished
from podgate.model.frozen import ObjectRef

POD, NODE = ObjectRef("Pod", "web", "shop"), ObjectRef("Node", "one")


def pod(version: int, node: str = "", uid: str = "u1", **status: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "a"}], **({"nodeName": node} if node else {})}
    metadata = {"name": "web", "namespace": "shop", "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def node(name: str = "one", lab: str = "mine", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": {OWNER: lab}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def view() -> View:
    made = View("mine")
    made.told({NODE: node(), POD: pod(5)})
    return made


def node_of(one: View) -> Any:
    return one.objects()[POD]["spec"].get("nodeName")


def test_a_write_counts_at_once_and_stays_when_it_is_answered() -> None:
    one = view()
    one.submitted(Put(pod(5, "one")))
    assert node_of(one) == "one"
    one.answered(one.pending[POD], pod(6, "one"))
    assert (node_of(one), one.pending) == ("one", {})


def test_what_the_watch_tells_late_does_not_count() -> None:
    one = view()
    one.submitted(Put(pod(5, "one")))
    one.answered(one.pending[POD], pod(7, "one"))
    one.told({NODE: node(), POD: pod(6)})  # written by somebody else, before our binding
    assert node_of(one) == "one"
    one.told({NODE: node(), POD: pod(8, "one", phase="Running")})
    assert one.objects()[POD]["status"]["phase"] == "Running"


def test_a_refused_write_is_as_if_it_had_never_been() -> None:
    one = view()
    one.submitted(PutStatus(POD, {"podIP": "10.0.0.2"}))
    assert one.objects()[POD]["status"]["podIP"] == "10.0.0.2"
    one.answered(one.pending[POD], None)
    assert "podIP" not in one.objects()[POD]["status"]


def test_an_answer_about_an_earlier_pod_of_that_name_does_not_count() -> None:
    one = view()
    one.submitted(Put(pod(5, "one")))
    one.told({NODE: node(), POD: pod(9, uid="u2")})
    one.answered(one.pending[POD], pod(10, "one", uid="u1"))
    assert node_of(one) is None


def test_an_object_that_is_gone_is_not_brought_back_by_an_answer() -> None:
    one = view()
    one.submitted(PutStatus(POD, {"phase": "Running"}))
    one.told({NODE: node()})
    one.answered(one.pending[POD], pod(9, phase="Running"))
    assert POD not in one.objects()


def test_a_pod_that_was_taken_out_stays_out_though_the_watch_still_has_it() -> None:
    one = view()
    one.erased(pod(5))
    assert POD not in one.objects()
    one.told({NODE: node(), POD: pod(6)})
    assert (POD in one.objects(), one.expected(POD)) == (False, None)
    one.told({NODE: node(), POD: pod(9, uid="u2")})
    assert POD in one.objects()


def test_a_lab_sees_its_own_nodes_and_their_pods_and_those_that_wait() -> None:
    other, theirs = ObjectRef("Node", "two"), ObjectRef("Pod", "api", "shop")
    elsewhere = pod(5, "two")
    one = view()
    one.told({NODE: node(), other: node("two", "another"), POD: pod(5), theirs: elsewhere})
    assert set(one.objects()) == {NODE, POD}


def test_an_object_that_makes_no_sense_is_a_fault_and_stops_no_other() -> None:
    one = View("mine")
    bad = {**pod(5), "spec": {"containers": "none"}}
    one.told({NODE: node(), POD: bad})
    assert set(one.objects()) == {NODE}
    assert one.faults[0].startswith("Pod/shop/web: spec.containers")


def test_statuses_at_the_front_go_together_and_anything_else_alone() -> None:
    one = view()
    for write in (PutStatus(POD, {"a": 1}), PutStatus(POD, {"b": 2}), Put(pod(5, "one")), PutStatus(POD, {"c": 3})):
        one.submitted(write)
    first = merged(one.pending[POD])
    assert [entry.write for entry in first] == [PutStatus(POD, {"a": 1}), PutStatus(POD, {"b": 2})]
    assert len(merged(one.pending[POD][2:])) == 1


def test_tokens_are_wanted_for_bound_pods_that_mount_them() -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    bound = pod(5, "one")
    bound["spec"] |= {"serviceAccountName": "robot", "volumes": [{"name": "v", "projected": {"sources": [source]}}]}
    (key,) = tokens_wanted({POD: bound})
    assert (key.namespace, key.account, key.pod, key.uid, key.seconds) == ("shop", "robot", "web", "u1", 3607)
    waiting = {**bound, "spec": {**bound["spec"], "nodeName": ""}}
    assert tokens_wanted({POD: waiting}) == frozenset()
    one = view()
    one.token(key, "secret")
    assert one.objects()[key.ref]["token"] == "secret"
    one.token(key, "")
    assert key.ref not in one.objects()


def test_what_controllers_have_not_done_yet_is_said() -> None:
    metadata = {"name": "web", "namespace": "shop", "generation": 2}
    ref = ObjectRef("Deployment", "web", "shop")
    spec = {"replicas": 2}

    def said(**status: Any) -> tuple[str, ...]:
        return unfinished({ref: {"metadata": metadata, "spec": spec, "status": status}})

    assert said(observedGeneration=1) == ("Deployment/shop/web: not seen by its controller yet",)
    assert said(observedGeneration=2, readyReplicas=1, updatedReplicas=2) == (
        "Deployment/shop/web: 1 of 2 ready, 2 up to date",
    )
    assert said(observedGeneration=2, readyReplicas=2, updatedReplicas=2, replicas=3) != ()
    assert said(observedGeneration=2, readyReplicas=2, updatedReplicas=2, replicas=2) == ()
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert unfinished({NODE: node(taints=[taint])}) == ("Node/one: has the taint node.kubernetes.io/not-ready",)
