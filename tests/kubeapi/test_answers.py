"""Refusals: whatever comes with a code of 400 and above says what it can."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.kubeapi.answers import Refusal, refusal


def status(**fields: object) -> bytes:
    return json.dumps({"kind": "Status", **fields}).encode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(403, status(reason="Forbidden", message="no")), Refusal(403, "Forbidden", "no")),
        (refusal(500, status(code=410, reason="Expired")), Refusal(410, "Expired")),
        (refusal(429, status(details={"retryAfterSeconds": 3})), Refusal(429, retry_after=3)),
        (refusal(429, status(details={"retryAfterSeconds": 3}), "7"), Refusal(429, retry_after=7)),
        (refusal(429, b"", "Wed, 21 Oct 2026 07:28:00 GMT"), Refusal(429)),
        (refusal(502, b"\n<html>Bad Gateway</html>\n more"), Refusal(502, "", "<html>Bad Gateway</html>")),
        (refusal(502, b'{"kind": 7}'), Refusal(502, "", '{"kind": 7}')),
        (
            refusal(409, status(details={"causes": [{"message": 'conflict with "x"', "field": ".a"}]})),
            Refusal(409, causes=((".a", 'conflict with "x"'),)),
        ),
    ],
)
def test_what_is_read(answer: Refusal, expected: Refusal) -> None:
    assert answer == expected


@pytest.mark.parametrize(
    ("code", "reason", "expired"), [(410, "", True), (500, "Expired", True), (404, "NotFound", False)]
)
def test_what_has_expired(code: int, reason: str, expired: bool) -> None:
    assert Refusal(code, reason).expired is expired


def test_how_it_prints() -> None:
    assert str(Refusal(403, "Forbidden", "not you")) == "403 Forbidden: not you"
    assert str(Refusal(502)) == "502"
    assert len(refusal(500, b"x" * 10_000).message) == 300


@given(st.integers(400, 599), st.binary(max_size=60), st.text(max_size=10))
def test_no_body_raises(code: int, body: bytes, retry_after: str) -> None:
    assert refusal(code, body, retry_after).code >= 0
