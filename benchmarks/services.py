"""``./dev bench services [PART…] [--quick]``: what Services cost to program, and beside kube-proxy.

Here: the command line and the table. Not here: the figures (figures/*.py, one part each), their meaning
(docs/benchmarks.md).
Invariant: nothing is left behind: namespaces have no names and go with this process, folders are temporary.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.figures.service_packets import packets
from benchmarks.figures.service_rival import rival
from benchmarks.figures.services import agent, churn, large, loading
from benchmarks.support import Row, machine, say, table

Part = Callable[[Path, bool], list[Row]]
"""Measures with a folder to work in, fast or in full; gives rows."""

PARTS: Final[dict[str, Part]] = {
    "loading": loading,
    "large": large,
    "churn": churn,
    "agent": agent,
    "packets": packets,
    "rival": rival,
}


def main(arguments: list[str]) -> int:
    """Measure and print; give 0 when it ran, whatever the figures say."""
    parser = argparse.ArgumentParser(prog="./dev bench services", description="Figures of services.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a few runs of each, to see that it works")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.parts) - PARTS.keys())
    if unknown:
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    rows: list[Row] = []
    for name, part in PARTS.items():
        if name in (asked.parts or PARTS):
            say(f"measuring: {name}")
            with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
                rows += part(Path(folder), asked.quick)
    print(f"{machine()}{', --quick: too few runs to be quoted' if asked.quick else ''}\n")
    print(table(rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
