"""``./dev demo services`` as a user runs it. What is seen at each step the walk-through itself compares."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_step_of_the_walk_through_is_seen(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo", "services"],
        cwd=ROOT,
        env={**os.environ, "PODGATE_LAB_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("every step was seen")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "the lab was not taken down"
