"""``./dev soak NAME [MINUTES] [--seed N]``: a long run of the real program, in which everything happens at once.

Here: the command line. Not here: what happens and what must hold (tools/soak_NAME.py).
Invariant: it ends after the given time, ends only what it started, and its exit code is 0 only if all held.
"""

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools import soak_masquerade, soak_metadata, soak_services
from tools.asking import Parser

Soak = Callable[[Path, float, random.Random], list[str]]
"""Runs in a folder for some seconds; gives what did not hold, as lines for people."""

SOAKS: dict[str, Soak] = {
    "masquerade": soak_masquerade.soak,
    "metadata": soak_metadata.soak,
    "services": soak_services.soak,
}


def main(arguments: list[str]) -> int:
    """Soak; give the exit code."""
    parser = Parser(prog="./dev soak", description="A long run under load.")
    parser.add_argument("name", choices=sorted(SOAKS))
    parser.add_argument("minutes", nargs="?", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=None, help="choose the same events again; their timing differs")
    asked = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if asked.seed is None else asked.seed
    print(f"soaking {asked.name} for {asked.minutes:g} minutes, --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="podgate-soak-") as folder:
        failures = SOAKS[asked.name](Path(folder), asked.minutes * 60, random.Random(seed))
    for failure in failures:
        print(f"DID NOT HOLD: {failure}", file=sys.stderr)
    print(f"{len(failures)} failures, --seed {seed}" if failures else "everything held", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
