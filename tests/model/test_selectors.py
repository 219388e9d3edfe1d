"""Selectors: what the API's texts match, and what is refused.

Here: tables of selector, object and answer. Not here: which selectors features use.
Invariant: each operator has a case that matches, one that does not, and one with the key absent.
"""

from typing import Any

import pytest

from podgate.model.selectors import field_selector, label_selector, matches_fields, matches_labels

WEB = {"app": "web", "example.com/tier": "front", "empty": ""}

LABELS: list[tuple[str, bool]] = [
    ("", True),
    (" ", True),
    ("app=web", True),
    ("app==web", True),
    ("app = web", True),
    ("app=db", False),
    ("other=web", False),
    ("other=", False),
    ("empty=", True),
    ("app!=web", False),
    ("app!=db", True),
    ("other!=web", True),
    ("app in (db, web)", True),
    ("app in (db)", False),
    ("other in (web)", False),
    ("app in(web)", True),
    ("empty in ()", True),
    ("app notin (db,cache)", True),
    ("app notin (db,web)", False),
    ("other notin (web)", True),
    ("app", True),
    ("other", False),
    ("!other", True),
    ("! app", False),
    ("in", False),
    ("example.com/tier=front", True),
    ("app=web,example.com/tier in (front,back),!other", True),
    ("app=web,other", False),
]


@pytest.mark.parametrize(("text", "matches"), LABELS)
def test_label_selectors(text: str, matches: bool) -> None:
    assert matches_labels(label_selector(text), WEB) is matches


@pytest.mark.parametrize(
    "text",
    ["=web", "app=web=db", "app=web,", "app in web", "app in (a b)", "a b", "app=-x", "app > 1", "!", "app in (web"],
)
def test_a_bad_label_selector_is_refused_with_its_part(text: str) -> None:
    with pytest.raises(ValueError, match="not a label selector"):
        label_selector(text)


POD = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": "node-1"}}
FIELDS: list[tuple[str, dict[str, Any], bool]] = [
    ("", POD, True),
    ("metadata.name=web", POD, True),
    ("metadata.name=db", POD, False),
    ("metadata.name!=db,metadata.namespace=shop", POD, True),
    ("spec.nodeName==node-1", POD, True),
    ("spec.nodeName!=node-1", POD, False),
    ("spec.nodeName=node-1", {"metadata": {"name": "x"}}, False),
    ("spec.nodeName=", {"metadata": {"name": "x"}}, True),
    ("spec.nodeName=", {"spec": None}, True),
]


@pytest.mark.parametrize(("text", "obj", "matches"), FIELDS)
def test_field_selectors(text: str, obj: dict[str, Any], matches: bool) -> None:
    assert matches_fields(field_selector(text), obj) is matches


@pytest.mark.parametrize("text", ["spec.image=x", "metadata.name", "metadata.name in (x)", "metadata.name=a=b"])
def test_a_bad_field_selector_is_refused_with_its_part(text: str) -> None:
    with pytest.raises(ValueError, match="not a field selector"):
        field_selector(text)
