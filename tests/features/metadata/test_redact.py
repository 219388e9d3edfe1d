"""JSON answers without a secret field."""

import json

import pytest

from podgate.features.metadata.redact import MAX_ANSWER, without_field


def test_the_field_is_taken_out_at_any_depth_and_in_any_case() -> None:
    body = json.dumps({"uuid": "x", "admin_pass": "s", "meta": [{"Admin_Pass": "s", "n": 1.5}], "é": None}).encode()
    left = without_field(body, "admin_pass")
    assert left is not None
    assert json.loads(left) == {"uuid": "x", "meta": [{"n": 1.5}], "é": None}


@pytest.mark.parametrize("body", [b"", b"{", b"<html>", b'{"a": "\xff"}', b"[" * 100_000, b" " * (MAX_ANSWER + 1)])
def test_what_is_not_understood_is_not_passed_on(body: bytes) -> None:
    assert without_field(body, "admin_pass") is None


def test_a_field_spelled_with_escapes_is_found() -> None:
    assert without_field(rb'{"admin\u005fpass": "s"}', "admin_pass") == b"{}"


def test_of_two_fields_of_one_name_none_is_left() -> None:
    assert without_field(b'{"admin_pass": 1, "admin_pass": 2}', "admin_pass") == b"{}"
