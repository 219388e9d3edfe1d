"""Objects: no text of a file raises, and places lead back to their objects.

Here: properties over broken and over well-formed texts. Not here: single formats and faults (test_manifests.py).
Invariant: what is generated is close enough to manifests to get past the first check now and then.
"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.model.documents import locate
from podgate.model.fieldpath import field_path, split_path
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.snapshot import Watch
from podgate.sources.objects import Wanted, read_objects

WANTED = Wanted([Watch(CONFIG_MAP, "", "!skip"), Watch(NODE), Watch(POD, field_selector="spec.nodeName!=other")])
FILES = st.sampled_from(["m.yaml", "m.json", "m.jsonl", "m"])

KEYS = st.sampled_from(
    ["apiVersion", "kind", "metadata", "name", "namespace", "labels", "data", "spec", "status", "items", "podIPs", "x"]
)
LEAVES = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["v1", "ConfigMap", "Pod", "Node", "List", ""])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=15
)
OBJECTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.sampled_from(["ConfigMap", "Pod", "Node", "List", "ConfigMapList"]),
        "metadata": st.fixed_dictionaries({"name": st.sampled_from(["a", "b"])}) | VALUES,
    },
    optional={"spec": VALUES, "data": VALUES, "status": VALUES, "items": st.lists(VALUES, max_size=3)},
)


@settings(max_examples=200, deadline=None)
@given(file=FILES, value=OBJECTS | VALUES, junk=st.binary(max_size=4), at=st.integers(0, 200), status=VALUES)
def test_no_text_raises_and_each_problem_names_a_field(
    file: str, value: Any, junk: bytes, at: int, status: Any
) -> None:
    text = json.dumps(value).encode()
    read = read_objects(file, text[:at] + junk + text[at:], WANTED, status)
    for problem in read.problems:
        split_path(problem.field)
        assert problem.message
    assert read.places.keys() == read.objects.keys() | read.broken


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4), max_size=3))
def test_places_lead_to_their_objects(lists: list[list[str]]) -> None:
    def config_map(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    documents = [{"kind": "List", "apiVersion": "v1", "items": [config_map(name) for name in names]} for names in lists]
    text = "\n---\n".join(json.dumps(document, indent=1) for document in documents).encode()
    read = read_objects("m.yaml", text, WANTED)
    assert {ref.name for ref in read.objects} == {name for names in lists for name in names}
    for ref, place in read.places.items():
        line = locate(text, place.document, field_path((*place.parts, "metadata", "name")))
        assert line is not None
        assert f'"name": "{ref.name}"' in text.decode().splitlines()[line - 1]
