"""What is created, corrected, removed and held back: tables, and histories of folders and clusters."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.admin.addons.folder import MODE_LABEL, Addon, Mode
from podgate.admin.addons.plan import Found, Plan, WantedAddon, planned
from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Kind

KINDS = {
    kind: Kind("apps" if kind == "DaemonSet" else "", "v1", kind, f"{kind.lower()}s", True, dict)
    for kind in ("ConfigMap", "ServiceAccount", "DaemonSet")
}


def ref(text: str) -> ObjectRef:
    kind, name = text.split("/")
    return ObjectRef(kind, name, "kube-system")


def app(name: str) -> str:
    return name.partition("-v")[0]


def wanted(text: str, mode: Mode = "Reconcile") -> WantedAddon:
    one = ref(text)
    kind = KINDS[one.kind]
    metadata = {"name": one.name, "labels": {MODE_LABEL: mode, "k8s-app": app(one.name)}}
    return WantedAddon(
        Addon(mode, {"apiVersion": kind.api_version, "kind": one.kind, "metadata": metadata}, "f:1"), kind, one
    )


def found(text: str, **facts: object) -> Found:
    one = ref(text)
    whole = {"uid": text, "mode": "Reconcile", "ours": True, "labels": {"k8s-app": app(one.name)}, **facts}
    return Found(KINDS[one.kind], one, **whole)  # type: ignore[arg-type]


def lines(plan: Plan) -> list[str]:
    return [line.replace("kube-system/", "") for line in str(plan).splitlines()]


def plan_of(
    want: Iterable[WantedAddon], have: Iterable[Found], *, whole: bool = True, adopt: bool = False
) -> list[str]:
    return lines(planned(want, have, whole=whole, adopt=adopt))


OLD, NEW = "DaemonSet/proxy-v0.1", "DaemonSet/proxy-v0.2"
WAITS = f"hold {OLD}: it goes when {NEW} is ready"
GOES = f"remove {OLD}: it left the folder"
LEFT = "it left the folder"

TABLE = {
    "nothing": ([], [], []),
    "create, what others need first": (
        [wanted(NEW), wanted("ConfigMap/a"), wanted("ServiceAccount/a")],
        [],
        ["create ServiceAccount/a", "create ConfigMap/a", f"create {NEW}"],
    ),
    "as it should be": ([wanted("ConfigMap/a")], [found("ConfigMap/a")], []),
    "drift": ([wanted("ConfigMap/a")], [found("ConfigMap/a", differs=True)], ["correct ConfigMap/a"]),
    "drift of what is only made once": (
        [wanted("ConfigMap/a", "EnsureExists")],
        [found("ConfigMap/a", mode="EnsureExists", differs=True)],
        [],
    ),
    "made once, and missing": ([wanted("ConfigMap/a", "EnsureExists")], [], ["create ConfigMap/a"]),
    "somebody else's of that name": (
        [wanted("ConfigMap/a")],
        [found("ConfigMap/a", ours=False, differs=True)],
        ["correct ConfigMap/a: it is there, made by somebody else: its fields become the manifest's"],
    ),
    "being deleted": (
        [wanted("ConfigMap/a")],
        [found("ConfigMap/a", going=True)],
        ["hold ConfigMap/a: it is being deleted, and is made again afterwards"],
    ),
    "left the folder, what others need last": (
        [],
        [found("ServiceAccount/a"), found(OLD), found("ConfigMap/a")],
        [f"remove {OLD}: {LEFT}", f"remove ConfigMap/a: {LEFT}", f"remove ServiceAccount/a: {LEFT}"],
    ),
    "left the folder, and is gone already": ([], [found("ConfigMap/a", going=True)], []),
    "left the folder, but is made once": ([], [found("ConfigMap/a", mode="EnsureExists")], []),
    "left the folder, but lost its label": ([], [found("ConfigMap/a", mode="")], []),
    "of a controller": ([], [found("ConfigMap/a", controlled=True)], []),
    "of another set": ([], [found("ConfigMap/a", ours=False, owner="podgate-addons-x")], []),
    "of another addon manager": (
        [],
        [found("ConfigMap/a", ours=False)],
        [f"leave ConfigMap/a: it has {MODE_LABEL}=Reconcile, but is not of this set: --adopt takes it"],
    ),
    "update: begins": ([wanted(NEW)], [found(OLD, ready=True)], [f"create {NEW}", WAITS]),
    "update: not ready": ([wanted(NEW)], [found(OLD, ready=True), found(NEW)], [WAITS]),
    "update: ready": ([wanted(NEW)], [found(OLD, ready=True), found(NEW, ready=True)], [GOES]),
    "update: ready, and to be corrected": (
        [wanted(NEW)],
        [found(OLD), found(NEW, ready=True, differs=True)],
        [f"correct {NEW}", WAITS],
    ),
    "update: started is not enough": ([wanted(NEW)], [found(OLD), found(NEW, started=True)], [WAITS]),
    "update: both on the host, not started": (
        [wanted(NEW)],
        [found(OLD, on_host=True), found(NEW, on_host=True)],
        [WAITS],
    ),
    "update: both on the host, started": (
        [wanted(NEW)],
        [found(OLD, on_host=True), found(NEW, on_host=True, started=True)],
        [GOES],
    ),
    "update: the new one leaves the host": (
        [wanted(NEW)],
        [found(OLD, on_host=True), found(NEW, started=True)],
        [WAITS],
    ),
    "what the old one needs stays as long as it": (
        [wanted(NEW)],
        [found(OLD), found("ConfigMap/a"), found(NEW)],
        [WAITS, "hold ConfigMap/a: it goes after the workloads that have to stay for now"],
    ),
    "another application waits for nobody": (
        [wanted("DaemonSet/other-v1")],
        [found(OLD), found("DaemonSet/other-v1")],
        [GOES],
    ),
    "another part of the application waits for nobody": (
        [wanted("DaemonSet/proxy-v0.2")],
        [found(OLD, labels={"k8s-app": "proxy", "app.kubernetes.io/component": "other"}), found(NEW)],
        [GOES],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("want", "have", "steps"), TABLE.values(), ids=TABLE.keys())
def test_plans(want: list[WantedAddon], have: list[Found], steps: list[str]) -> None:
    assert plan_of(want, have) == steps


def test_a_folder_that_is_not_whole_removes_nothing_and_goes_on_with_the_rest() -> None:
    have = [found(OLD), found("ConfigMap/a", differs=True)]
    assert plan_of([wanted(NEW), wanted("ConfigMap/a")], have, whole=False) == [
        "correct ConfigMap/a",
        f"create {NEW}",
        f"hold {OLD}: it is not in the folder, which has mistakes",
    ]


def test_what_another_addon_manager_left_is_removed_when_that_is_asked_for() -> None:
    assert plan_of([], [found(OLD, ours=False)], adopt=True) == [GOES]
    assert plan_of([], [found(OLD, ours=False, owner="podgate-addons-x")], adopt=True) == []


@pytest.mark.parametrize("adopt", [False, True])
def test_what_stands_in_the_folder_without_a_label_has_not_left_it(*, adopt: bool) -> None:
    have = [found("ConfigMap/a"), found("ConfigMap/b"), found("ConfigMap/c", ours=False)]
    standing = frozenset({("", ref("ConfigMap/a")), ("", ref("ConfigMap/c"))})
    plan = planned([], have, whole=True, adopt=adopt, unlabelled=standing)
    assert lines(plan) == [
        f"leave ConfigMap/a: its manifest has no label {MODE_LABEL}: --mode gives it one",
        "remove ConfigMap/b: it left the folder",
    ]


def test_a_plan_of_what_is_left_alone_has_nothing_to_do() -> None:
    plan = planned([], [found("ConfigMap/a", ours=False)], whole=True)
    assert (bool(plan), plan.due) == (False, ())
    assert not planned([], [], whole=True)


# --- histories ------------------------------------------------------------------------------------------------

NAMES = ("DaemonSet/proxy-v0.1", "DaemonSet/proxy-v0.2", "DaemonSet/proxy-v0.3", "ConfigMap/a", "ServiceAccount/b")
FACTS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(("Reconcile", "EnsureExists", "")),
        "ours": st.booleans(),
        "going": st.booleans(),
        "differs": st.booleans(),
        "on_host": st.booleans(),
        "ready": st.booleans(),
        "started": st.booleans(),
    }
)
CLUSTERS = st.dictionaries(st.sampled_from(NAMES), FACTS).map(
    lambda some: {name: found(name, **facts) for name, facts in some.items()}
)
BARE = st.frozensets(st.sampled_from(NAMES))
FOLDERS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("Reconcile", "EnsureExists")))
Cluster = dict[str, Found]


def after(cluster: Cluster, plan: Plan) -> Cluster:
    """Do what is due, as an API would."""
    result = dict(cluster)
    for step in plan.due:
        name = f"{step.ref.kind}/{step.ref.name}"
        if step.verb == "remove":
            del result[name]
        else:
            assert step.wanted is not None
            made = found(name, mode=step.wanted.addon.mode)
            result[name] = msgspec.structs.replace(cluster[name], differs=False, ours=True) if name in cluster else made
    return result


@settings(max_examples=300)
@given(st.lists(st.tuples(FOLDERS, BARE, st.booleans()), max_size=6), CLUSTERS)
def test_no_history_removes_what_must_stay(
    folders: list[tuple[dict[str, Mode], frozenset[str], bool]], cluster: Cluster
) -> None:
    for folder, bare, whole in folders:
        want = [wanted(name, mode) for name, mode in folder.items()]
        standing = {(KINDS[ref(name).kind].group, ref(name)) for name in bare}
        plan = planned(want, cluster.values(), whole=whole, unlabelled=standing)
        for step in plan.due:
            if step.verb == "remove":
                assert step.found is not None
                assert whole
                assert (step.found.mode, step.found.ours) == ("Reconcile", True)
                assert f"{step.ref.kind}/{step.ref.name}" not in {*folder, *bare}
        cluster = after(cluster, plan)


@given(FOLDERS, CLUSTERS)
def test_every_cluster_ends_as_the_folder_says(folder: dict[str, Mode], cluster: Cluster) -> None:
    want = [wanted(name, mode) for name, mode in folder.items()]
    for _ in range(5):
        cluster = after(cluster, planned(want, cluster.values(), whole=True))
        # Meanwhile what was going is gone, and what was made becomes ready.
        cluster = {name: msgspec.structs.replace(each, ready=True) for name, each in cluster.items() if not each.going}
    assert not planned(want, cluster.values(), whole=True)
    assert cluster.keys() >= folder.keys()
    assert all(name in folder or not each.ours or each.mode != "Reconcile" for name, each in cluster.items())


@given(st.lists(st.sampled_from(NAMES[:3]), min_size=2, max_size=5), st.data())
def test_an_application_never_loses_its_last_ready_workload(versions: list[str], data: st.DataObject) -> None:
    """Versions follow one another, and each becomes ready when it likes; on Pods' own network."""
    cluster: Cluster = {versions[0]: found(versions[0], ready=True)}
    for version in versions[1:]:
        for _ in range(data.draw(st.integers(0, 3))):
            cluster = after(cluster, planned([wanted(version)], cluster.values(), whole=True))
            assert any(each.ready for each in cluster.values())
            if version in cluster and data.draw(st.booleans()):
                cluster[version] = msgspec.structs.replace(cluster[version], ready=True)
