"""ManifestSource: folders of manifests and what follows from them, at once and after each change.

Here: formats, Lists, selectors, conflicts, files that go bad or away, a lab's folder. Not here: when a change counts
(test_settling.py, test_files.py).
Invariant: every snapshot is compared as a whole, or by all names of a kind; time is virtual, events are the kernel's.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.config import CONFIG_MAP, ConfigMap
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot, Watch
from podgate.model.table import Table
from podgate.sources.claims import Claims
from podgate.sources.manifests import ManifestSource, SnapshotReader
from tests.support.virtual_time import in_virtual_time

MAPS = (Watch(CONFIG_MAP),)


def load_snapshot(path: str, watches: tuple[Watch, ...]) -> Snapshot:
    return SnapshotReader(path, watches).load()


def config_map(name: str, value: str = "v", namespace: str = "shop") -> str:
    return (
        "apiVersion: v1\nkind: ConfigMap\n"
        f"metadata: {{name: {name}, namespace: {namespace}}}\ndata: {{config: {json.dumps(value)}}}\n"
    )


def wrong_type(name: str) -> str:
    return config_map(name).replace('"v"', "1")


def config(snapshot: Snapshot, name: str = "a", namespace: str = "shop") -> str | None:
    found = snapshot.objects(CONFIG_MAP).get(ObjectRef("ConfigMap", name, namespace))
    return found.data["config"] if found else None


def names(snapshot: Snapshot, kind: str = "ConfigMap") -> list[str]:
    listed = snapshot.kinds[kind]
    assert isinstance(listed, Listed)
    return sorted(str(ref).removeprefix(f"{kind}/") for ref in listed.objects)


POD_JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}}
A_JSON = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}}
B_JSON = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "b"}}

FORMATS: list[tuple[str, str, list[str]]] = [
    ("one.yaml", config_map("a"), ["shop/a"]),
    ("one.yml", config_map("a"), ["shop/a"]),
    ("several.yaml", f"---\n{config_map('a')}---\n# nothing\n---\n{config_map('b')}", ["shop/a", "shop/b"]),
    ("one.json", json.dumps(A_JSON), ["shop/a"]),
    ("several.jsonl", f"{json.dumps(A_JSON)}\n\n{json.dumps(B_JSON)}\n", ["default/b", "shop/a"]),
    ("list.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": [A_JSON, POD_JSON]}), ["shop/a"]),
    (
        "api.json",
        json.dumps({"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "x"}}]}),
        ["default/x"],
    ),
    ("nulls.yaml", config_map("a").replace("{name", "{labels: null, name"), ["shop/a"]),
    ("other.yaml", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: x}\n", []),
    ("empty.yaml", "", []),
    ("notes.txt", config_map("a"), []),
    (".hidden.yaml", config_map("a"), []),
]


@pytest.mark.parametrize(("file", "text", "expected"), FORMATS, ids=[case[0] for case in FORMATS])
def test_formats(tmp_path: Path, file: str, text: str, expected: list[str]) -> None:
    (tmp_path / file).write_text(text)
    snapshot = load_snapshot(str(tmp_path), MAPS)
    assert names(snapshot) == expected
    assert snapshot.faults == ()


def test_one_file_is_a_source_too_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text(config_map("a"))
    assert names(load_snapshot(str(tmp_path / "objects"), MAPS)) == ["shop/a"]


def test_folders_in_folders_are_read_and_a_link_in_a_circle_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "a.yaml").write_text(config_map("a"))
    (tmp_path / "x" / "y" / "up").symlink_to("../..")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.yaml").write_text(config_map("b"))
    snapshot = load_snapshot(str(tmp_path), MAPS)
    assert (names(snapshot), snapshot.faults) == (["shop/a"], ())


def test_each_watched_kind_is_listed_even_without_an_object(tmp_path: Path) -> None:
    assert load_snapshot(str(tmp_path), (Watch(NODE), Watch(POD))) == Snapshot(
        {"Node": Listed(Table()), "Pod": Listed(Table())}
    )


def test_a_source_that_is_not_there_is_absent_with_a_fault(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    snapshot = load_snapshot(path, MAPS)
    assert snapshot.kinds == {"ConfigMap": Absent("no source")}
    assert [fault.ref for fault in snapshot.faults] == [file_ref(path)]


def test_an_object_is_decoded_to_its_struct(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(config_map("a", "x: 1\n"))
    ref = ObjectRef("ConfigMap", "a", "shop")
    expected = ConfigMap(ObjectMeta(name="a", namespace="shop"), {"config": "x: 1\n"})
    assert dict(load_snapshot(str(tmp_path), MAPS).objects(CONFIG_MAP)) == {ref: expected}


def pod(name: str, node: str, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


SELECTED: list[tuple[tuple[Watch, ...], list[str]]] = [
    ((Watch(POD),), ["db/c", "shop/a", "shop/b"]),
    ((Watch(POD, namespace="shop"),), ["shop/a", "shop/b"]),
    ((Watch(POD, field_selector="spec.nodeName=n1"),), ["db/c", "shop/a"]),
    ((Watch(POD, label_selector="app in (web)"),), ["shop/a"]),
    ((Watch(POD, "shop", "!app", "metadata.name=b"),), ["shop/b"]),
    ((Watch(POD, "shop", "app=web"), Watch(POD, "db")), ["db/c", "shop/a"]),
]


@pytest.mark.parametrize(("watches", "expected"), SELECTED)
def test_watches_select(tmp_path: Path, watches: tuple[Watch, ...], expected: list[str]) -> None:
    pods = [pod("a", "n1", app="web"), pod("b", "n2"), pod("c", "n1", "db", app="db")]
    (tmp_path / "pods.jsonl").write_text("\n".join(json.dumps(one) for one in pods))
    assert names(load_snapshot(str(tmp_path), watches), "Pod") == expected


def test_a_bad_selector_is_the_feature_s_fault_and_raises() -> None:
    with pytest.raises(ValueError, match="not a field selector"):
        ManifestSource("/", (Watch(POD, field_selector="spec.image=x"),))


class Bad(NamedTuple):
    """A file with one fault; ``ref`` None: it is about the file."""

    file: str
    text: str
    ref: ObjectRef | None
    field: str
    message: str


FAULTS = [
    Bad("list.yaml", "- a\n", None, "[0]", "this is not a Kubernetes object"),
    Bad("kind.yaml", "---\n---\napiVersion: v1\nmetadata: {}\n", None, "[1].kind", "kind is missing"),
    Bad("name.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", None, "[0].metadata.name", "has no name"),
    Bad("tab.yaml", "a:\n\t- b\n", None, "", "line 2"),
    Bad("bad.json", "{,}", None, "", "line 1"),
    Bad(
        "type.yaml",
        wrong_type("a"),
        ObjectRef("ConfigMap", "a", "shop"),
        "data",
        "expected text, got a whole number",
    ),
    Bad("twice.yaml", f"{config_map('a')}---\n{config_map('a', 'w')}", None, "[1].metadata.name", "in this file twice"),
]


@pytest.mark.parametrize("bad", FAULTS, ids=[bad.file for bad in FAULTS])
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, bad: Bad) -> None:
    (tmp_path / bad.file).write_text(bad.text)
    (fault,) = load_snapshot(str(tmp_path), MAPS).faults
    assert (fault.ref, fault.field) == (bad.ref or file_ref(str(tmp_path / bad.file)), bad.field)
    assert bad.message in fault.message


def test_what_nobody_watches_is_not_complained_about(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(wrong_type("a"))
    assert load_snapshot(str(tmp_path), (Watch(CONFIG_MAP, "other"), Watch(POD))).faults == ()


def test_of_two_files_with_one_object_the_first_by_path_counts(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(config_map("a", "from b"))
    (tmp_path / "a.yaml").write_text(config_map("a", "from a"))
    snapshot = load_snapshot(str(tmp_path), MAPS)
    assert config(snapshot) == "from a"
    message = f"ConfigMap/shop/a is in {tmp_path}/a.yaml too, and that one counts: remove one of the two"
    assert snapshot.faults == (
        Problem(file_ref(f"{tmp_path}/b.yaml"), "warning", "Duplicate", "[0].metadata.name", message),
    )


class Reader:
    """Takes snapshots from a source in a task."""

    def __init__(self) -> None:
        self.values: list[Snapshot] = []
        self.news = asyncio.Condition()

    async def run(self, source: ManifestSource) -> None:
        async for value in source.values():
            self.values.append(value)
            async with self.news:
                self.news.notify_all()

    async def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        async with asyncio.timeout(5), self.news:
            await self.news.wait_for(lambda: bool(self.values) and holds(self.values[-1]))
        return self.values[-1]


@contextlib.asynccontextmanager
async def reading(path: Path, *watches: Watch) -> AsyncIterator[Reader]:
    reader = Reader()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run(ManifestSource(str(path), watches)))
        await reader.until(lambda _: True)
        yield reader
        task.cancel()


@in_virtual_time
async def test_edits_new_files_and_removals_arrive(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(config_map("a", "one"))
    async with reading(tmp_path, *MAPS) as reader:
        (tmp_path / "a.yaml").write_text(config_map("a", "two"))
        await reader.until(lambda snapshot: config(snapshot) == "two")
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "b.yaml").write_text(config_map("b"))
        await reader.until(lambda snapshot: names(snapshot) == ["shop/a", "shop/b"])
        (tmp_path / "sub" / "b.yaml").unlink()
        await reader.until(lambda snapshot: names(snapshot) == ["shop/a"])


@in_virtual_time
async def test_an_untouched_object_stays_the_same_value(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(f"{config_map('a')}---\n{config_map('b')}")
    async with reading(tmp_path, *MAPS) as reader:
        (tmp_path / "both.yaml").write_text(f"# moved by a line\n{config_map('b', 'new')}---\n{config_map('a')}")
        after = await reader.until(lambda snapshot: config(snapshot, "b") == "new")
        before = reader.values[0].objects(CONFIG_MAP)
        ref = ObjectRef("ConfigMap", "a", "shop")
        assert after.objects(CONFIG_MAP)[ref] is before[ref]


@in_virtual_time
async def test_a_comment_is_no_new_snapshot(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(config_map("a"))
    async with reading(tmp_path, *MAPS) as reader:
        (tmp_path / "a.yaml").write_text(f"# seen?\n{config_map('a')}")
        await asyncio.sleep(0.1)
        (tmp_path / "a.yaml").write_text(config_map("a", "two"))
        await reader.until(lambda snapshot: config(snapshot) == "two")
        assert len(reader.values) == 2


@in_virtual_time
async def test_a_file_that_goes_bad_keeps_what_it_gave(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(f"{config_map('a')}---\n{config_map('b')}")
    async with reading(tmp_path, *MAPS) as reader:
        path.write_text(f"{config_map('a', 'half')}---\n\tbad")
        bad = await reader.until(lambda snapshot: bool(snapshot.faults))
        assert (names(bad), config(bad)) == (["shop/a", "shop/b"], "v")
        assert bad.objects(CONFIG_MAP) is reader.values[0].objects(CONFIG_MAP)
        path.write_text(config_map("a", "good"))
        good = await reader.until(lambda snapshot: not snapshot.faults)
        assert (names(good), config(good)) == (["shop/a"], "good")


@in_virtual_time
async def test_an_object_that_goes_bad_keeps_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(config_map("a"))
    async with reading(tmp_path, *MAPS) as reader:
        path.write_text(f"{wrong_type('a')}---\n{config_map('b')}")
        bad = await reader.until(lambda snapshot: names(snapshot) == ["shop/a", "shop/b"])
        assert config(bad) == "v"
        assert [fault.ref for fault in bad.faults] == [ObjectRef("ConfigMap", "a", "shop")]


@in_virtual_time
async def test_an_object_whose_kind_an_edit_breaks_keeps_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(config_map("a"))
    async with reading(tmp_path, *MAPS) as reader:
        path.write_text(config_map("a", "new").replace("ConfigMap", "ConfgMap"))
        bad = await reader.until(lambda snapshot: bool(snapshot.faults))
        assert config(bad) == "v"
        assert [(fault.ref, fault.field) for fault in bad.faults] == [(file_ref(str(path)), "[0].kind")]


@in_virtual_time
async def test_a_source_that_vanishes_keeps_its_objects(tmp_path: Path) -> None:
    root = tmp_path / "objects"
    root.mkdir()
    (root / "a.yaml").write_text(config_map("a"))
    async with reading(root, *MAPS) as reader:
        root.rename(tmp_path / "away")
        lost = await reader.until(lambda snapshot: bool(snapshot.faults))
        assert config(lost) == "v"
        (tmp_path / "away").rename(root)
        (root / "a.yaml").write_text(config_map("a", "again"))
        await reader.until(lambda snapshot: config(snapshot) == "again" and not snapshot.faults)


@in_virtual_time
async def test_a_source_that_comes_back_is_never_seen_empty(tmp_path: Path) -> None:
    root = tmp_path / "objects"
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "a.yaml").write_text(config_map("a"))
    async with reading(root, *MAPS) as reader:
        for _ in range(2):
            await reader.until(lambda snapshot: bool(snapshot.faults))
            (tmp_path / "away").rename(root)
            back = await reader.until(lambda snapshot: not snapshot.faults)
            assert config(back) == "v"
            root.rename(tmp_path / "away")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    root = tmp_path / "objects"
    (root / "pods" / "shop").mkdir(parents=True)
    (root / ".podgate-lab").touch()
    return root


def write(path: Path, value: Any) -> None:
    (path.parents[2].parent / "incoming").write_text(json.dumps(value))
    (path.parents[2].parent / "incoming").rename(path)


@in_virtual_time
async def test_a_lab_s_status_files_complete_their_objects_and_nothing_waits(lab: Path) -> None:
    path = lab / "pods" / "shop" / "p.json"
    write(path, POD_JSON)
    async with reading(lab, Watch(POD)) as reader:
        ref = ObjectRef("Pod", "p", "shop")
        assert reader.values[0].objects(POD)[ref].addresses == ()
        start = asyncio.get_running_loop().time()
        write(path.with_name("p.status.json"), {"podIP": "10.0.0.1"})
        await reader.until(lambda snapshot: snapshot.objects(POD)[ref].addresses == ("10.0.0.1",))
        path.unlink()
        path.with_name("p.status.json").unlink()
        await reader.until(lambda snapshot: names(snapshot, "Pod") == [])
        assert asyncio.get_running_loop().time() - start < 0.5
        assert reader.values[-1].faults == ()


def test_outside_of_a_lab_a_status_file_is_a_manifest_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(POD_JSON))
    (tmp_path / "p.status.json").write_text(json.dumps({"podIP": "10.0.0.1"}))
    snapshot = load_snapshot(str(tmp_path), (Watch(POD),))
    assert snapshot.objects(POD)[ObjectRef("Pod", "p", "shop")].addresses == ()
    assert [fault.reason for fault in snapshot.faults] == ["NotAnObject"]


FILES = st.sampled_from(["a", "b", "c"])
GIVES = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(FILES, GIVES, min_size=1), max_size=8))
def test_claims_updated_file_by_file_are_what_a_fresh_build_gives(history: list[dict[str, dict[str, str]]]) -> None:
    def objects(values: dict[str, str]) -> dict[ObjectRef, ConfigMap]:
        return {ObjectRef("ConfigMap", name): ConfigMap(data={"v": value}) for name, value in values.items()}

    claims, files = Claims(["ConfigMap"]), dict[str, dict[str, str]]()
    for step in history:
        claims.update({path: objects(values) for path, values in step.items()})
        files |= step
        naive: dict[ObjectRef, ConfigMap] = {}
        lost = set()
        for path in sorted(files):
            for ref, obj in objects(files[path]).items():
                if ref in naive:
                    lost.add((path, ref))
                naive.setdefault(ref, obj)
        assert claims.tables == {"ConfigMap": Table.of(naive)}
        assert {(path, ref) for path, ref, _ in claims.conflicts()} == lost
