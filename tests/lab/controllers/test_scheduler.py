"""Binding Pods to nodes."""

from tests.lab.world import World, node, nodes, pod


def test_pods_go_where_the_fewest_are() -> None:
    world = World()
    world.apply(nodes("a", "b") + "".join(pod(f"p{index}") for index in range(5)))
    placed = {name: one["spec"]["nodeName"] for name, one in world.settle().of("Pod").items()}
    assert placed == {"p0": "a", "p1": "b", "p2": "a", "p3": "b", "p4": "a"}


def test_a_pod_that_fits_nowhere_says_why_and_is_bound_when_it_does() -> None:
    world = World()
    world.apply(pod("p", spec="nodeSelector: {disk: ssd}"))
    assert world.settle().condition("p", "PodScheduled")["message"] == "there is no Node: apply one"
    world.apply(nodes("a") + node("b", "spec: {taints: [{key: k, value: v, effect: NoSchedule}]}"))
    world.apply("{apiVersion: v1, kind: Node, metadata: {name: b, labels: {disk: ssd}},"
                " spec: {taints: [{key: k, value: v, effect: NoSchedule}]}}")  # fmt: skip
    condition = world.settle().condition("p", "PodScheduled")
    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == (
        "none of 2 nodes fits: a does not match nodeSelector or the required node affinity; "
        "b has the taint k=v:NoSchedule, which the Pod does not tolerate"
    )
    world.apply("{apiVersion: v1, kind: Node, metadata: {name: b, labels: {disk: ssd}}}")
    world.apply("{apiVersion: v1, kind: Node, metadata: {name: b, labels: {disk: ssd}}, spec: {taints: []}}")
    assert world.settle().condition("p", "PodScheduled")["status"] == "True"
    assert world.of("Pod")["p"]["spec"]["nodeName"] == "b"
