"""``./dev demo [FEATURE] [--keep]``: a live walk-through, in a lab on this machine.

Here: the table of walk-throughs, the lab around them. Not here: the steps (tools/demo_FEATURE.py).
Invariant: exit 0 only if every step was seen; the lab is taken down unless --keep asks for it.
"""

import argparse
import sys

from tools import demo_masquerade
from tools.walkthrough import StepNotSeenError, Walkthrough

WALKTHROUGHS = {"masquerade": demo_masquerade.walk}


def main(arguments: list[str]) -> int:
    """Walk; give the exit code."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="A live walk-through in a lab on this machine.")
    parser.add_argument("feature", nargs="?", default="masquerade", choices=sorted(WALKTHROUGHS))
    parser.add_argument("--keep", action="store_true", help="leave the lab up, to look around")
    asked = parser.parse_args(arguments)
    with Walkthrough(f"demo-{asked.feature}", keep=asked.keep) as walk:
        try:
            WALKTHROUGHS[asked.feature](walk)
        except StepNotSeenError as error:
            print(f"\nnot seen: {error}", file=sys.stderr)
            return 1
        print("\nevery step was seen")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
