"""Objects as controllers see them."""

from podgate.lab.controllers.seeing import active, nodes, pods, pods_of
from tests.lab.world import World, node, pod, workload


def test_the_order_is_that_of_names() -> None:
    world = World()
    world.apply(node("b") + node("a") + pod("two") + pod("one"))
    assert [one.ref.name for one in nodes(world.objects)] == ["a", "b"]
    assert [one.ref.name for one in pods(world.objects)] == ["one", "two"]


def test_pods_by_their_controller_and_those_that_still_count() -> None:
    world = World(graceful=True)
    world.apply(node("a") + pod("single") + workload("ReplicaSet", spec="replicas: 3"))
    world.settle()
    uid = world.of("ReplicaSet")["app"]["metadata"]["uid"]
    owned = pods_of(world.objects)
    assert owned.keys() == {uid}
    assert len(owned[uid]) == 3
    world.delete("pod", owned[uid][0].ref.name)
    ended = owned[uid][1].ref
    world.objects[ended] = {**world.objects[ended], "status": {"phase": "Succeeded"}}
    assert [one.ref for one in active(pods_of(world.objects)[uid])] == [owned[uid][2].ref]
