"""A number of Pods, and the way from one template to the next."""

import pytest

from tests.lab.world import World, nodes, workload


def images(world: World) -> list[str]:
    return sorted(image for _, image, _ in world.pods())


def test_replicas_are_spread_and_named_as_in_a_cluster() -> None:
    world = World()
    world.apply(nodes("a", "b") + workload("Deployment", spec="replicas: 4"))
    assert [name for name, *_ in world.settle().pods()] == ["a", "a", "b", "b"]
    ((name, one),) = world.of("ReplicaSet").items()
    hashed = one["metadata"]["labels"]["pod-template-hash"]
    assert name == f"app-{hashed}"
    for pod_name, pod in world.of("Pod").items():
        prefix, _, suffix = pod_name.rpartition("-")
        assert (prefix, len(suffix)) == (name, 5)
        assert pod["metadata"]["labels"] == {"app": "app", "pod-template-hash": hashed}
    status = world.of("Deployment")["app"]["status"]
    assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (4, 4, 4)
    assert {"type": "Available", "status": "True"} in status["conditions"]


def test_scaling_and_deleting() -> None:
    world = World()
    world.apply(nodes("a") + workload("Deployment", spec="replicas: 3"))
    three = set(world.settle().of("Pod"))
    world.apply(workload("Deployment", spec="replicas: 1"))
    assert set(world.settle().of("Pod")) < three
    world.apply(workload("Deployment", spec="replicas: 3"))
    assert set(world.settle().of("Pod")) == three
    world.apply(workload("Deployment", spec="replicas: 0"))
    assert world.settle().pods() == []
    world.delete("deployment", "app")
    assert world.settle().of("ReplicaSet") == {}


UPDATES = [
    ("defaults: 25 % of 4 is 1 each way", 4, "", 3, 5),
    ("25 % of 1: a new one first", 1, "", 1, 2),
    ("no surge", 4, "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}", 2, 4),
    ("none may be missing", 4, "strategy: {rollingUpdate: {maxSurge: 50%, maxUnavailable: 0}}", 4, 6),
    ("both round to 0", 3, "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 10%}}", 2, 3),
    ("recreate", 3, "strategy: {type: Recreate}", 0, 3),
]


@pytest.mark.parametrize("graceful", [False, True], ids=["at once", "graceful"])
@pytest.mark.parametrize(
    ("replicas", "spec", "fewest", "most"), [row[1:] for row in UPDATES], ids=[r[0] for r in UPDATES]
)
def test_an_update_keeps_its_bounds(replicas: int, spec: str, fewest: int, most: int, graceful: bool) -> None:
    world = World(graceful=graceful)
    replicated = f"replicas: {replicas}\n  {spec}"
    world.apply(nodes("a", "b") + workload("Deployment", spec=replicated))
    world.settle()
    world.apply(workload("Deployment", image="two", spec=replicated))
    counts = set()
    for _ in range(60):
        for act in (world.step, world.kubelet):
            act()
            alive = [pod for pod in world.of("Pod").values() if "deletionTimestamp" not in pod["metadata"]]
            ready = sum(
                {"type": "Ready", "status": "True"} in pod.get("status", {}).get("conditions", ()) for pod in alive
            )
            counts.add(ready)
            assert len(alive) <= most
            assert ready >= fewest
    assert min(counts) == fewest
    assert images(world.settle()) == ["two"] * replicas


def test_recreate_waits_until_the_old_pods_have_ended() -> None:
    world = World(graceful=True)
    spec = "replicas: 2\n  strategy: {type: Recreate}"
    world.apply(nodes("a") + workload("Deployment", spec=spec))
    world.settle()
    world.apply(workload("Deployment", image="two", spec=spec))
    for _ in range(5):
        world.step()  # the kubelet ends nothing
    assert images(world) == ["one", "one"]
    assert images(world.settle()) == ["two", "two"]


def test_an_update_to_a_broken_image_stops_and_can_be_taken_back() -> None:
    world = World()
    world.broken = {"bad"}
    world.apply(nodes("a") + workload("Deployment", spec="replicas: 4"))
    world.settle()
    world.apply(workload("Deployment", image="bad", spec="replicas: 4"))
    assert images(world.settle()).count("one") == 3
    assert {"type": "Available", "status": "True"} in world.of("Deployment")["app"]["status"]["conditions"]
    world.apply(workload("Deployment", image="one", spec="replicas: 4"))
    assert images(world.settle()) == ["one"] * 4


def test_an_update_in_the_middle_of_another() -> None:
    world = World(graceful=True)
    world.apply(nodes("a") + workload("Deployment", spec="replicas: 4"))
    world.settle()
    for image in ("two", "three", "four"):
        world.apply(workload("Deployment", image=image, spec="replicas: 4"))
        world.step()
        world.kubelet()
    assert images(world.settle()) == ["four"] * 4


def test_paused_keeps_the_template_but_scales() -> None:
    world = World()
    world.apply(nodes("a") + workload("Deployment", spec="replicas: 2"))
    world.settle()
    world.apply(workload("Deployment", image="two", spec="replicas: 2\n  paused: true"))
    assert images(world.settle()) == ["one", "one"]
    world.apply(workload("Deployment", image="one", spec="replicas: 3\n  paused: true"))
    assert images(world.settle()) == ["one"] * 3


def test_the_history_is_limited() -> None:
    world = World()
    world.apply(nodes("a"))
    for image in ("one", "two", "three", "four"):
        world.apply(workload("Deployment", image=image, spec="revisionHistoryLimit: 1"))
        world.settle()
    assert len(world.of("ReplicaSet")) == 2
