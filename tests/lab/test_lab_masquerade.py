"""The walk-through of masquerade, with the manifests that a user applies and the partner's own access log."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
POD, NODE, PARTNER, PEER = "10.16.1.6", "10.140.15.217", "http://10.70.0.2/", "http://10.16.2.7/"


def config(*cidrs: str) -> str:
    return f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: ip-masq-agent, namespace: kube-system}}
data:
  config: |
    nonMasqueradeCIDRs: [{", ".join(cidrs)}]
"""


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(ROOT / "examples" / "masquerade", name="walk") as started:
        yield started


def logged(running: TestLab) -> str:
    """Send a request from the Pod, and give the address in the line that the partner logged for it."""
    before = len(running.logs("host/partner").splitlines())
    running.execute("web", "curl", "-sm3", PARTNER)
    line = poll(lambda: running.logs("host/partner").splitlines()[before:])[0]
    return line.split()[0]


def peer_sees(running: TestLab) -> str:
    found = re.search(r'"source": "([^"]+)"', running.execute("web", "curl", "-sm3", PEER))
    return found.group(1) if found else ""


def test_the_walk_through(running: TestLab) -> None:
    assert logged(running) == POD  # nobody masquerades: the partner sees the Pod's own address

    running.run("apply", "-f", str(ROOT / "deploy" / "masquerade"), "--wait")
    running.apply(config("10.16.0.0/14", "10.140.0.0/20"), wait=False)
    poll(lambda: logged(running) == NODE)
    assert peer_sees(running) == POD

    running.apply(config("10.16.0.0/14", "10.140.0.0/20", "10.70.0.0/16"), wait=False)
    poll(lambda: logged(running) == POD)

    running.run("delete", "-n", "kube-system", "ds/ip-masq-agent")
    assert "podgate-masquerade" in running.execute("node/node-1", "nft", "list", "ruleset")  # rules outlive the agent
    for node in ("node/node-1", "node/node-2"):
        running.execute(node, "podgate", "masquerade", "clean")
        assert running.execute(node, "nft", "list", "ruleset") == ""
    assert logged(running) == POD
    assert running.status()["warnings"] == []


def test_the_agents_state_is_kept_on_the_node(running: TestLab) -> None:
    running.run("apply", "-f", str(ROOT / "deploy" / "masquerade"), "--wait")
    running.apply(config("10.16.0.0/14"), wait=False)
    kept = "find /var/lib/podgate -type f"
    poll(lambda: running.shell("node/node-1", kept, check=False))
    running.run("delete", "-n", "kube-system", "ds/ip-masq-agent")
    assert running.shell("node/node-1", kept)
