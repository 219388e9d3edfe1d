"""What a kubelet registers of its node."""

from tests.lab.world import World, node, nodes


def test_nodes_are_registered() -> None:
    world = World()
    world.apply(nodes("a", "b"))
    given = "status: {addresses: [{type: InternalIP, address: 172.18.0.3}, {type: ExternalIP, address: 192.0.2.1}]}"
    world.apply(node("c", given))
    found = world.settle().of("Node")
    addresses = {name: [one["address"] for one in obj["status"]["addresses"]] for name, obj in found.items()}
    assert addresses == {"a": ["172.18.0.2", "a"], "b": ["172.18.0.4", "b"], "c": ["172.18.0.3", "192.0.2.1", "c"]}
    assert found["c"]["metadata"]["labels"] == {"kubernetes.io/hostname": "c", "kubernetes.io/os": "linux"}
    assert all(one["status"]["conditions"][0]["status"] == "True" for one in found.values())
    world.apply(node("c", "status: {addresses: [{type: InternalIP, address: 10.1.0.1}]}"))
    assert [one["address"] for one in world.settle().of("Node")["c"]["status"]["addresses"]] == ["10.1.0.1", "c"]


def test_the_ready_condition_is_left_to_whoever_runs_the_node() -> None:
    world = World()
    world.apply(nodes("a"))
    (ref,) = (ref for ref in world.settle().objects if ref.kind == "Node")
    condition = {"type": "Ready", "status": "False", "reason": "Stopped"}
    world.objects[ref] = {**world.objects[ref], "status": {**world.objects[ref]["status"], "conditions": [condition]}}
    assert world.settle().of("Node")["a"]["status"]["conditions"] == [condition]
