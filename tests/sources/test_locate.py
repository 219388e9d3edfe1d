"""Locate: messages name the file and line of what they are about.

Here: problems about files, objects, and texts in objects, each with the line it must print. Not here: who prints.
Invariant: each expected line is checked against real text, by the number of its line.
"""

import json
from pathlib import Path

import pytest

from podgate.model.documents import parse
from podgate.model.files import FileContent, Missing, Present
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.problems import Problem
from podgate.model.snapshot import Watch
from podgate.sources.locate import Locator
from podgate.sources.manifests import SnapshotReader

CONFIG = b"""# first
nonMasqueradeCIDRs:
  - 10.0.0.0/8
  - 10.0.0.1/8
masqLinkLocal: maybe
"""
LITERAL = b"""apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: agent
  namespace: kube-system
data:
  config: |
    nonMasqueradeCIDRs:
      - 10.0.0.0/8
      - 10.0.0.1/8
  other.yaml: "a: 1\\nb: [1]\\n"
  tab: |-  # a comment
    a:
    \t- b
"""
OBJECT = {"apiVersion": "v1", "metadata": {"name": "x"}, "kind": "ConfigMap", "data": {"config": "a:\n  - 1\n"}}
NODE_OBJECT = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
LIST = json.dumps({"kind": "List", "items": [NODE_OBJECT, OBJECT]}, indent=1).encode()
MANY = b"\n".join(json.dumps({**OBJECT, "metadata": {"name": f"many-{number}"}}).encode() for number in range(9))
BROKEN = b"apiVersion: v1\nkind: Node\nmetadata: {name: broken}\nspec:\n  podCIDR: [1]\n"

FILES: dict[str, FileContent] = {"/etc/config/a": Present(CONFIG), "/etc/config/none": Missing()}
MANIFESTS = {
    "m/b.yaml": LITERAL,
    "m/broken.yaml": BROKEN,
    "m/large.yaml": MANY.replace(b"many", b"large").replace(b"\n", b"\n---\n") + b"\n# more" * 37_449,
    "m/less.yaml": MANY.replace(b"many", b"less").replace(b"\n", b"\n---\n") + b"\n# more" * 37_000,
    "m/list.json": LIST,
    "m/many.jsonl": b"\n" + MANY,
    "m/z.yaml": LITERAL,
    "m/bad.yaml": b"a: 1\n---\n\tb\n",
    "m/wrong.yaml": b"---\na: 1\n---\nkind: Pod\nmetadata:\n  uid: x\n",
}
LISTED = ObjectRef("ConfigMap", "x", "default")
OTHER = 'data["other.yaml"].b[0]'
AGENT = ObjectRef("ConfigMap", "agent", "kube-system")
INNER_TAB = str(parse(b"a:\n\t- b\n").faults[0])
OUTER_TAB = str(parse(b"a: 1\n---\n\tb\n").faults[0])


