"""``./dev bench services [PART…] [--quick]``: what Services cost to program, and beside kube-proxy.

Here: the table of parts. Not here: the figures (figures/*.py, one part each), the command line (parts.py), what the
figures mean (docs/benchmarks.md).
Invariant: nothing is left behind: namespaces have no names and go with this process, folders are temporary.
"""

import sys
from typing import Final

from benchmarks.figures.service_heals import heals
from benchmarks.figures.service_iptables import iptables
from benchmarks.figures.service_packets import packets
from benchmarks.figures.service_rival import rival
from benchmarks.figures.services import agent, churn, large, loading
from benchmarks.parts import InFolder, asked_of, in_folders, parser_of, show

PARTS: Final[dict[str, InFolder]] = {
    "loading": loading,
    "large": large,
    "churn": churn,
    "agent": agent,
    "heals": heals,
    "packets": packets,
    "rival": rival,
    "iptables": iptables,
}


def main(arguments: list[str]) -> int:
    """Measure and print; give 0 when it ran, whatever the figures say."""
    asked = asked_of(parser_of("services", PARTS, "services", "a few runs"), PARTS, arguments)
    return show(in_folders(PARTS, asked), quick=asked.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
