"""Commands of a documentation page: read out of its ``console`` blocks and run in order.

Here: the reading and the comparison of outputs. Not here: which pages, and where their commands run.
Invariant: what a page shows is what its commands print, but for blank lines, runs of spaces, and ``…``: alone on a line
it stands for any lines, inside a line for any text.
"""

import re
from pathlib import Path
from typing import NamedTuple


class Command(NamedTuple):
    """A command as shown, the line of the page, and the lines that it prints; no lines: whatever it prints."""

    line: int
    text: str
    prints: tuple[str, ...]

    def shown_by(self, output: str) -> bool:
        """Tell whether an output is what the page shows."""
        if not self.prints:
            return True
        pattern = "".join(
            r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\n"
            for line in self.prints
        )
        return re.fullmatch(pattern, "".join(f"{line}\n" for line in _plain(output))) is not None


def _plain(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def commands(page: Path) -> list[Command]:
    """Give the commands of a page's ``console`` blocks, in order."""
    found: list[Command] = []
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append(Command(number, line.removeprefix("$ "), ()))
        elif inside and line.strip():
            last = found.pop()
            found.append(last._replace(prints=(*last.prints, *_plain(line))))
    return found
