"""``./dev bench masquerade --quick`` runs and prints its rows. No figure is asserted: speed is the machine's."""

import subprocess
import sys

import pytest

from tests.style.reading import ROOT

pytestmark = pytest.mark.kernel

ROWS = {
    "edits": ("edits that arrived", "edit -> kernel, ..data swap, p99", "bursts of 20 whose last edit arrived"),
    "policies": ("Pods that arrived", "5 policies of 200 Pods: one Pod added -> kernel, p99"),
    "loading": ("100 entries: loading an absent table", "1,000 entries: reading back, no change"),
    "iptables": (
        "iptables-nft, 64 entries: loading an absent chain",
        "iptables-nft, 1,000 entries: replacing half of them",
        "iptables-legacy, 64 entries: replacing half of them",
        "iptables-legacy, 1,000 entries: reading back, no change",
    ),
    "start": ("start to ready",),
    "idle": ("idle: forks", "idle: writes", "idle: wake-ups", "memory, RSS", "drift check, 1,000 entries"),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", ROWS)
def test_a_quick_run_prints_every_figure(part: str) -> None:
    command = [sys.executable, "-m", "tools.bench", "masquerade", part, "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    head, *rest = done.stdout.splitlines()
    assert "--quick" in head
    for figure in ROWS[part]:
        assert any(line.startswith(figure) for line in rest), done.stdout


def test_a_part_that_is_none_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "tools.bench", "masquerade", "memroy", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no part memroy: there are edits, policies, loading, iptables, start, idle" in done.stderr
