"""Selectors inside objects: what an API server takes, what they match, and how a mistake is named."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.masquerade.selecting import Labelled, NotASelector, PodSelection, read_selector

WEB = Labelled({"app": "web", "tier": "front"}, "shop", {"team": "red"})


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": {}}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchLabels": {"other": ""}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db", "web"]}]}, False),
        ({"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist", "values": []}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_selector_of_pods(selector: Any, matches: bool) -> None:
    assert PodSelection(read_selector(selector)).selects(WEB) is matches


def test_both_selectors_must_match_and_a_namespace_always_has_its_name() -> None:
    def selects(pods: Any, namespaces: Any) -> bool:
        return PodSelection(read_selector(pods), read_selector(namespaces)).selects(WEB)

    assert selects({"matchLabels": {"app": "web"}}, {"matchLabels": {"team": "red"}})
    assert not selects({"matchLabels": {"app": "web"}}, {"matchLabels": {"team": "blue"}})
    assert not selects({"matchLabels": {"app": "db"}}, {"matchLabels": {"team": "red"}})
    assert selects({}, {"matchLabels": {"kubernetes.io/metadata.name": "shop"}})


@pytest.mark.parametrize(
    ("selector", "complaint", "parts"),
    [
        ("app=web", "not a selector", ()),
        ({"app": "web"}, "write labels below matchLabels", ("app",)),
        ({"matchLabel": {}}, 'did you mean "matchLabels"', ("matchLabel",)),
        ({"matchLabels": ["app"]}, "not a map of labels", ("matchLabels",)),
        ({"matchLabels": {"app": True}}, "write it in quotes", ("matchLabels", "app")),
        ({"matchLabels": {"-app": "web"}}, "no label's key", ("matchLabels", "-app")),
        ({"matchLabels": {"app": "a b"}}, "no label's value", ("matchLabels", "app")),
        ({"matchLabels": {"app": "a" * 64}}, "no label's value", ("matchLabels", "app")),
        ({"matchExpressions": {"key": "app"}}, "is not a list", ("matchExpressions",)),
        ({"matchExpressions": ["app"]}, "is no expression", ("matchExpressions", 0)),
        ({"matchExpressions": [{"operator": "Exists"}]}, "no label's key", ("matchExpressions", 0)),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            "no operator",
            ("matchExpressions", 0),
        ),
        ({"matchExpressions": [{"key": "a", "operator": ["In"]}]}, "no operator", ("matchExpressions", 0)),
        ({"matchExpressions": [{"key": "a", "operator": {"In": 1}}]}, "no operator", ("matchExpressions", 0)),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "needs values", ("matchExpressions", 0, "values")),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "takes no values",
            ("matchExpressions", 0, "values"),
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]},
            "is not a list",
            ("matchExpressions", 0, "values"),
        ),
    ],
)
def test_what_an_api_server_refuses(selector: Any, complaint: str, parts: tuple[str | int, ...]) -> None:
    with pytest.raises(NotASelector, match=complaint) as caught:
        read_selector(selector)
    assert caught.value.parts == parts


json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(("matchLabels", "matchExpressions", "key", "operator", "values", "x")), inner, max_size=3
        ),
    ),
    max_leaves=8,
)


@given(json)
def test_any_value_is_a_selector_or_named_as_none(value: Any) -> None:
    with contextlib.suppress(NotASelector):
        assert PodSelection(read_selector(value)).selects(WEB) in (True, False)
