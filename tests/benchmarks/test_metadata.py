"""``./dev bench metadata --quick``: a start is measured; a cgroup limits and tells. No figure is asserted."""

import shutil
import subprocess
import sys

import pytest

from benchmarks.figures.cgroups import cgroup
from tests.style.reading import ROOT

pytestmark = pytest.mark.kernel

FIGURES = (
    "start to a Pod's first answer, rules included",
    "  ratio to loading uvloop alone",
    "start to the first answer, --no-firewall",
)
HOLDS = (
    "held = bytearray(8 << 20)\nfor at in range(0, len(held), 4096): held[at] = 1\nprint('held', flush=True)\ninput()"
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_a_quick_run_prints_the_figures_of_a_start() -> None:
    command = [sys.executable, "-m", "tools.bench", "metadata", "start", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    for figure in FIGURES:
        assert any(line.startswith(figure) for line in done.stdout.splitlines()), done.stdout


def test_a_part_that_is_none_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "tools.bench", "metadata", "memroy", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no part memroy: there are start, memory, rates, latency, small" in done.stderr


def test_a_cgroup_holds_a_command_and_tells_what_it_uses() -> None:
    with cgroup(memory=64 << 20, millis=900) as group:
        if group is None:
            pytest.skip("no cgroup can be made here")
        words = group.wrapped((sys.executable, "-c", HOLDS))
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
            assert held.stdout is not None
            assert held.stdout.readline() == b"held\n"
            used = group.used()
            held.communicate(b"\n")
        assert used.anonymous > 8 << 20
        assert 8 << 20 < used.peak <= 64 << 20
        assert used.killed == 0


def test_what_needs_more_than_its_cgroup_has_is_killed_and_counted() -> None:
    with cgroup(memory=6 << 20) as group:
        if group is None:
            pytest.skip("no cgroup can be made here")
        done = subprocess.run(
            group.wrapped((sys.executable, "-c", HOLDS)), input=b"\n", stdout=subprocess.DEVNULL, check=False
        )
        assert done.returncode != 0
        assert group.used().killed >= 1
