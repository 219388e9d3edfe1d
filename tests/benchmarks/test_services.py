"""``./dev bench services``: parts that need no control plane run. No figure is asserted."""

import subprocess
import sys

import pytest

from tests.style.reading import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.kernel]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.bench", "services", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def test_a_quick_run_connects_through_services_and_prints_both_figures() -> None:
    done = bench("packets", "--quick")
    assert done.returncode == 0, done.stderr
    figure = "first packet, TCP connect through a cluster IP, 500 x 2"
    rows = [line for line in done.stdout.splitlines() if line.startswith(figure)]
    assert [line.split(":")[1].split()[0] for line in rows] == ["median", "p99"]


def test_a_quick_run_heals_each_damage_of_each_back_end() -> None:
    done = bench("heals", "--quick")
    assert done.returncode == 0, done.stderr
    rows = [line.split(":")[0].split(", ") for line in done.stdout.splitlines() if "noticed and right after" in line]
    damages = {
        "nftables": ["table deleted", "map flushed", "one element deleted", "ruleset flushed"],
        "iptables-nft": ["table nat deleted", "chain flushed", "one rule deleted", "ruleset flushed"],
        "iptables-legacy": ["chain flushed", "one rule deleted", "all tables flushed"],
    }
    assert rows == [["100 x 2", backend, what] for backend, found in damages.items() for what in found]


def test_a_part_that_is_none_is_refused_by_name() -> None:
    done = bench("rivals", "--quick")
    assert done.returncode == 2
    assert "no part rivals: there are loading, large, churn, agent, heals, packets, rival, iptables" in done.stderr
