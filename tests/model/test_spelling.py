"""Which known word a mistyped one is taken for."""

import pytest

from podgate.model.spelling import did_you_mean


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
