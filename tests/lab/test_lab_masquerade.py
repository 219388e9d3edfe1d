"""The manifests of deploy/masquerade in a lab. Not here: the walk-through, which is ``./dev demo`` (test_demo.py).

Invariant: the manifests are those that a user applies, unchanged.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(ROOT / "examples" / "masquerade", name="walk") as started:
        yield started


def test_the_agents_state_is_kept_on_the_node(running: TestLab) -> None:
    running.run("apply", "-f", str(ROOT / "deploy" / "masquerade"), "--wait")
    kept = "find /var/lib/podgate -type f"
    poll(lambda: running.shell("node/node-1", kept, check=False))
    running.run("delete", "-n", "kube-system", "ds/ip-masq-agent")
    assert running.shell("node/node-1", kept)
    assert running.status()["warnings"] == []
