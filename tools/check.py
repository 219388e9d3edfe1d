"""``./dev check``: format, lint, types, layers.

Here: the four checks as stages. Not here: tests.
Invariant: it changes no file.
"""

import sys
from pathlib import Path

from tools.stages import Stages, python

BIN = Path(sys.executable).parent


def check(stages: Stages) -> None:
    """Run the four checks."""
    stages.run("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."])
    stages.run("lint", [str(BIN / "ruff"), "check", "--quiet", "."])
    stages.run("types", python("-m", "mypy", "--no-error-summary"))
    stages.run("layers", [str(BIN / "lint-imports"), "--no-cache"], quiet=True)


if __name__ == "__main__":
    every = Stages()
    check(every)
    sys.exit(every.report())
