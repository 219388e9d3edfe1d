"""``./dev bench masquerade [PART…] [--quick]``: how fast masquerade follows, what loading costs, what idling costs.

Here: the table of parts. Not here: the figures (figures/*.py, one part each), the command line (parts.py), what the
figures mean (docs/benchmarks.md).
Invariant: nothing is left behind: namespaces have no names and go with this process, folders are temporary.
"""

import sys
from typing import Final

from benchmarks.figures.edits import edits
from benchmarks.figures.idle import idle, start
from benchmarks.figures.iptables import iptables
from benchmarks.figures.loading import loading
from benchmarks.figures.policies import policies
from benchmarks.parts import InFolder, asked_of, in_folders, parser_of, show
from benchmarks.support import cpus, pinned

PARTS: Final[dict[str, InFolder]] = {
    "edits": edits,
    "policies": policies,
    "loading": loading,
    "iptables": iptables,
    "start": start,
    "idle": idle,
}


def main(arguments: list[str]) -> int:
    """Measure and print; give 0 when it ran, whatever the figures say."""
    asked = asked_of(parser_of("masquerade", PARTS, "masquerade", "a few runs"), PARTS, arguments)
    with pinned(cpus()[0]):
        rows = in_folders(PARTS, asked)
    return show(rows, quick=asked.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