@pytest.fixture
def manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotReader:
    """Write and read the manifests below the working directory, so that paths in messages are short."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    for path, data in MANIFESTS.items():
        (tmp_path / path).write_bytes(data)
    return read("m")


def read(path: str) -> SnapshotReader:
    reader = SnapshotReader(path, (Watch(CONFIG_MAP), Watch(NODE)))
    reader.load()
    return reader


def line_of(text: bytes, part: bytes) -> int:
    return next(number for number, line in enumerate(text.split(b"\n"), 1) if part in line)


CASES: list[tuple[Problem, str]] = [
    (
        Problem(file_ref("/etc/config/a"), "error", "R", "nonMasqueradeCIDRs[1]", "bad"),
        "/etc/config/a:4: error: nonMasqueradeCIDRs[1]: bad",
    ),
    (Problem(file_ref("/etc/config/a"), "warning", "R", "", "odd"), "/etc/config/a:2: warning: odd"),
    (Problem(file_ref("/etc/config/none"), "warning", "R", "", "gone"), "/etc/config/none: warning: gone"),
    (Problem(file_ref("/etc/other"), "error", "R", "a.b", "gone"), "/etc/other: error: a.b: gone"),
    (
        Problem(file_ref("m/wrong.yaml"), "error", "R", "[1].metadata.name", "no name"),
        "m/wrong.yaml:5: error: metadata.name: no name",
    ),
    (
        Problem(file_ref("m/bad.yaml"), "error", "Syntax", "", OUTER_TAB),
        f"m/bad.yaml:3: error: {OUTER_TAB.split(': ', 1)[1]}",
    ),
    (
        Problem(AGENT, "error", "R", "data.config.nonMasqueradeCIDRs[1]", "bad"),
        f"m/b.yaml:{line_of(LITERAL, b'10.0.0.1/8')}: error: {AGENT}: data.config.nonMasqueradeCIDRs[1]: bad",
    ),
    (
        Problem(AGENT, "error", "R", OTHER, "bad"),
        f'm/b.yaml:{line_of(LITERAL, b"other.yaml")} (line 2 of data["other.yaml"]): error: {AGENT}: {OTHER}: bad',
    ),
    (
        Problem(AGENT, "error", "Syntax", "data.tab", INNER_TAB),
        f"m/b.yaml:{line_of(LITERAL, b'- b')}: error: {AGENT}: data.tab: {INNER_TAB.split(': ', 1)[1]}",
    ),
    (Problem(AGENT, "warning", "R", "data.config", "empty"), f"m/b.yaml:11: warning: {AGENT}: data.config: empty"),
    (Problem(AGENT, "warning", "R", "data", "no key"), f"m/b.yaml:10: warning: {AGENT}: data: no key"),
    (Problem(AGENT, "warning", "R", "", "odd"), f"m/b.yaml:5: warning: {AGENT}: odd"),
    (
        Problem(LISTED, "error", "R", "data.config.a[0]", "bad"),
        f"m/list.json:{line_of(LIST, b'config')} (line 2 of data.config): error: {LISTED}: data.config.a[0]: bad",
    ),
    (
        Problem(ObjectRef("ConfigMap", "many-7", "default"), "error", "R", "data.config.a[0]", "bad"),
        "m/many.jsonl:9 (line 2 of data.config): error: ConfigMap/default/many-7: data.config.a[0]: bad",
    ),
    (
        Problem(ObjectRef("ConfigMap", "less-7", "default"), "error", "R", "data", "bad"),
        "m/less.yaml:15: error: ConfigMap/default/less-7: data: bad",
    ),
    # Reading a text of this size again, a quarter of a mebibyte, would hold up everything else.
    (
        Problem(ObjectRef("ConfigMap", "large-7", "default"), "error", "R", "data", "bad"),
        "m/large.yaml: error: ConfigMap/default/large-7: data: bad",
    ),
    # What it was before still counts, and it stands where it stands now.
    (
        Problem(ObjectRef("Node", "broken"), "error", "R", "spec.podCIDR", "bad"),
        "m/broken.yaml:5: error: Node/broken: spec.podCIDR: bad",
    ),
    (
        Problem(ObjectRef("Node", "unknown"), "warning", "R", "spec", "no such node"),
        "Node/unknown: warning: spec: no such node",
    ),
]


@pytest.mark.parametrize(("problem", "expected"), CASES)
def test_a_problem_names_its_line(manifests: SnapshotReader, problem: Problem, expected: str) -> None:
    assert Locator(manifests).describe(problem, FILES) == expected


@pytest.mark.parametrize(
    ("ref", "field", "expected"),
    [
        (file_ref("/etc/config/a"), "nonMasqueradeCIDRs[0]", "/etc/config/a:3"),
        (file_ref("/etc/config/a"), "unknown.field", "/etc/config/a:2"),
        (file_ref("/etc/config/none"), "", "/etc/config/none"),
        (AGENT, "data.config.nonMasqueradeCIDRs[1]", f"{AGENT}:data.config.nonMasqueradeCIDRs[1]"),
        (AGENT, "", str(AGENT)),
    ],
)
def test_where(manifests: SnapshotReader, ref: ObjectRef, field: str, expected: str) -> None:
    assert Locator(manifests).where(ref, field, FILES) == expected


def test_without_manifests_objects_have_no_line() -> None:
    locator = Locator()
    assert locator.describe(Problem(AGENT, "error", "R", "data", "bad"), {}) == f"{AGENT}: error: data: bad"
    assert locator.line(AGENT, "data", {}) is None
    assert locator.line(file_ref("/etc/config/a"), "masqLinkLocal", FILES) == 5


def test_manifests_that_changed_have_the_lines_that_they_have_now(manifests: SnapshotReader) -> None:
    locator = Locator(manifests)
    problem = Problem(AGENT, "warning", "R", "data", "no key")
    assert locator.describe(problem, {}).startswith("m/b.yaml:10: ")
    Path("m/b.yaml").write_bytes(b"# one more line\n" + LITERAL)
    manifests.load()
    assert locator.describe(problem, {}).startswith("m/b.yaml:11: ")


def test_a_text_that_cannot_be_read_to_its_end_hides_where_objects_stand(manifests: SnapshotReader) -> None:
    Path("m/b.yaml").write_bytes(b"# one more line\n" + LITERAL + b"\t")
    Path("m/z.yaml").unlink()
    manifests.load()
    problem = Problem(AGENT, "warning", "R", "data", "no key")
    assert Locator(manifests).describe(problem, {}) == f"{AGENT}: warning: data: no key"


def test_objects_as_they_are_written_keep_what_no_kind_has(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("kind: Service\nmetadata: {name: web, namespace: shop}\nspec: {externalIP: [192.0.2.1]}\n---\n[]\n")
    service = {
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"externalIP": ["192.0.2.1"]},
    }
    assert Locator(read(str(file))).written() == {ObjectRef("Service", "web", "shop"): service}
    assert Locator().written() == {}
