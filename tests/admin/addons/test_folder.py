"""Which objects of a folder are add-ons, and what is wrong with it."""

import pytest

from podgate.admin.addons.folder import MODE_LABEL, Folder, understood
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable

GOOD = f"""\
apiVersion: v1
kind: ServiceAccount
metadata: {{name: metadata-proxy, namespace: kube-system, labels: {{{MODE_LABEL}: Reconcile}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings, labels: {{{MODE_LABEL}: EnsureExists}}, annotations: null}}
data: {{a: b}}
status: {{gone: true}}
"""
LIST = f"""\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {{name: one, labels: {{{MODE_LABEL}: Reconcile}}}}
- apiVersion: v1
  kind: ConfigMap
  metadata: {{name: two}}
"""


def read(*texts: str, before: Folder | None = None, **more: object) -> Folder:
    contents = {f"d/{number}.yaml": Present(text.encode()) for number, text in enumerate(texts)}
    return understood(contents, before or Folder(), **more)  # type: ignore[arg-type]


def names(folder: Folder) -> list[str]:
    return [f"{addon.mode} {addon.kind} {addon.name}" for addon in folder.addons]


def test_labels_decide_and_nulls_and_status_stay_out() -> None:
    folder = read(GOOD)
    assert (names(folder), folder.complaints) == (
        ["Reconcile ServiceAccount metadata-proxy", "EnsureExists ConfigMap settings"],
        (),
    )
    settings = folder.addons[1]
    assert settings.place == "d/0.yaml:5"
    assert "status" not in settings.body
    assert "annotations" not in settings.body["metadata"]


def test_objects_without_a_label_are_left_alone_unless_they_are_given_a_mode() -> None:
    folder = read(LIST)
    assert names(folder) == ["Reconcile ConfigMap one"]
    (two,) = folder.unlabelled
    assert str(two) == f"d/0.yaml:7: ConfigMap two has no label {MODE_LABEL}"
    given = read(LIST, mode="EnsureExists")
    assert given.unlabelled == ()
    assert names(given) == ["Reconcile ConfigMap one", "EnsureExists ConfigMap two"]
    assert given.addons[1].body["metadata"]["labels"] == {MODE_LABEL: "EnsureExists"}


def test_items_of_a_list_of_one_kind_need_not_name_it() -> None:
    folder = read(
        LIST.replace("kind: List", "kind: ConfigMapList").replace("- apiVersion: v1\n  kind: ConfigMap\n ", "-")
    )
    assert (names(folder), folder.complaints) == (["Reconcile ConfigMap one"], ())
    assert (folder.addons[0].place, folder.unlabelled[0].place) == ("d/0.yaml:4", "d/0.yaml:5")
    assert folder.addons[0].body["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "d/0.yaml:2: not YAML"),
        (LIST.replace("name: two", "nam: two"), "d/0.yaml:9: metadata: an object needs metadata.name"),
        ("just text", "d/0.yaml:1: an object is a map, not str"),
        ("kind: ConfigMap\nmetadata: {name: a}", "apiVersion: an object needs apiVersion"),
        ("apiVersion: v1\nkind: 3\nmetadata: {name: a}", "d/0.yaml:2: kind: an object needs kind"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a}", "metadata: an object needs metadata.name"),
        (GOOD.replace("Reconcile", "Reconcil"), 'd/0.yaml:3: metadata.labels: addonmanager.kubernetes.io/mode: "Rec'),
        (GOOD.replace("Reconcile", "reconcile"), '(did you mean "Reconcile"?)'),
        (GOOD.replace("Reconcile", "true"), "labels are a map of texts"),
        (GOOD.replace("name: metadata-proxy", "name: .."), "'..' is no name that an object can have"),
        (GOOD.replace("kube-system", "a/b"), "metadata.namespace: 'a/b' is no name"),
        (GOOD.replace("v1", "../v1"), 'apiVersion: "../v1" is no version'),
        (f"{GOOD}---\n{GOOD}", "ServiceAccount metadata-proxy stands at d/0.yaml:1 too"),
        ("", "--allow-empty"),
        ("# nothing", "--allow-empty"),
    ],
)
def test_a_mistake_has_its_line_and_keeps_the_folder_from_being_whole(text: str, complaint: str) -> None:
    found = "\n".join(read(text).complaints)
    assert complaint in found


def test_an_empty_folder_can_be_meant() -> None:
    assert read("# nothing", may_be_empty=True) == Folder(by_file={"d/0.yaml": ()})


@pytest.mark.parametrize("now", [Present(b"a: ["), Unreadable("no permission"), Missing(), Present(b"\x00")])
def test_a_file_that_went_bad_keeps_its_objects(now: FileContent) -> None:
    contents: dict[str, FileContent] = {"d": Directory(("a.yaml",)), "d/a.yaml": Present(GOOD.encode())}
    before = understood(contents, Folder())
    after = understood({**contents, "d/a.yaml": now}, before)
    assert names(after) == names(before)
    assert len(after.complaints) == 1


def test_a_file_that_is_gone_takes_its_objects_with_it() -> None:
    before = read(GOOD, LIST)
    assert names(read(GOOD, before=before)) == names(before)[:2]


def test_one_bad_object_stops_no_other_file() -> None:
    assert names(read("apiVersion: v1", GOOD)) == names(read(GOOD))
