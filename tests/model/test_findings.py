"""Findings for people and for programs, and the exit code."""

import pytest

from podgate.model.findings import Finding, Verdict, exit_code, findings_json


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("port 988", "ok", "process 1 (x)"), "ok      port 988: process 1 (x)"),
        (Finding("rules", "bad", "missing", "start it"), "bad     rules: missing\n        start it"),
        (Finding("denials", "unknown", "no page"), "unknown denials: no page"),
    ],
)
def test_a_finding_is_a_line_and_what_to_do_another(finding: Finding, text: str) -> None:
    assert str(finding) == text


def test_programs_get_every_field() -> None:
    row = {"name": "rules", "verdict": "bad", "seen": "missing", "todo": "start it"}
    assert findings_json([Finding("rules", "bad", "missing", "start it")]) == [row]


@pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("off", 0), ("unknown", 0), ("bad", 1)])
def test_only_what_is_bad_fails(verdict: Verdict, code: int) -> None:
    assert exit_code([Finding("a", "ok", ""), Finding("b", verdict, "")]) == code
