"""What a finding looks like, and which make the exit code 1."""

import pytest

from podgate.admin.doctor.findings import answered
from podgate.model.findings import Finding, Verdict


def test_what_to_do_stands_below_what_was_seen() -> None:
    found = answered([Finding("API", "ok", "it answers"), Finding("nodes", "bad", "n1 has no agent", "run one there")])
    assert found.text.splitlines() == [
        "ok      API: it answers",
        "bad     nodes: n1 has no agent",
        "        run one there",
    ]
    assert found.data[1] == {"name": "nodes", "verdict": "bad", "seen": "n1 has no agent", "todo": "run one there"}


@pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("off", 0), ("unknown", 0), ("bad", 1)])
def test_bad_alone_is_a_finding(verdict: Verdict, code: int) -> None:
    assert answered([Finding("x", "ok", "y"), Finding("x", verdict, "y")]).code == code
