"""What belongs to nobody goes away."""

from podgate.lab.controllers.garbage import reconcile
from podgate.lab.controllers.writes import Remove
from podgate.lab.kinds import Object
from podgate.model.frozen import ObjectRef

NAMESPACE = ObjectRef("Namespace", "n")
OWNER = ObjectRef("ConfigMap", "owner", "n")
OWNED = ObjectRef("Secret", "owned", "n")


def obj(ref: ObjectRef, uid: str, owners: tuple[str, ...] = (), **more: object) -> Object:
    references = [{"kind": "ConfigMap", "name": "owner", "uid": owner} for owner in owners]
    metadata = {"name": ref.name, "namespace": ref.namespace, "uid": uid, "ownerReferences": references}
    return {"kind": ref.kind, "metadata": {**metadata, **more}, "spec": {}}


WORLD = {
    NAMESPACE: obj(NAMESPACE, "u0"),
    OWNER: obj(OWNER, "u1"),
    OWNED: obj(OWNED, "u2", ("u1",)),
}


def without(*refs: ObjectRef) -> dict[ObjectRef, Object]:
    return {ref: value for ref, value in WORLD.items() if ref not in refs}


def test_what_has_an_owner_stays() -> None:
    assert reconcile(WORLD) == ()


def test_what_lost_its_owner_goes() -> None:
    assert reconcile(without(OWNER)) == (Remove(OWNED),)


def test_an_owner_of_the_same_name_is_another_owner() -> None:
    assert reconcile({**WORLD, OWNER: obj(OWNER, "u9")}) == (Remove(OWNED),)


def test_one_owner_of_several_is_enough() -> None:
    assert reconcile({**WORLD, OWNED: obj(OWNED, "u2", ("gone", "u1"))}) == ()


def test_a_namespace_takes_everything_in_it_along() -> None:
    assert set(reconcile(without(NAMESPACE))) == {Remove(OWNER), Remove(OWNED)}


def test_what_is_on_its_way_is_left_alone() -> None:
    leaving = obj(OWNED, "u2", ("gone",), deletionTimestamp="2026-01-01T00:00:00Z")
    assert reconcile({**WORLD, OWNED: leaving}) == ()


def test_pods_go_with_their_node() -> None:
    pod, node = ObjectRef("Pod", "p", "n"), ObjectRef("Node", "a")
    world = {**WORLD, pod: {**obj(pod, "u3"), "spec": {"nodeName": "a"}}}
    assert reconcile(world) == (Remove(pod),)
    assert reconcile({**world, node: obj(node, "u4")}) == ()
    assert reconcile({**world, pod: obj(pod, "u3")}) == ()
