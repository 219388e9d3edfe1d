"""The guide's commands do what the guide says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.console import commands

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "lab.md"


@pytest.mark.kernel
@pytest.mark.lab
def test_the_guide_to_the_lab(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PODGATE_LAB_DIR": str(tmp_path / "labs"),
        "TMPDIR": str(tmp_path),
    }

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90, check=False
        )

    try:
        shown = commands(PAGE)
        assert len(shown) > 5
        for command in shown:
            done = run(command.text)
            assert done.returncode == 0, f"{PAGE.name}:{command.line}: {done.stderr}"
            assert command.shown_by(done.stdout), f"{PAGE.name}:{command.line}: it prints\n{done.stdout}"
    finally:
        run("podgate lab down")
