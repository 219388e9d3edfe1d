"""Stages of a long command: progress while they run, minutes per stage at the end.

Here: running and timing commands. Not here: which commands (tools/check.py, tools/test.py).
Invariant: a stage that failed is named, and the exit code is not 0.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Stages:
    """Runs commands one after the other and remembers how long each took."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, float, bool]] = []

    def run(self, name: str, command: Sequence[str], *, quiet: bool = False) -> bool:
        """Run one stage; a quiet one shows its output only when it fails. Gives whether it passed."""
        print(f"== {name}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            command,
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
        )
        passed = done.returncode == 0
        if quiet and not passed:
            print(done.stdout, end="")
        self._rows.append((name, time.monotonic() - started, passed))
        return passed

    def report(self) -> int:
        """Print minutes per stage; give the exit code."""
        print("== minutes per stage")
        for name, seconds, passed in self._rows:
            print(f"{seconds / 60:6.2f}  {name}{'' if passed else '  FAILED'}")
        total = sum(row[1] for row in self._rows)
        print(f"{total / 60:6.2f}  in all ({total:.0f} s)", flush=True)
        return 0 if all(row[2] for row in self._rows) else 1


def python(*arguments: str) -> list[str]:
    """Give a command that runs this interpreter."""
    return [sys.executable, *arguments]
