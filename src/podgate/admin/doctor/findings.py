"""Findings as the answer of a verb. Pure.

Here: their two forms and the exit code. Not here: the value (model/findings.py), what is looked at.
Invariant: both forms say the same.
"""

from collections.abc import Iterable

from podgate.joints import Answered
from podgate.model.findings import Finding, exit_code, findings_json


def answered(findings: Iterable[Finding]) -> Answered:
    """Give all of them for people and for programs; exit code 1 when something is bad."""
    found = tuple(findings)
    return Answered("\n".join(map(str, found)), findings_json(found), exit_code(found))
