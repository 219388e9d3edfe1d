"""A number of equal Pods."""

from podgate.lab.controllers.replicasets import reconcile
from tests.lab.world import World, nodes, workload


def images(world: World) -> list[str]:
    return sorted(image for _, image, _ in world.pods())


def test_a_replica_set_of_its_own() -> None:
    world = World()
    world.apply(nodes("a") + workload("ReplicaSet", spec="replicas: 2"))
    names = set(world.settle().of("Pod"))
    assert all(name.startswith("app-") for name in names)
    ref = next(ref for ref in world.objects if ref.name in names)
    world.objects[ref] = {**world.objects[ref], "status": {"phase": "Failed"}}
    assert images(world.settle()) == ["one", "one"]
    assert world.of("ReplicaSet")["app"]["status"]["readyReplicas"] == 2


def test_which_pods_go_first_when_there_are_too_many() -> None:
    world = World()
    world.apply(workload("ReplicaSet", spec="replicas: 4"))
    unbound = set(world.settle().of("Pod"))
    assert len(unbound) == 4
    world.apply(workload("ReplicaSet", spec="replicas: 3"))
    world.settle()
    world.broken = {"one"}
    world.apply(nodes("a"))
    not_ready = set(world.settle().of("Pod"))
    assert not_ready < unbound
    world.broken = set()
    world.apply(workload("ReplicaSet", spec="replicas: 4"))
    (ready,) = set(world.settle().of("Pod")) - not_ready
    world.apply(workload("ReplicaSet", spec="replicas: 1"))
    assert set(world.settle().of("Pod")) == {ready}


def test_nothing_is_wanted_of_a_set_without_a_uid() -> None:
    world = World()
    world.apply(workload("ReplicaSet"))
    (ref,) = (ref for ref in world.objects if ref.kind == "ReplicaSet")
    metadata = {key: value for key, value in world.objects[ref]["metadata"].items() if key != "uid"}
    world.objects[ref] = {**world.objects[ref], "metadata": metadata}
    assert reconcile(world.objects) == ()
