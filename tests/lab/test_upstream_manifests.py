"""ip-masq-agent's own manifests with another image: what leaves the node, by the partner's own access log."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import TestLab, lab
from tests.support.old_agent import boot_script
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
UPSTREAM = ROOT / "tests" / "data" / "upstream"
POD, NODE, PARTNER, PEER = "10.16.1.6", "10.140.15.217", "http://10.70.0.2/", "http://10.16.2.7/"
LABEL = 'node.kubernetes.io/masq-agent-ds-ready: "true"'
NODES = f"""\
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {{kubernetes.io/os: linux, {LABEL}}}
  annotations: {{lab.podgate.dev/prefix-length: "20"}}
spec: {{podCIDRs: [10.16.1.0/24]}}
status: {{addresses: [{{type: InternalIP, address: {NODE}}}]}}
---
apiVersion: v1
kind: Node
metadata:
  name: node-2
  labels: {{kubernetes.io/os: linux}}
  annotations: {{lab.podgate.dev/prefix-length: "20"}}
spec: {{podCIDRs: [10.16.2.0/24]}}
status: {{addresses: [{{type: InternalIP, address: 10.140.15.218}}]}}
"""


def upstream(name: str) -> str:
    """Give a manifest with its image changed, and nothing else."""
    text = (UPSTREAM / f"{name}.yaml").read_text()
    changed, count = re.subn(r"(?<=image: )\S+", "example.net/podgate/ip-masq-agent:0.1.0", text)
    assert count == 1
    return changed


def config(text: str) -> str:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ip-masq-agent, namespace: kube-system}\n"
        f"data:\n  config: |\n{lines}"
    )


@pytest.fixture
def cluster() -> Iterator[TestLab]:
    examples = ROOT / "examples" / "masquerade"
    with lab(NODES, examples / "partner.yaml", examples / "pods.yaml", name="upstream") as started:
        yield started


def logged(cluster: TestLab) -> str:
    """Send a request from the Pod, and give the address in the line that the partner logged for it."""
    before = len(cluster.logs("host/partner").splitlines())
    cluster.execute("web", "curl", "-sm30", PARTNER)
    line = poll(lambda: cluster.logs("host/partner").splitlines()[before:])[0]
    return line.split()[0]


def peer_sees(cluster: TestLab) -> str:
    found = re.search(r'"source": "([^"]+)"', cluster.execute("web", "curl", "-sm30", PEER))
    return found.group(1) if found else ""


def rules(cluster: TestLab, node: str = "node-1") -> list[str]:
    """Give the rules in table nat, as iptables shows them."""
    shown = cluster.execute(f"node/{node}", "iptables-nft-save", "-t", "nat").splitlines()
    return [line for line in shown if line.startswith("-A")]


def agents_log(cluster: TestLab) -> str:
    pods = [pod["metadata"]["name"] for pod in cluster.list("pods") if "ip-masq-agent" in pod["metadata"]["name"]]
    return "".join(cluster.logs(f"kube-system/{name}") for name in pods)


def test_the_repositorys_manifest(cluster: TestLab) -> None:
    """T1, T2, T4, T5, T30, T31."""
    cluster.apply(upstream("repository"))
    poll(lambda: len(rules(cluster)) == 6)
    assert logged(cluster) == POD  # no ConfigMap: 10.0.0.0/8 is kept

    cluster.apply(config("nonMasqueradeCIDRs: [10.16.0.0/14, 10.140.0.0/20]"), wait=False)
    poll(lambda: logged(cluster) == NODE)
    assert peer_sees(cluster) == POD
    assert len(rules(cluster, "node-2")) == len(rules(cluster)) == 5

    cluster.apply(config("nonMasqueradeCIDRs:\n  - 10.16.0.0/14\n  -\n  - 10.70.0.0/16"), wait=False)
    poll(lambda: "nonMasqueradeCIDRs[1]" in agents_log(cluster))
    cluster.execute("node/node-1", "iptables-nft", "-t", "nat", "-F")
    poll(lambda: len(rules(cluster)) == 5)  # the last good list is still enforced
    assert logged(cluster) == NODE

    cluster.apply(config("nonMasqueradeCIDRs: [10.16.0.0/14, 10.70.0.0/16]"), wait=False)
    poll(lambda: logged(cluster) == POD)

    cluster.apply(config("nonMasqueradeCIDRs: []"), wait=False)
    # Without a list even the other node's agent masquerades what arrives for its own Pods, as the old agent did.
    poll(lambda: peer_sees(cluster) == "10.140.15.218")

    cluster.run("delete", "-n", "kube-system", "configmap/ip-masq-agent")
    poll(lambda: peer_sees(cluster) == POD)
    assert len(rules(cluster)) == 6
    assert cluster.status()["warnings"] == []


def test_the_addons_manifest_on_a_node_with_boot_rules(cluster: TestLab) -> None:
    """T2, T26."""
    boot = f"iptables-nft-restore --noflush <<'END'\n{boot_script()}END\n"
    for node in ("node/node-1", "node/node-2"):
        cluster.shell(node, boot)
    assert logged(cluster) == POD
    cluster.apply(upstream("addon"))
    poll(lambda: not [line for line in rules(cluster) if '"ip-masq: ' in line])
    assert [line.rpartition(" ")[2] for line in rules(cluster) if "-A POSTROUTING" in line] == ["IP-MASQ"]
    assert len([line for line in rules(cluster) if line.endswith("-j RETURN")]) == 12
    assert len([line for line in rules(cluster, "node-2") if '"ip-masq: ' in line]) == 14, "the label is not there"

    cluster.apply(config("nonMasqueradeCIDRs: [10.16.0.0/14]\nmasqLinkLocal: true"), wait=False)
    poll(lambda: logged(cluster) == NODE)
    assert peer_sees(cluster) == POD
    assert len([line for line in rules(cluster) if line.endswith("-j RETURN")]) == 1

    cluster.run("delete", "-n", "kube-system", "ds/ip-masq-agent")
    assert logged(cluster) == NODE  # rules outlive the agent
    cluster.execute("node/node-1", "podgate", "masquerade", "clean")
    assert rules(cluster) == []
    assert logged(cluster) == POD
