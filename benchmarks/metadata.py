"""``./dev bench metadata [PART…] [--quick] [--python PATH]``: the metadata proxy beside nginx and Go, on one core each.

Here: the command line and the table. Not here: the figures (figures/proxying.py).
Invariant: nothing is left behind: the namespace has no name and goes with this process, folders are temporary.

It needs nginx and wrk (Debian: nginx-light, wrk); Go and cgroups are used where they are. Without uvloop in the
interpreter, asyncio's own loop is measured.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures.proxies import bench_in
from benchmarks.figures.proxying import PARTS
from benchmarks.support import Row, cpus, machine, pinned, say, table


def main(arguments: list[str]) -> int:
    """Measure and print; give 0 when it ran, whatever the figures say."""
    parser = argparse.ArgumentParser(prog="./dev bench metadata", description="Figures of the metadata proxy.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="one short run of each, to see that it works")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the proxy (default: this one)")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.parts) - PARTS.keys())
    if unknown:
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    rows: list[Row] = []
    with pinned(cpus()[0]), tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        Path(folder).chmod(0o755)
        with bench_in(Path(folder), asked.python) as bench:
            for name, part in PARTS.items():
                if name in (asked.parts or PARTS):
                    say(f"measuring: {name}")
                    rows += part(bench, quick=asked.quick)
    loop = subprocess.run([asked.python, "-c", "import uvloop"], capture_output=True, check=False).returncode
    note = ", --quick: too few runs to be quoted" if asked.quick else ""
    print(f"{machine()}, loop: {'asyncio' if loop else 'uvloop'}{note}\n")
    print(table(rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
