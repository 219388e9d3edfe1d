"""``./dev test``: the checks and every test; what is not an option here goes to pytest.

Here: the stages, and beside them the build of the control plane and the download of other projects' clients.
Not here: tests.
Invariant: the test runner's closing line is the last thing that pytest prints, and a failed stage fails the whole.

The control plane is built at low priority from the start; tests that need it come last and wait for it. So do those
that need the clients, and where no registry is, they are skipped.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tools.check import check
from tools.stages import ROOT, Stages, python

QUICK = ("-m", "not slow and not lab and not cluster")


def main(arguments: list[str]) -> int:
    """Run the checks unless particular tests were asked for, then pytest; give the exit code."""
    quick = "--quick" in arguments
    rest = [argument for argument in arguments if argument != "--quick"]
    chosen = any(not argument.startswith("-") for argument in rest)
    stages = Stages()
    with preparing(wanted=not (quick or chosen)):
        return stages_of(stages, rest, quick=quick, chosen=chosen)


@contextmanager
def preparing(*, wanted: bool) -> Iterator[None]:
    """Build and download while the body runs; where all is there already, that takes a moment."""
    if not wanted:
        yield
        return
    control_plane, clients = python("-m", "tools.cluster", "build"), python("-m", "tests.support.client_libraries")
    with subprocess.Popen(control_plane, cwd=ROOT) as building, subprocess.Popen(clients, cwd=ROOT) as downloading:
        try:
            yield
        finally:
            building.terminate()
            downloading.terminate()


def stages_of(stages: Stages, rest: list[str], *, quick: bool, chosen: bool) -> int:
    """Run the stages; give the exit code."""
    if not chosen:
        check(stages)
    alone = chosen or any(argument.startswith("-n") for argument in rest)
    workers = () if alone else ("-n", "2", "--dist", "worksteal")
    durations = () if chosen or quick else ("--durations=10", "--durations-min=0.5")
    stages.run("tests", python("-m", "pytest", *workers, *durations, *(QUICK if quick else ()), *rest))
    return stages.report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
