"""What plain scalars mean; the table of them all is in test_documents.py."""

import pytest

from podgate.model.scalars import NotJson, Scalar, key_text, resolve


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "+.Inf", "-.INF"])
def test_what_json_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(NotJson, match=r"(?i)nan|inf"):
        resolve(text)


@pytest.mark.parametrize("text", ["nan", "inf", ".Nan", "..inf", "--1", "1__", "0b2", "0o8", "0xg", "1e", "٣"])
def test_what_only_looks_like_a_number_is_text(text: str) -> None:
    assert resolve(text) == (1 if text == "1__" else text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("-9223372036854775809", -float(2**63)),
     ("18446744073709551616", float(2**64)), ("0xffffffffffffffff", 2**64 - 1),
     ("0x10000000000000000", "0x10000000000000000")],
)  # fmt: skip
def test_whole_numbers_have_64_bits(text: str, value: Scalar) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize(
    ("value", "key"),
    [("a", "a"), ("", ""), (True, "true"), (False, "false"), (80, "80"), (8.0, "8"), (1.5, "1.5"), (None, None)],
)
def test_keys_are_text(value: Scalar, key: str | None) -> None:
    assert key_text(value) == key
