"""Findings: what a doctor saw, one line each, with a verdict and what to do.

Here: the value, and all of them as the answer of a verb. Not here: what is looked at.
Invariant: what cannot be looked at is ``unknown``, never ``ok``; and whoever reads ``bad`` reads what to do.
"""

from collections.abc import Iterable
from typing import Final, Literal

from podgate.joints import Answered
from podgate.model.frozen import Frozen

Verdict = Literal["ok", "off", "unknown", "bad"]

_WIDTH: Final = 8


class Finding(Frozen, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: what, as ``port 988`` or ``masquerade: nodes``.
        verdict: ``off`` for what is not installed, which is nobody's mistake.
        seen: what was seen.
        todo: what to do about it; empty where nothing is to be done.
    """

    name: str
    verdict: Verdict
    seen: str
    todo: str = ""

    def __str__(self) -> str:
        """Show the verdict, and what to do on a line of its own."""
        line = f"{self.verdict:<{_WIDTH}}{self.name}: {self.seen}"
        return f"{line}\n{'':<{_WIDTH}}{self.todo}" if self.todo else line


def answered(findings: Iterable[Finding]) -> Answered:
    """Give all of them for people and for programs; exit code 1 when something is bad."""
    found = tuple(findings)
    rows = [{"name": each.name, "verdict": each.verdict, "seen": each.seen, "todo": each.todo} for each in found]
    return Answered("\n".join(map(str, found)), rows, int(any(each.verdict == "bad" for each in found)))
