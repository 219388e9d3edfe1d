"""Findings for people and for programs, and the exit code."""

import pytest

from podgate.commandline.findings import Finding, Verdict, answered

FOUND = answered([Finding("API", "ok", "it answers"), Finding("nodes", "bad", "n1 has no agent", "run one there")])


def test_a_finding_is_a_line_and_what_to_do_another() -> None:
    assert FOUND.text.splitlines() == [
        "ok      API: it answers",
        "bad     nodes: n1 has no agent",
        "        run one there",
    ]


def test_programs_get_every_field() -> None:
    assert FOUND.data == [
        {"name": "API", "verdict": "ok", "seen": "it answers", "todo": ""},
        {"name": "nodes", "verdict": "bad", "seen": "n1 has no agent", "todo": "run one there"},
    ]


@pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("off", 0), ("unknown", 0), ("bad", 1)])
def test_bad_alone_makes_the_exit_code_1(verdict: Verdict, code: int) -> None:
    assert answered([Finding("x", "ok", "y"), Finding("x", verdict, "y")]).code == code
