"""``./dev demo`` as a user runs it.

Here: each walk-through whole, in a lab. Not here: single properties of rules and packets (tests/features).
Invariant: the walk-through itself compares what a real server logged; here only that it ends well and says so.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

ROOT = Path(__file__).resolve().parent.parent.parent
READING = Path(ROOT, "README.md").read_text()


def demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "PODGATE_LAB_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )


def test_every_step_of_the_walk_through_is_seen_and_the_readme_shows_it(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("every step was seen")
    shown = READING[READING.index("(1) a cluster") :].partition("```")[0]
    figures = r"\d+ ms from the edit to the first changed request \(\d+ requests meanwhile\)"
    assert re.sub(figures, "N", done.stdout).strip() == re.sub(figures, "N", shown).strip()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "the lab was not taken down"


@pytest.mark.parametrize("feature", ["metadata", pytest.param("services", marks=pytest.mark.slow)])
def test_every_step_of_the_walk_through_is_seen(feature: str, tmp_path: Path) -> None:
    done = demo(tmp_path, feature)
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("every step was seen")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "the lab was not taken down"


def test_a_walk_through_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    assert demo(tmp_path, "no-such-feature").returncode == 2
