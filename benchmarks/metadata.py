"""``./dev bench metadata [PART…] [--quick] [--python PATH]``: the metadata proxy beside nginx and Go, on one core each.

Here: its options, and where it runs. Not here: the figures (figures/proxying.py), the rest of the command line
(parts.py).
Invariant: nothing is left behind: the namespace has no name and goes with this process, folders are temporary.

It needs nginx and wrk (Debian: nginx-light, wrk); Go and cgroups are used where they are. Without uvloop in the
interpreter, asyncio's own loop is measured.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures.proxies import bench_in
from benchmarks.figures.proxying import PARTS
from benchmarks.parts import asked_of, chosen, parser_of, show
from benchmarks.support import cpus, pinned


def main(arguments: list[str]) -> int:
    """Measure and print; give 0 when it ran, whatever the figures say."""
    parser = parser_of("metadata", PARTS, "the metadata proxy", "one short run")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the proxy (default: this one)")
    asked = asked_of(parser, PARTS, arguments)
    with pinned(cpus()[0]), tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        Path(folder).chmod(0o755)
        with bench_in(Path(folder), asked.python) as bench:
            rows = [row for part in chosen(PARTS, asked.parts) for row in part(bench, quick=asked.quick)]
    loop = subprocess.run([asked.python, "-c", "import uvloop"], capture_output=True, check=False).returncode
    return show(rows, quick=asked.quick, note=f", loop: {'asyncio' if loop else 'uvloop'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
