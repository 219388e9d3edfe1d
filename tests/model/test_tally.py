"""How many of what."""

import pytest

from podgate.model.tally import tally


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"chain": 3, "rule": 1}, "3 chains, 1 rule"),
        ({"chain": 0, "new element": 30_000}, "30000 new elements"),
        ({"chain": 0}, "nothing"),
        ({}, "nothing"),
    ],
)
def test_counts_in_words(counts: dict[str, int], words: str) -> None:
    assert tally(counts) == words
