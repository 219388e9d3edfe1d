"""By whatever route objects come and go, the end is the same."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.lab.controllers.writes import Objects, Put, PutStatus, Remove, Write, net, performed
from podgate.model.frozen import ObjectRef
from tests.lab.world import World, node, nodes, pod, workload

TOLERANT = "tolerations: [{operator: Exists}]"
PIECES = (
    nodes("a"),
    node("b", "spec: {taints: [{key: k, effect: NoSchedule}]}"),
    workload("DaemonSet", "agent", pod=TOLERANT),
    workload("Deployment", "web", spec="replicas: 3"),
    pod("single"),
)
ORDERS = tuple(itertools.permutations(range(len(PIECES))))


def outcome(world: World) -> object:
    """Give what a user sees in the end: where which image runs, and the status of what they applied."""
    statuses = {
        (kind, name): obj["status"] for kind in ("DaemonSet", "Deployment") for name, obj in world.of(kind).items()
    }
    return world.pods(), statuses, sorted(world.of("Node"))


def straight() -> World:
    world = World()
    world.apply("".join(PIECES))
    return world.settle()


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False], ids=["settling in between", "all at once"])
def test_every_order_of_applying_ends_in_the_same(settled: bool) -> None:
    expected = outcome(straight())
    for order in ORDERS:
        world = World(graceful=True)
        for index in order:
            world.apply(PIECES[index])
            if settled:
                world.settle()
        assert outcome(world.settle()) == expected, order


CHANGES = (
    *PIECES,
    workload("DaemonSet", "agent", "two", pod=TOLERANT),
    workload("DaemonSet", "agent", spec="updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"),
    workload("Deployment", "web", "two", spec="replicas: 5"),
    workload("Deployment", "web", "bad", spec="replicas: 2\n  strategy: {type: Recreate}"),
    workload("Deployment", "other"),
    node("a", "spec: {taints: [{key: k, effect: NoExecute}]}"),
    nodes("c"),
)
DELETIONS = tuple(
    ObjectRef(kind, name, "" if kind == "Node" else "default")
    for kind, name in (
        ("Node", "a"), ("Node", "b"), ("Node", "c"), ("Pod", "single"),
        ("DaemonSet", "agent"), ("Deployment", "web"), ("Deployment", "other"),
    )
)  # fmt: skip
ACTS = st.sampled_from([*CHANGES, *DELETIONS, "step", "kubelet", "settle"])


@given(st.lists(ACTS, max_size=25))
def test_every_history_ends_in_the_same(acts: list[str | ObjectRef]) -> None:
    world = World(graceful=True)
    world.broken = {"bad"}
    for act in acts:
        match act:
            case ObjectRef():
                world.discard(act)
            case "step":
                world.step()
            case "kubelet":
                world.kubelet()
            case "settle":
                world.settle()
            case _:
                world.apply(act)
    for ref in DELETIONS:
        world.discard(ref)
    assert world.settle().pods() == []
    world.apply("".join(PIECES))
    assert outcome(world.settle()) == outcome(straight())


@pytest.mark.parametrize("acts", [("apply", "delete"), ("apply", "delete", "apply")])
def test_a_namespace_takes_all_with_it(acts: tuple[str, ...]) -> None:
    world = World()
    ref = ObjectRef("Namespace", "shop")
    for act in acts:
        if act == "apply":
            world.apply(nodes("a") + "---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n")
            world.apply(workload("Deployment").replace("{name: app}", "{name: app, namespace: shop}", 1))
            world.settle()
            assert len(world.pods()) == 1
        else:
            world.discard(ref)
            assert world.settle().pods() == []
            assert [one for one in world.objects if one.namespace == "shop"] == []


REFS = [ObjectRef("Pod", name, "default") for name in "ab"]
BODIES = st.builds(
    lambda ref, image: Put(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ref.name, "namespace": "default"}, "spec": image}
    ),
    st.sampled_from(REFS),
    st.integers(0, 2),
)
CONDITIONS = st.lists(st.sampled_from([{"type": t, "status": s} for t in "XY" for s in ("True", "False")]), max_size=2)
STATUSES = st.builds(
    PutStatus,
    st.sampled_from(REFS),
    st.fixed_dictionaries({}, optional={"phase": st.none() | st.integers(0, 2), "conditions": CONDITIONS}),
)
START: Objects = {REFS[0]: {"kind": "Pod", "spec": 9, "status": {"phase": 7, "conditions": [{"type": "X"}]}}}


@given(st.lists(BODIES | STATUSES, max_size=6), st.sets(st.sampled_from(REFS)))
def test_net_writes_do_what_all_of_them_do(writes: list[Write], removed: set[ObjectRef]) -> None:
    # A status before its object is lost, so the bodies come first here, as they do in what net gives.
    ordered = sorted(writes, key=lambda write: isinstance(write, PutStatus))
    sequence = [*ordered, *map(Remove, sorted(removed))]
    short = net(sequence)
    assert performed(START, short) == performed(START, sequence)
    assert len({(write.ref, isinstance(write, PutStatus)) for write in short}) == len(short)
