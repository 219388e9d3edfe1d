"""``./dev demo [FEATURE] [--cluster] [--keep]``: a live walk-through, in a lab on this machine.

Here: the table of walk-throughs, the lab around them, the API server that it may join. Not here: the steps
(tools/demo_FEATURE.py).
Invariant: exit 0 only if every step was seen; the lab, and a control plane that was started for it, are taken down
unless --keep asks for them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import cluster, demo_masquerade, demo_metadata, demo_services
from tools.asking import Parser
from tools.walkthrough import StepNotSeenError, Walkthrough

WALKTHROUGHS = {"masquerade": demo_masquerade, "metadata": demo_metadata, "services": demo_services}


def main(arguments: list[str]) -> int:
    """Walk; give the exit code."""
    parser = Parser(prog="./dev demo", description="A live walk-through in a lab on this machine.")
    parser.add_argument("feature", nargs="?", default="masquerade", choices=sorted(WALKTHROUGHS))
    parser.add_argument("--keep", action="store_true", help="leave the lab up, to look around")
    parser.add_argument("--cluster", action="store_true", help="on a real Kubernetes API, as ./dev cluster up gives it")
    asked = parser.parse_args(arguments)
    with api(wanted=asked.cluster, keep=asked.keep) as kubeconfig:
        return walked(asked.feature, kubeconfig, keep=asked.keep)


@contextmanager
def api(*, wanted: bool, keep: bool) -> Iterator[Path | None]:
    """Run a control plane while the body runs, or use the one that runs; gives its kubeconfig."""
    if not wanted:
        yield None
        return
    ours = not cluster.running()
    try:
        yield cluster.started().kubeconfig
    finally:
        if ours and not keep:
            cluster.down()


def walked(feature: str, kubeconfig: Path | None, *, keep: bool) -> int:
    """Walk one; give the exit code."""
    walkthrough = WALKTHROUGHS[feature]
    with Walkthrough(f"demo-{feature}", walkthrough.LOOK, keep=keep, kubeconfig=kubeconfig) as lab:
        try:
            walkthrough.walk(lab)
        except StepNotSeenError as error:
            print(f"\nnot seen: {error}", file=sys.stderr)
            return 1
        print("\nevery step was seen")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
