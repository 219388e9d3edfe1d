"""What users write becomes objects, or complaints with file and line."""

from pathlib import Path

import pytest

from podgate.lab.kinds import Kinds, ref_of
from podgate.lab.manifests import Manifests, read_manifests, understood


def given(text: str, file: str = "f.yaml") -> Manifests:
    return understood({file: text.encode()}, Kinds())


def names(manifests: Manifests) -> list[str]:
    return [str(ref_of(obj)) for obj in manifests.objects]


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c}]\n"
APP = """\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: d
spec:
  selector:
    matchLabels:
      app: d
  updateStrategy:
    rollingUpdate:
      maxUnavailable: 1
  template:
    metadata:
      labels:
        app: d
    spec:
      tolerations:
      - operator: Exists
      containers:
      - name: c
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata:\n  name: one\n"
HOST = "apiVersion: lab.podgate.dev/v1\nkind: Host\nmetadata: {name: h}\nspec:\n  addresses: [10.70.0.2]\n"


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(POD, encoding="utf-8")
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}', encoding="utf-8"
    )
    (tmp_path / "c.jsonl").write_text(
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"}}\n'
        '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "s"}}\n',
        encoding="utf-8",
    )
    (tmp_path / "README.md").write_text("no manifest", encoding="utf-8")
    (tmp_path / ".hidden.yaml").write_text("no: manifest", encoding="utf-8")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "x.yaml").write_text("no: manifest", encoding="utf-8")
    found = read_manifests([str(tmp_path)], Kinds())
    assert found.complaints == ()
    assert names(found) == ["Namespace/s", "Node/n", "Pod/default/p", "Node/m"]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    found = read_manifests([str(tmp_path / "missing.yaml")], Kinds())
    assert [str(one) for one in found.complaints] == [
        f"{tmp_path}/missing.yaml: error: cannot be read: No such file or directory"
    ]
    assert found.failed


def test_lists_several_documents_and_defaults() -> None:
    found = given(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: null}, data: null}\n"
        "- {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n"
        "---\n---\n" + POD + "---\n# nothing\n"
    )
    assert found.complaints == ()
    assert names(found) == ["Namespace/b", "ConfigMap/default/a", "Pod/default/p"]
    assert found.objects[1] == {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}
    }  # fmt: skip


def test_items_of_an_apis_own_list_are_of_its_kind() -> None:
    found = given("{apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: a}}]}")
    assert (found.complaints, names(found)) == ((), ["ConfigMap/default/a"])


def test_a_secrets_plain_text_is_folded_into_its_data() -> None:
    found = given("{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: YQ==, b: YQ==}, stringData: {b: bee}}")
    assert found.objects[0]["data"] == {"a": "YQ==", "b": "YmVl"}
    assert "stringData" not in found.objects[0]


def test_a_custom_resource_whose_definition_is_in_the_set() -> None:
    custom = "{apiVersion: podgate.dev/v1alpha1, kind: Policy, metadata: {name: p}}\n"
    definition = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: policies.podgate.dev}\n"
        "spec: {group: podgate.dev, scope: Cluster, names: {kind: Policy, plural: policies}}\n"
    )
    assert "its CustomResourceDefinition" in given(custom).complaints[0].message
    found = given(custom + "---\n" + definition)
    assert found.complaints == ()
    assert names(found) == ["CustomResourceDefinition/policies.podgate.dev", "Policy/p"]


ERRORS = [
    ("syntax", "a: [\n", 2, "not YAML"),
    ("a list", "- a\n", 1, "an object is a map, not list"),
    ("no kind", "apiVersion: v1\nmetadata: {name: a}\n", 1, "apiVersion and kind"),
    ("no name", "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\nspec: {containers: [{name: c}]}\n", 3, "no name"),
    ("a made-up name", POD.replace("name: p", "generateName: p"), 3, "instead of generateName"),
    ("a path as a name", POD.replace("name: p", "name: ../p"), 3, 'Invalid value: "../p"'),
    ("a Pod's name with capitals", POD.replace("name: p", "name: A_b"), 3, 'Invalid value: "A_b": a lowercase RFC'),
    ("a label longer than 63", POD.replace("name: p", f"name: p, namespace: {'n' * 64}"), 3, "at most 63"),
    ("a subdomain longer than 253", POD.replace("name: p", f"name: {'n' * 254}"), 3, "at most 253"),
    ("a namespace with a dot", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n", 3, "RFC 1123 label"),
    ("a name that the store uses", POD.replace("name: p", "name: p.status"), 3, "choose another name"),
    ("a path as a namespace", POD.replace("name: p", "name: p, namespace: a/b"), 3, "RFC 1123 label"),
    ("an unknown kind", POD.replace("kind: Pod", "kind: Pdo"), 2, "did you mean Pod?"),
    ("a wrong group", APP.replace("apps/v1", "v1"), 2, "DaemonSet is of apps, not of apiVersion 'v1'"),
    ("a wrong type", APP.replace("maxUnavailable: 1", "maxUnavailable: [1]"), 11, "maxUnavailable"),
    ("a bad number", APP.replace("maxUnavailable: 1", "maxUnavailable: one"), 11, "neither a number nor a percentage"),
    ("an update that cannot move", APP.replace("maxUnavailable: 1", "maxUnavailable: 0%"), 10, "both 0"),
    ("labels that do not match", APP.replace("        app: d", "        app: e"), 14, "do not match spec.selector"),
    ("an empty selector", APP.replace("    matchLabels:\n      app: d\n", "    {}\n"), 6, "select every Pod"),
    ("a bad toleration", APP.replace("- operator: Exists", "- operator: exists"), 18, "not Exists or Equal"),
    ("a toleration without a key", APP.replace("- operator: Exists", "- value: x"), 18, "needs operator: Exists"),
    ("a bad effect", APP.replace("- operator: Exists", "- {key: a, effect: None}"), 18, "'None' is not one of"),
    ("a number as a label", POD.replace("{name: p}", "{name: p, labels: {a: 1}}"), 3, "got a whole number; put text"),
    ("a boolean by accident", NODE.replace("one", "n"), 4, "put text in quotes"),
    ("no containers", POD.replace("[{name: c}]", "[]"), 5, "spec.containers"),
    ("a container without a name", POD.replace("{name: c}", "{}"), 5, "name"),
    ("a bad container", APP.replace("name: c", "name: c\n        command: sleep"), 21, "expected a list, got text"),
    ("a bad policy", POD + "  restartPolicy: Sometimes\n", 6, "Sometimes"),
    ("a bad address", POD.replace("{name: p}", "{name: p, annotations:\n {lab.podgate.dev/ip: 10.0.0}}"), 4, "10.0.0"),
    ("a bad range", NODE + "spec:\n  podCIDRs:\n  - 10.0.0.0/24\n  - 10.0.0.1/24\n", 8, "has host bits set"),
    ("a bad node address", NODE + "status:\n  addresses:\n  - {type: InternalIP, address: x}\n", 7, "'x'"),
    ("a bad prefix", NODE + "  annotations:\n    lab.podgate.dev/prefix-length: x\n", 5, "prefix-length"),
    ("a bad taint", NODE + "spec: {taints:\n  [{key: a, effect: Evict}]}\n", 6, "'Evict' is not one of"),
    ("a host without addresses", HOST.replace("[10.70.0.2]", "[]"), 5, "spec.addresses"),
    ("a bad route", HOST + "  routes:\n  - {to: x, via: 10.0.0.1}\n", 7, "'x' is not a range"),
    ("a number in a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: 1\n", 4, "data"),
    ("a bad base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\ndata:\n  a: '!'\n", 4, "base64"),
    ("an item of a List", "kind: List\nitems:\n- a\n- {kind: Pod}\n", 3, "an object is a map, not str"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "says"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors_have_a_line(text: str, line: int, says: str) -> None:
    found = given(text)
    first = found.complaints[0]
    assert found.failed
    assert (first.line, says in first.message) == (line, True), str(first)
    assert str(first).startswith(f"f.yaml:{line}: error: ")


WARNINGS = [
    ("a duplicate key", POD + "spec:\n  containers: [{name: d}]\n", 6, "given twice"),
    ("an object given twice", POD + "---\n" + POD, 9, "Pod/default/p is given before: this one counts"),
    ("a namespace for a Node", NODE + "  namespace: x\n", 5, "in no namespace"),
    ("a kind that nothing acts on", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n", 2, "runs nothing for it"),
]


@pytest.mark.parametrize(("text", "line", "says"), [row[1:] for row in WARNINGS], ids=[row[0] for row in WARNINGS])
def test_warnings_let_it_pass(text: str, line: int, says: str) -> None:
    found = given(text)
    (complaint,) = found.complaints
    assert not found.failed
    assert len(found.objects) == 1
    assert (complaint.line, says in complaint.message) == (line, True), str(complaint)


def test_one_bad_object_hides_no_other() -> None:
    found = given(POD.replace("name: p", "name: /") + "---\n" + APP.replace("apps/v1", "v1") + "---\n" + NODE)
    assert [complaint.line for complaint in found.complaints] == [3, 8]
    assert names(found) == ["Node/one"]


def test_the_lines_of_json() -> None:
    item = '{"apiVersion": "v1", "kind": "Pdo",\n"metadata": {"name": "p"}}'
    text = '{"apiVersion": "v1", "kind": "List", "items": [\n' + item + "]}"
    assert [str(one) for one in given(text, "f.json").complaints] == [
        "f.json:2: error: Pdo: kind: the kind Pdo of apiVersion 'v1' is not known; did you mean Pod?"
    ]
