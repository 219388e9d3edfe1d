"""deploy/services on a real API: from a node without any rule to answers, with no right that is not needed.

Here: the manifests as a user applies them, and kubeadm's with another image. Not here: single flows
(tests/agent/test_services_flows.py).
Invariant: the agents log in with their service account's token, at the API server's own address.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.cluster import ADVERTISED, ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy" / "services"
SERVICE: Final = "http://10.96.0.80/"
UPSTREAM: Final = ROOT / "tests" / "data" / "upstream" / "kube-proxy.yaml"
ASK: Final = """
import json, sys, urllib.request as r
for _ in range(int(sys.argv[2])):
    print(json.load(r.urlopen(sys.argv[1], timeout=2))["hostname"])
"""


def manifests(plane: ControlPlane) -> list[str]:
    """Give deploy/services with the address that its ConfigMap asks for."""
    texts = [path.read_text() for path in sorted(DEPLOY.iterdir())]
    real = f"https://{ADVERTISED}:{plane.ports.api}"
    assert sum("https://api-server.invalid:6443" in text for text in texts) == 1
    return [text.replace("https://api-server.invalid:6443", real) for text in texts]


@pytest.fixture(scope="module")
def running(plane: ControlPlane) -> Iterator[TestLab]:
    with lab(ROOT / "examples" / "services", name="services", kubeconfig=plane.kubeconfig) as started:
        yield started
        started.run("delete", "service/hello", "deployment/hello", "pod/client")


def answered(running: TestLab, count: int = 1) -> set[str]:
    """Ask the Service from the client; who answered, or nobody."""
    words = [sys.executable, "-c", ASK, SERVICE, str(count)]
    return set(running.execute("client", *words, check=False).split())


def pods(plane: ControlPlane, namespace: str, label: str) -> set[str]:
    """Give the names of Pods by their label."""
    selected = f"/api/v1/namespaces/{namespace}/pods?labelSelector={label.replace('=', '%3D')}"
    return {pod["metadata"]["name"] for pod in json.loads(plane.get(selected)[1])["items"]}


def test_it_starts_on_nodes_without_rules_and_serves(plane: ControlPlane, running: TestLab) -> None:
    assert answered(running) == set()
    running.apply(*manifests(plane))
    poll(lambda: answered(running))
    assert answered(running, 40) == pods(plane, "default", "app=hello")
    logs = [running.logs(f"kube-system/{name}") for name in pods(plane, "kube-system", "k8s-app=kube-proxy")]
    assert len(logs) == 2
    assert all("applied" in text and "orbidden" not in text for text in logs), logs
    cleaned(running)


def test_kubeadms_manifest_works_with_another_image(plane: ControlPlane, running: TestLab) -> None:
    text, count = re.subn(r"(?<=image: )\S+", "example.net/podgate/kube-proxy:0.1.0", UPSTREAM.read_text())
    assert count == 1
    running.apply(text.replace("https://CONTROL-PLANE", f"https://{ADVERTISED}:{plane.ports.api}"))
    poll(lambda: answered(running))
    assert answered(running, 40) == pods(plane, "default", "app=hello")
    cleaned(running)


def cleaned(running: TestLab) -> None:
    """Take the agents away, see that their rules stay, and take these away too."""
    running.run("delete", "-n", "kube-system", "daemonset/kube-proxy")
    assert answered(running)
    for node in ("node/node-1", "node/node-2"):
        running.execute(node, "podgate", "services", "clean")
        assert running.execute(node, "nft", "list", "ruleset") == ""
