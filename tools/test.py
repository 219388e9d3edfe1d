"""``./dev test``: the checks and every test; what is not an option here goes to pytest.

Here: the stages. Not here: tests.
Invariant: the test runner's closing line is the last thing that pytest prints, and a failed stage fails the whole.
"""

import sys

from tools.check import check
from tools.stages import Stages, python

QUICK = ("-m", "not slow and not lab")


def main(arguments: list[str]) -> int:
    """Run the checks unless particular tests were asked for, then pytest; give the exit code."""
    quick = "--quick" in arguments
    rest = [argument for argument in arguments if argument != "--quick"]
    chosen = any(not argument.startswith("-") for argument in rest)
    stages = Stages()
    if not chosen:
        check(stages)
    alone = chosen or any(argument.startswith("-n") for argument in rest)
    workers = () if alone else ("-n", "2", "--dist", "worksteal")
    durations = () if chosen or quick else ("--durations=10", "--durations-min=0.5")
    stages.run("tests", python("-m", "pytest", *workers, *durations, *(QUICK if quick else ()), *rest))
    return stages.report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
