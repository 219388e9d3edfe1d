"""``./dev bench NAME``: runs ``benchmarks/NAME.py``.

Here: finding it. Not here: measuring.
Invariant: a benchmark prints ratios against a reference of the same run, and its exit code says only whether it ran.
"""

import importlib
import sys

from tools.stages import ROOT

SHARED = {"parts", "support"}
NAMES = sorted({path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")} - SHARED)


def main(arguments: list[str]) -> int:
    """Run one benchmark; give the exit code."""
    if not arguments or arguments[0] not in NAMES:
        print(f"usage: ./dev bench NAME [--quick], NAME one of: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    return int(importlib.import_module(f"benchmarks.{arguments[0]}").main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
