"""``./dev bench kube --quick`` runs and prints its rows. No figure is asserted: speed is the machine's."""

import subprocess
import sys

import pytest

from tests.style.reading import ROOT

FIGURES = (
    "600 objects, streamed: CPU time",
    "600 objects, in pages: CPU time",
    "one event, bytes to a new snapshot",
    "one event over the socket: CPU time",
)


@pytest.mark.slow
def test_a_quick_run_prints_every_figure() -> None:
    command = [sys.executable, "-m", "tools.bench", "kube", "--quick", "--each", "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    for figure in FIGURES:
        assert any(line.startswith(figure) for line in done.stdout.splitlines()), done.stdout
