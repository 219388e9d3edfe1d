"""What walk-throughs share: a lab, commands in it, steps that are seen or not.

Here: running ``podgate lab`` as a user does, and printing. Not here: any feature.
Invariant: every command that is shown is the command that ran.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from podgate.lab.places import places
from tools.stages import ROOT

PODGATE: Final = Path(sys.executable).parent / "podgate"
_BOLD, _GREEN, _PLAIN = ("\x1b[1m", "\x1b[32m", "\x1b[0m") if sys.stdout.isatty() else ("", "", "")


class StepNotSeenError(Exception):
    """What a step promises did not happen; the message says what was seen instead."""


class Walkthrough:
    """A lab for the time of a walk-through; with a kubeconfig it joins that cluster.

    ``look`` are verbs of the lab to look around with, once it is kept.
    """

    def __init__(self, name: str, look: Sequence[str], *, keep: bool, kubeconfig: Path | None = None) -> None:
        self.name = name
        self._look, self._keep = look, keep
        self._kubeconfig = kubeconfig

    def __enter__(self) -> Self:
        """Make room: a lab that an earlier walk-through kept is taken down."""
        subprocess.run([PODGATE, "lab", "down", "--name", self.name], capture_output=True, check=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the lab down, or say how to look around."""
        if not self._keep:
            subprocess.run([PODGATE, "lab", "down", "--name", self.name], capture_output=True, check=False)
            return
        lab = f".venv/bin/podgate lab {{}} --name {self.name}"
        print("\nthe lab is still up; look around with:")
        for verb in self._look:
            first, _, rest = verb.partition(" ")
            print(f"  {lab.format(first)} {rest}".rstrip())
        print(f"and take it down with:\n  {lab.format('down')}")

    def step(self, number: int, text: str) -> None:
        """Begin a step."""
        print(f"\n{_BOLD}({number}) {text}{_PLAIN}", flush=True)

    def seen(self, what: str, expected: object, actual: object) -> None:
        """Say what was seen; raises StepNotSeenError when it is something else."""
        if actual != expected:
            raise StepNotSeenError(f"{what}: expected {expected}, got {actual}")
        print(f"    {_GREEN}{what}: {actual}{_PLAIN}", flush=True)

    def up(self, *paths: str) -> None:
        """Start the lab."""
        joined = ["--kubeconfig", str(self._kubeconfig)] if self._kubeconfig else []
        self.lab("up", *joined, *paths)

    def lab(self, verb: str, *arguments: str, quiet: bool = False) -> str:
        """Run a verb of the lab as a user would; give what it printed."""
        command = [str(PODGATE), "lab", verb, "--name", self.name, *arguments]
        if not quiet:
            print("    $ " + shlex.join(["podgate", *command[1:]]), flush=True)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StepNotSeenError(
                f"{shlex.join(command[1:])} ended with exit code {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout

    def edit(self, file: str, object_path: str) -> tuple[float, str]:
        """Apply a file; give when that took effect, and what moment that is.

        Of a lab's own object that is when it was written, as an API server would take the edit. When a real one took
        it, nobody outside knows, so there it is when the command began.
        """
        began = time.time()
        self.lab("apply", "-f", file)
        if self._kubeconfig:
            return began, "the start of that command"
        return (places(self.name).state / "objects" / object_path).stat().st_mtime, "the edit"

    def get(self, *arguments: str) -> Any:
        """Get objects as values."""
        return json.loads(self.lab("get", *arguments, "--output", "json", quiet=True))

    def until(self, what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise StepNotSeenError(f"{what} did not happen within {seconds:.0f} s")
            time.sleep(0.05)  # noqa: TID251 - this is the polling with a deadline
