"""deploy/metadata/startup-taint on a real API: no tenant's Pod starts on a node before its metadata proxy is ready."""

import json
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from podgate.features.metadata.untaint.feature import FEATURE
from podgate.features.metadata.untaint.settings import UntaintSettings
from tests.support.cluster import ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll
from tests.support.rights import exactly, list_in_pages

DEPLOY = Path(__file__).parents[2] / "deploy" / "metadata"
FOLDER = DEPLOY / "startup-taint"
KEY = "podgate.dev/metadata-not-ready"
KUBE_ENV = "http://169.254.169.254/computeMetadata/v1/instance/attributes/kube-env"
OTHER = {"key": "example.com/other", "value": "x", "effect": "PreferNoSchedule"}
TAINT = {"key": KEY, "effect": "NoSchedule"}
NODE = f"""\
apiVersion: v1
kind: Node
metadata:
  name: tainted-1
  labels: {{cloud.google.com/metadata-proxy-ready: "true", kubernetes.io/os: linux}}
  annotations: {{lab.podgate.dev/prefix-length: "20", lab.podgate.dev/cloud-metadata: gce}}
spec:
  podCIDRs: [10.16.1.0/24]
  taints: [{json.dumps(OTHER)}, {json.dumps(TAINT)}]
status: {{addresses: [{{type: InternalIP, address: 10.140.15.1}}]}}
"""
TENANT = """\
apiVersion: v1
kind: Pod
metadata: {name: tenant}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: busybox, command: [sleep, infinity]}]
"""


@pytest.fixture(scope="module")
def running(plane: ControlPlane) -> Iterator[TestLab]:
    with lab(NODE, name="untaint", kubeconfig=plane.kubeconfig) as started:
        yield started
        started.run("delete", "pod/tenant", check=False)
        for each in ("deployment/metadata-untaint", "daemonset/metadata-proxy-v0.1"):
            started.run("delete", "-n", "kube-system", each, check=False)


def node(plane: ControlPlane) -> Any:
    return json.loads(plane.get("/api/v1/nodes/tainted-1")[1])


def patched(plane: ControlPlane, token: str, change: Any) -> tuple[int, bytes]:
    """Change the Node with a token."""
    context = ssl.create_default_context(cafile=str(plane.folder / "pki" / "ca.crt"))
    connection = HTTPSConnection("127.0.0.1", plane.ports.api, timeout=60, context=context)
    headers = {"Content-Type": "application/merge-patch+json", "Authorization": f"Bearer {token}"}
    try:
        connection.request("PATCH", "/api/v1/nodes/tainted-1", json.dumps(change), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def taints(plane: ControlPlane) -> list[str]:
    return [taint["key"] for taint in node(plane)["spec"].get("taints", [])]


def put_taints(plane: ControlPlane, *wanted: dict[str, str]) -> None:
    """Give the Node these taints, whichever it had."""

    def put() -> bool:
        changed = node(plane)
        changed["spec"]["taints"] = list(wanted)
        return plane.request("PUT", "/api/v1/nodes/tainted-1", changed)[0] == 200  # unless it has changed meanwhile

    poll(put)


def test_a_node_is_freed_once_its_proxy_is_ready(plane: ControlPlane, running: TestLab) -> None:
    put_taints(plane, OTHER, TAINT)
    with exactly(plane, FOLDER):
        running.run("apply", "-f", str(FOLDER), "--wait")
        running.apply(TENANT, wait=False)
        assert {KEY, OTHER["key"]} <= set(taints(plane))
        assert "nodeName" not in json.loads(plane.get("/api/v1/namespaces/default/pods/tenant")[1])["spec"]

        running.run("apply", "-f", str(DEPLOY), "--wait")
        poll(lambda: KEY not in taints(plane))
        assert OTHER["key"] in taints(plane)
        list_in_pages(plane, FOLDER, FEATURE.watches(UntaintSettings(), None))
        poll(lambda: running.get("Pod", "tenant").get("status", {}).get("phase") == "Running")
    script = f"curl -sm30 -H 'Metadata-Flavor: Google' {KUBE_ENV}"
    assert running.shell("tenant", script) == "This metadata endpoint is concealed\n"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"metadata": {"labels": {"x": "y"}}}, "changes no label"),
        ({"spec": {"taints": [TAINT]}}, "takes its own taint away"),
        ({"spec": {"taints": []}}, "takes its own taint away"),
        ({"spec": {"unschedulable": True}}, "cordons no Node"),
        ({"spec": {"providerID": "gce://other/machine"}}, "gives no Node a machine or addresses"),
    ],
)
def test_the_account_may_change_nothing_else_of_a_node(
    plane: ControlPlane, running: TestLab, change: dict[str, Any], complaint: str
) -> None:
    running.run("apply", "-f", str(FOLDER))
    put_taints(plane, OTHER)  # a node that is free, whose taint nobody may put back either
    path = "/api/v1/namespaces/kube-system/serviceaccounts/metadata-untaint/token"
    code, answer = plane.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    assert code == 201, answer
    code, answer = patched(plane, json.loads(answer)["status"]["token"], change)
    assert code == 422, answer
    assert complaint in answer.decode()
