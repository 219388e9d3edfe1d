"""Which known word a mistyped one is taken for."""

import pytest

from podgate.model.spelling import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("nonMasqeuradeCIDRs", ' (did you mean "nonMasqueradeCIDRs"?)'),
        ("NONMASQUERADECIDR", ' (did you mean "nonMasqueradeCIDRs"?)'),
        ("masqueradeAll", ""),
        ("", ""),
    ],
)
def test_did_you_mean(word: str, expected: str) -> None:
    assert did_you_mean(word, ("nonMasqueradeCIDRs", "cidrLimit")) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("conntrack.max", "conntrack.maxPerCore"),
        ("conntrack.minimum", "conntrack.min"),
        ("conntrack.mim", "conntrack.min"),
        ("conntrack.minimale", "conntrack.minimal"),
    ],
)
def test_a_word_that_was_cut_or_is_too_long_goes_before_one_with_a_letter_more_in_common(
    word: str, expected: str
) -> None:
    assert nearest(word, ("conntrack.min", "conntrack.minimal", "conntrack.maxPerCore")) == expected


def test_of_words_that_differ_in_case_alone_one_counts_whatever_their_order() -> None:
    assert {nearest("web", known) for known in (("Web", "web", "WEB"), ("web", "WEB", "Web"))} == {"web"}
