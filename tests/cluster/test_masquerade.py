"""deploy/masquerade on a real API: ConfigMap edits that reach packets, policies, and what a removal leaves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll

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
def running(plane: ControlPlane) -> Iterator[TestLab]:
    with lab(ROOT / "examples" / "masquerade", name="masq", kubeconfig=plane.kubeconfig) as started:
        yield started
        started.run("delete", "pod/web", "pod/peer")


def test_config_edits_reach_packets(plane: ControlPlane, running: TestLab) -> None:
    assert running.source_seen("web", PARTNER) == POD  # nobody masquerades yet

    running.run("apply", "-f", str(ROOT / "deploy" / "masquerade"), "--wait")
    status = json.loads(plane.get("/apis/apps/v1/namespaces/kube-system/daemonsets/ip-masq-agent")[1])["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (2, 2)

    running.apply(config("10.16.0.0/14", "10.140.0.0/20"), wait=False)
    poll(lambda: running.source_seen("web", PARTNER) == NODE)
    assert running.source_seen("web", PEER) == POD

    running.apply(config("10.16.0.0/14", "10.140.0.0/20", "10.70.0.0/16"), wait=False)
    poll(lambda: running.source_seen("web", PARTNER) == POD)


def test_rules_outlive_the_agents_until_they_are_cleaned(running: TestLab) -> None:
    running.run("apply", "-f", str(ROOT / "deploy" / "masquerade"), "--wait")
    running.apply(config("10.16.0.0/14"), wait=False)
    poll(lambda: running.source_seen("web", PARTNER) == NODE)
    running.run("delete", "-n", "kube-system", "daemonset/ip-masq-agent")
    assert running.source_seen("web", PARTNER) == NODE
    for node in ("node/node-1", "node/node-2"):
        running.execute(node, "podgate", "masquerade", "clean")
        assert running.execute(node, "nft", "list", "ruleset") == ""
    assert running.source_seen("web", PARTNER) == POD
    assert running.status()["warnings"] == []
