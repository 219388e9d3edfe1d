"""``./dev demo --cluster`` and ``./dev cluster`` as a user runs them.

Here: the walk-through on a real API, and the control plane's life. Not here: what the steps are (tools/demo_*.py).
Invariant: the control plane that was started for it is gone afterwards.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.controlplane import build

ROOT = Path(__file__).resolve().parent.parent.parent


def run(tmp_path: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    build()
    return subprocess.run(
        [sys.executable, "-m", f"tools.{module}", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PODGATE_LAB_DIR": str(tmp_path / "labs"),
            "PODGATE_CLUSTER_DIR": str(tmp_path / "cluster"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )


def test_the_walk_through_is_seen_on_a_real_api(tmp_path: Path) -> None:
    done = run(tmp_path, "demo", "--cluster")
    assert done.returncode == 0, done.stdout
    assert "every step was seen" in done.stdout
    assert "lab up --name demo-masquerade --kubeconfig" in done.stdout
    assert run(tmp_path, "cluster", "status").returncode == 1
    assert not (tmp_path / "cluster").exists()


def test_a_control_plane_comes_up_once_and_goes(tmp_path: Path) -> None:
    try:
        first = run(tmp_path, "cluster", "up")
        assert first.returncode == 0, first.stdout
        running = run(tmp_path, "cluster", "status")
        assert (running.returncode, "API server: ready" in running.stdout) == (0, True), running.stdout
        assert run(tmp_path, "cluster", "up").returncode == 0
        assert run(tmp_path, "cluster", "status").stdout == running.stdout  # the same processes
    finally:
        ended = run(tmp_path, "cluster", "down")
    assert ended.returncode == 0
    assert run(tmp_path, "cluster", "down").returncode == 0
    assert run(tmp_path, "cluster", "status").returncode == 1
