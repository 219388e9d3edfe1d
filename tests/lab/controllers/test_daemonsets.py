"""A Pod on every node that may have one."""

import pytest

from tests.lab.world import World, node, nodes, workload

TAINTED = "spec: {taints: [{key: gpu, value: 'yes', effect: NoSchedule}]}"
DRIVEN = "spec: {taints: [{key: gpu, value: 'yes', effect: NoExecute}]}"
AFFINITY = (
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
    "[{matchExpressions: [{key: masq, operator: In, values: ['true']}]},"
    " {matchExpressions: [{key: beta-masq, operator: Exists}]}]}}}"
)


def daemons(*at: str, image: str = "one", ready: bool = True) -> list[tuple[str, str, str]]:
    return [(name, image, str(ready)) for name in at]


def test_each_node_gets_a_pod_and_later_nodes_too() -> None:
    world = World()
    world.apply(nodes("a", "b") + workload("DaemonSet"))
    assert world.settle().pods() == daemons("a", "b")
    world.apply(nodes("c"))
    assert world.settle().pods() == daemons("a", "b", "c")
    world.delete("node", "a")
    assert world.settle().pods() == daemons("b", "c")
    (status,) = (one["status"] for one in world.of("DaemonSet").values())
    assert status["desiredNumberScheduled"] == status["numberReady"] == status["updatedNumberScheduled"] == 2


def test_pods_look_as_the_real_controller_makes_them() -> None:
    world = World()
    world.apply(nodes("a") + workload("DaemonSet", pod="hostNetwork: true"))
    ((name, made),) = world.settle().of("Pod").items()
    prefix, _, suffix = name.rpartition("-")
    assert (prefix, len(suffix)) == ("app", 5)
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("DaemonSet", "app", True)
    assert len(made["metadata"]["labels"]["controller-revision-hash"]) == 10
    keys = {one["key"].partition("/")[2] for one in made["spec"]["tolerations"]}
    assert keys == {
        "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable",
        "network-unavailable",
    }  # fmt: skip
    term = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
    }


PLACES = [
    ("a selector needs its label", "nodeSelector: {disk: ssd}", ["labelled"]),
    ("terms of an affinity are alternatives", AFFINITY, ["beta", "labelled"]),
    ("a taint keeps it off", "", ["beta", "cordoned", "labelled", "plain"]),
    ("a toleration lets it on", "tolerations: [{key: gpu, operator: Exists}]",
     ["beta", "cordoned", "driven", "labelled", "plain", "tainted"]),
    ("a toleration of another effect", "tolerations: [{key: gpu, value: 'yes', effect: NoSchedule}]",
     ["beta", "cordoned", "labelled", "plain", "tainted"]),
    ("a toleration of another value", "tolerations: [{key: gpu, value: 'no'}]",
     ["beta", "cordoned", "labelled", "plain"]),
    ("all tolerated", "tolerations: [{operator: Exists}]",
     ["beta", "cordoned", "driven", "labelled", "plain", "tainted"]),
    ("a node by name", "nodeName: plain", ["plain"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "places"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_which_nodes(spec: str, places: list[str]) -> None:
    world = World()
    world.apply(
        nodes("plain")
        + "---\n{apiVersion: v1, kind: Node, metadata: {name: labelled, labels: {disk: ssd, masq: 'true'}}}\n"
        + "---\n{apiVersion: v1, kind: Node, metadata: {name: beta, labels: {beta-masq: ''}}}\n"
        + node("tainted", TAINTED)
        + node("driven", DRIVEN)
        + node("cordoned", "spec: {unschedulable: true}")
        + workload("DaemonSet", pod=spec)
    )
    assert world.settle().pods() == daemons(*places)


def test_a_later_taint_drives_off_only_with_no_execute() -> None:
    world = World()
    world.apply(nodes("a", "b") + workload("DaemonSet"))
    world.settle()
    world.apply(node("a", TAINTED))
    assert world.settle().pods() == daemons("a", "b")
    assert world.of("DaemonSet")["app"]["status"]["numberMisscheduled"] == 1
    world.apply(node("a", DRIVEN))
    assert world.settle().pods() == daemons("b")
    world.apply(node("a", "spec: {taints: []}"))
    assert world.settle().pods() == daemons("a", "b")


def test_an_update_replaces_one_after_the_other() -> None:
    world = World(graceful=True)
    world.apply(nodes("a", "b", "c") + workload("DaemonSet"))
    world.settle()
    world.apply(workload("DaemonSet", image="two"))
    fewest = 3
    for _ in range(40):
        world.step()
        fewest = min(fewest, sum(ready == "True" for *_, ready in world.pods() if ready))
        terminating = [pod for pod in world.of("Pod").values() if "deletionTimestamp" in pod["metadata"]]
        assert len(terminating) <= 1
        world.kubelet()
        fewest = min(fewest, sum(ready == "True" for *_, ready in world.pods()))
    assert fewest == 2
    assert world.settle().pods() == daemons("a", "b", "c", image="two")


def test_an_update_to_a_broken_image_stops_at_max_unavailable() -> None:
    world = World()
    world.broken = {"bad"}
    world.apply(nodes("a", "b", "c", "d") + workload("DaemonSet"))
    world.settle()
    update = "updateStrategy: {rollingUpdate: {maxUnavailable: 50%}}"
    world.apply(workload("DaemonSet", image="bad", spec=update))
    assert [image for _, image, _ in world.settle().pods()].count("bad") == 2
    world.apply(workload("DaemonSet", image="three", spec=update))
    assert world.settle().pods() == daemons("a", "b", "c", "d", image="three")


def test_with_surge_the_new_pod_is_ready_before_the_old_one_goes() -> None:
    world = World()
    world.apply(nodes("a", "b") + workload("DaemonSet"))
    world.settle()
    update = "updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}"
    world.apply(workload("DaemonSet", image="two", spec=update))
    for _ in range(20):
        world.step()
        world.kubelet()
        assert {name for name, _, ready in world.pods() if ready == "True"} == {"a", "b"}
        assert len(world.pods()) <= 3
    assert world.settle().pods() == daemons("a", "b", image="two")


def test_on_delete_waits_for_the_user() -> None:
    world = World()
    spec = "updateStrategy: {type: OnDelete}"
    world.apply(nodes("a", "b") + workload("DaemonSet", spec=spec))
    world.settle()
    world.apply(workload("DaemonSet", image="two", spec=spec))
    assert world.settle().pods() == daemons("a", "b")
    name = next(name for name, pod in world.of("Pod").items() if pod["spec"]["nodeName"] == "a")
    world.delete("pod", name)
    assert world.settle().pods() == [("a", "two", "True"), ("b", "one", "True")]


def test_a_pod_that_failed_or_was_deleted_comes_back() -> None:
    world = World(graceful=True)
    world.apply(nodes("a") + workload("DaemonSet"))
    (name,) = world.settle().of("Pod")
    ref = next(ref for ref in world.objects if ref.name == name)
    before = world.objects[ref]["metadata"]["uid"]
    world.objects[ref] = {**world.objects[ref], "status": {"phase": "Failed"}}
    assert world.settle().pods() == daemons("a")
    world.delete("pod", name)
    assert world.settle().pods() == daemons("a")
    assert world.objects[ref]["metadata"]["uid"] != before


def test_what_a_daemon_set_owns_goes_with_it() -> None:
    world = World()
    world.apply(nodes("a", "b") + workload("DaemonSet"))
    world.settle()
    world.delete("daemonset", "app")
    assert world.settle().pods() == []
