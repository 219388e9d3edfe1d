"""The lab's objects as files."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from podgate.lab.controllers import Put, Remove, reconcile
from podgate.lab.kinds import Object
from podgate.lab.objects import NAMESPACES, Store
from podgate.model.frozen import ObjectRef
from tests.support.poll import poll_async

POD = ObjectRef("Pod", "web", "default")


def pod(name: str = "web", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    times = (f"2026-01-01T00:00:{second:02}Z" for second in itertools.count())
    uids = (f"uid-{number}" for number in itertools.count(1))
    return Store.create(str(tmp_path), lambda: next(times), lambda: next(uids))


def read(store: Store, path: str) -> Any:
    return json.loads(Path(store.root, path).read_text(encoding="utf-8"))


def settle(store: Store) -> None:
    for _ in range(10):
        writes = reconcile(store.load())
        if not writes:
            return
        for write in writes:
            if isinstance(write, Put):
                store.put(write.obj)
            elif isinstance(write, Remove):
                store.delete(write.ref)
            else:
                store.put_status(write.ref, write.status)
    raise AssertionError(reconcile(store.load()))


def test_the_layout(store: Store) -> None:
    store.put(pod())
    store.put_status(POD, {"phase": "Running"})
    store.put({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "namespace": "n"}, "spec": {}})
    files = sorted(str(path.relative_to(store.root)) for path in Path(store.root).rglob("*") if path.is_file())
    assert files == [
        ".podgate-lab",
        *(f"namespaces/_/{name}.json" for name in NAMESPACES),
        "pods/default/web.json",
        "pods/default/web.status.json",
        "replicasets.apps/n/r.json",
    ]
    assert read(store, "pods/default/web.status.json") == {"phase": "Running"}
    assert "status" not in read(store, "pods/default/web.json")


def test_uid_and_creation_time_are_set_once(store: Store) -> None:
    store.put(pod())
    first = store.load()[POD]["metadata"]
    store.put(pod(nodeName="a"))
    second = store.load()[POD]
    assert (second["metadata"], second["spec"]["nodeName"]) == (first, "a")
    store.remove(POD)
    store.put(pod())
    assert store.load()[POD]["metadata"]["uid"] != first["uid"]


def test_load_gives_objects_with_status_and_keeps_what_did_not_change(store: Store) -> None:
    store.put(pod())
    store.put(pod("other"))
    store.put_status(POD, {"phase": "Running"})
    before = store.load()
    assert before[POD]["status"] == {"phase": "Running"}
    store.put_status(POD, {"phase": "Failed"})
    after = store.load()
    assert after[POD]["status"] == {"phase": "Failed"}
    other = ObjectRef("Pod", "other", "default")
    assert after[other] is before[other]
    assert store.load()[POD] is after[POD]


def test_statuses_merge_and_equal_ones_are_not_written(store: Store) -> None:
    store.put(pod())
    store.put_status(POD, {"phase": "Running", "conditions": [{"type": "A", "status": "True"}]})
    store.put_status(POD, {"podIP": "10.0.0.1", "conditions": [{"type": "B", "status": "False"}]})
    store.put_status(POD, {"phase": None, "conditions": [{"type": "A", "status": "False"}]})
    status = store.load()[POD]["status"]
    conditions = [{"type": "A", "status": "False"}, {"type": "B", "status": "False"}]
    assert status == {"podIP": "10.0.0.1", "conditions": conditions}
    inode = Path(store.root, "pods/default/web.status.json").stat().st_ino
    store.put_status(POD, {"podIP": "10.0.0.1", "conditions": [conditions[1]]})
    store.put(pod())
    assert Path(store.root, "pods/default/web.status.json").stat().st_ino == inode


def test_a_status_needs_its_object(store: Store) -> None:
    store.put_status(POD, {"phase": "Running"})
    assert not Path(store.root, "pods").exists()


def test_applying_keeps_what_controllers_filled_in(store: Store) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    store.apply({**node, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
    ref = ObjectRef("Node", "a")
    store.put({**store.load()[ref], "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}})
    store.put_status(ref, {"conditions": [{"type": "Ready", "status": "True"}]})
    store.apply({**node, "spec": {"unschedulable": True}})
    found = store.load()[ref]
    assert found["spec"] == {"unschedulable": True, "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}
    assert found["status"]["addresses"][0]["address"] == "10.0.0.1"
    store.apply({**node, "spec": {"podCIDRs": ["10.2.0.0/24"]}})
    assert store.load()[ref]["spec"] == {"podCIDRs": ["10.2.0.0/24"]}
    store.apply(pod(nodeName="a"))
    store.apply(pod())
    assert store.load()[POD]["spec"]["nodeName"] == "a"


def test_applying_the_same_again_changes_nothing(store: Store) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"disk": "ssd"}},
        "spec": {"podCIDRs": ["10.1.0.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }
    for obj in (node, pod()):
        store.apply(obj)
    settle(store)
    before = store.load()
    for obj in (node, pod()):
        store.apply(obj)
    assert store.load() == before
    assert before[POD]["spec"]["nodeName"] == "a"
    store.apply({**node, "metadata": {"name": "a"}, "spec": {}, "status": {"addresses": []}})
    found = store.load()[ObjectRef("Node", "a")]
    assert found["metadata"]["labels"] == {"kubernetes.io/hostname": "a", "kubernetes.io/os": "linux"}
    assert found["spec"]["podCIDR"] == "10.1.0.0/24"
    assert found["status"]["addresses"] == [{"type": "Hostname", "address": "a"}]


def test_a_namespace_that_is_missing_is_made(store: Store) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": {}}
    store.apply(config)
    assert ObjectRef("Namespace", "shop") in store.load()
    assert reconcile(store.load()) == ()


def test_an_object_without_a_namespace_is_put_where_it_belongs(store: Store) -> None:
    store.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    store.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "namespace": "x"}})
    assert {ObjectRef("ConfigMap", "c", "default"), ObjectRef("Node", "a")} <= store.load().keys()


def test_deleting_a_pod_that_runs_lets_it_end_first(store: Store) -> None:
    store.put(pod(nodeName="a", terminationGracePeriodSeconds=5))
    assert store.delete(POD)
    metadata = store.load()[POD]["metadata"]
    assert (metadata["deletionTimestamp"][:4], metadata["deletionGracePeriodSeconds"]) == ("2026", 5)
    assert store.delete(POD)
    assert store.load()[POD]["metadata"] == metadata
    store.apply(pod())
    assert "deletionTimestamp" in store.load()[POD]["metadata"]
    store.put_status(POD, {"phase": "Running"})
    store.remove(POD)
    assert POD not in store.load()
    assert list(Path(store.root, "pods/default").iterdir()) == []
    assert not store.delete(POD)


def test_deleting_a_pod_that_never_ran(store: Store) -> None:
    store.put(pod())
    assert store.delete(POD)
    assert POD not in store.load()


def test_custom_resources_have_the_folder_that_their_definition_names(store: Store) -> None:
    custom = {"apiVersion": "podgate.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "p"}}
    with pytest.raises(KeyError, match="Policy"):
        store.put(custom)
    names = {"kind": "Policy", "plural": "policies"}
    store.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "policies.podgate.dev"},
            "spec": {"group": "podgate.dev", "scope": "Cluster", "names": names},
        }
    )
    store.apply(custom)
    assert Path(store.root, "policies.podgate.dev/_/p.json").exists()
    other = Store(str(Path(store.root).parent))
    assert ObjectRef("Policy", "p") in other.load()
    other.put_status(ObjectRef("Policy", "p"), {"accepted": True})
    assert store.load()[ObjectRef("Policy", "p")]["status"] == {"accepted": True}


def test_a_custom_kind_with_the_name_of_a_built_in_one_is_another_object(store: Store) -> None:
    names = {"kind": "Service", "plural": "services"}
    store.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "services.serving.knative.dev"},
            "spec": {"group": "serving.knative.dev", "scope": "Namespaced", "names": names},
        }
    )
    for version in ("v1", "serving.knative.dev/v1"):
        body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
        store.apply({"apiVersion": version, "kind": "Service", **body})
    refs = {ObjectRef("Service", "s", "default"), ObjectRef("Service.serving.knative.dev", "s", "default")}
    assert refs <= store.load().keys()
    assert refs <= Store(str(Path(store.root).parent)).load().keys()
    assert store.kinds.named("services") == store.kinds.of({"apiVersion": "v1", "kind": "Service"})
    store.put_status(ObjectRef("Service.serving.knative.dev", "s", "default"), {"url": "u"})
    assert Path(store.root, "services.serving.knative.dev/default/s.status.json").exists()
    assert store.delete(ObjectRef("Service", "s", "default"))
    assert refs & store.load().keys() == {ObjectRef("Service.serving.knative.dev", "s", "default")}


FAULTS = [
    ("pods/default/web.json", "{", "not an object"),
    ("pods/default/web.json", "[]", "not an object"),
    ("pods/default/web.json", '{"kind": "Pod"}', "apiVersion and kind"),
    ("pods/default/web.json", '{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}', "spec"),
    ("pods/default/web.status.json", '{"conditions": 3}', "conditions"),
]


@pytest.mark.parametrize(("path", "text", "says"), FAULTS)
def test_what_is_no_object_is_named_and_stops_no_other(store: Store, path: str, text: str, says: str) -> None:
    store.put(pod())
    store.put(pod("other"))
    Path(store.root, path).write_text(text, encoding="utf-8")
    found = store.load()
    assert POD not in found
    assert ObjectRef("Pod", "other", "default") in found
    (fault,) = store.faults
    assert path in fault
    assert says in fault
    store.put(pod())
    store.remove(POD)
    store.put(pod())
    assert POD in store.load()
    assert store.faults == ()


def test_a_status_that_a_crash_left_behind_is_not_inherited(store: Store) -> None:
    store.put(pod())
    store.put_status(POD, {"podIP": "10.0.0.1"})
    Path(store.root, "pods/default/web.json").unlink()
    assert POD not in store.load()
    store.put(pod())
    assert "status" not in store.load()[POD]


def test_a_write_that_fails_leaves_the_old_object(store: Store, tmp_path: Path) -> None:
    store.put(pod())
    (tmp_path / "incoming").rename(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="incoming"):
        store.put(pod(nodeName="a"))
    assert "nodeName" not in store.load()[POD]["spec"]


def test_changes_wake_up_whoever_waits_for_them(store: Store) -> None:
    asyncio.run(_watched(store))


async def _watched(store: Store) -> None:
    other = Store(str(Path(store.root).parent))
    seen: list[int] = []

    async def watch() -> None:
        while True:
            await store.changed()
            seen.append(len(store.load()))

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(watch())
        await poll_async(lambda: seen == [len(NAMESPACES)])
        for number in range(5):  # each in a folder that was not there before
            other.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": f"n{number}"}})
        await poll_async(lambda: seen[-1] == len(NAMESPACES) + 5)
        other.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d", "namespace": "n4"}})
        await poll_async(lambda: seen[-1] == len(NAMESPACES) + 6)
        other.remove(ObjectRef("ConfigMap", "d", "n4"))
        await poll_async(lambda: seen[-1] == len(NAMESPACES) + 5)
        watcher.cancel()
    store.close()


def test_the_controllers_settle_on_files(store: Store) -> None:
    store.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    selector = {"matchLabels": {"app": "x"}}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": selector, "template": template}
    store.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec})
    settle(store)
    pods = [obj for ref, obj in store.load().items() if ref.kind == "Pod"]
    assert sorted(obj["status"]["podIP"] for obj in pods) == ["10.244.0.2", "10.244.0.3"]
    assert len({obj["metadata"]["uid"] for obj in pods}) == 2
    assert list((Path(store.root).parent / "incoming").iterdir()) == []
