"""A search for clusters that podgate serves otherwise than kube-proxy does.

    python -m tests.fuzz.services_peer [SECONDS] [--seed N]

Here: options and Services by chance, changed again and again on one running kube-proxy; what is printed. Not here: the
parts (tests/support/peer_*.py).
Invariant: a finding is printed with its objects and packets, so that it can become a case; a seed gives the same
clusters again.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.cluster import ControlPlane, control_plane
from tests.support.peer_answers import packets
from tests.support.peer_clusters import Chance
from tests.support.peer_differences import compare, told
from tests.support.peer_proxies import options_by, peer_node, peers

_MODES: Final = ("nftables", "iptables", "nftables")
_ZONES: Final = ("", "zone-a", "zone-a")
_SHARE: Final = 0.4
"""How many of all Services change between two comparisons."""


class Size(NamedTuple):
    """How much is compared: Services, and comparisons for each set of options."""

    services: int = 150
    rounds: int = 5


class Tally(NamedTuple):
    """What came of a search; ``findings`` are lines of text."""

    decisions: int
    known: Counter[str]
    findings: list[str]


def search(plane: ControlPlane, folder: Path, seed: int, size: Size, goes_on: Callable[[int], bool]) -> Tally:
    """Compare until ``goes_on`` says no, which is asked each time with how many sets of options are through."""
    chance = Chance(seed, size.services)
    decisions, known, findings = 0, Counter[str](), list[str]()
    with peer_node(plane) as (api, node):
        sessions = 0
        while goes_on(sessions):
            options = options_by(chance.random, _MODES[sessions % len(_MODES)])
            zone = chance.random.choice(_ZONES)
            print(f"options: {options}, zone {zone!r}", flush=True)
            with peers(api, node, folder, options, zone) as both:
                for number in range(size.rounds):
                    if not goes_on(sessions):
                        break
                    snapshot = both.change(chance, _SHARE if sessions or number else 1.0)
                    asked = packets(snapshot.objects, random.Random(f"{seed} {sessions} {number}"))
                    compared = compare(snapshot, asked)
                    decisions, known = decisions + compared.decisions, known + Counter(compared.known)
                    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(compared.verdicts.items()))
                    print(f"{len(snapshot.objects)} objects, {compared.decisions} decisions: {verdicts}", flush=True)
                    for line in told(snapshot, compared):
                        print(line, flush=True)
                        findings.append(line)
            sessions += 1
        assert api.refused < api.written / 4, f"{api.refused} of {api.written} objects were refused: they are no test"
    return Tally(decisions, known, findings)


def main(arguments: list[str]) -> int:
    """Search, and say what came of it; give the exit code."""
    parser = argparse.ArgumentParser(prog="./dev fuzz services-peer", description=str(__doc__).partition("\n")[0])
    parser.add_argument("seconds", nargs="?", type=float, default=600.0, help="how long; 600 unless given")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)), help="of clusters to see again")
    asked = parser.parse_args(arguments)
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder) / "plane") as plane:
        end = time.monotonic() + asked.seconds
        found = search(plane, Path(folder), asked.seed, Size(), lambda _sessions: time.monotonic() < end)
    known = ", ".join(f"{count} of {name!r}" for name, count in sorted(found.known.items())) or "none"
    print(f"{found.decisions} decisions; known differences: {known}; lines of findings: {len(found.findings)}")
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
