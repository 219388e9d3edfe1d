"""The fuzzer itself: a short search, and that it would find something."""

import pytest

from podgate.features.metadata.filter import Decider, Filter
from tests.fuzz import metadata_filter


def test_a_short_search_finds_nothing_and_reaches_much() -> None:
    kinds, places = metadata_filter.search(1_500, seed=1)
    assert kinds > 100
    assert places > 100


def test_a_weaker_filter_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit forwards what should be denied: the search must see it at once."""
    monkeypatch.setattr(metadata_filter, "GCE", Decider(Filter(audit=True)))
    with pytest.raises(AssertionError, match="kube-env"):
        metadata_filter.search(0, seed=1)
