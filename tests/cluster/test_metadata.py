"""deploy/metadata and deploy/metadata/per-pod on a real API: what Pods of two nodes read, and what a policy changes."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.cluster import ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll

DEPLOY = Path(__file__).parents[2] / "deploy" / "metadata"
V1 = "http://169.254.169.254/computeMetadata/v1/instance"
ZONE, KUBE_ENV = f"{V1}/zone", f"{V1}/attributes/kube-env"
SECRET, CONCEALED = "kube-env: SECRET-", "This metadata endpoint is concealed"
PODS = ("web", "db", "far")
POLICIES = "/apis/podgate.dev/v1alpha1/metadatapolicies"
POLICY = f"{POLICIES}/installer"
ACCOUNT = "system:serviceaccount:kube-system:metadata-proxy"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podgate-metadata-watch"
DAEMONSET = "/apis/apps/v1/namespaces/kube-system/daemonsets/metadata-proxy-v0.1"


def node(number: int) -> str:
    return f"""\
apiVersion: v1
kind: Node
metadata:
  name: node-{number}
  labels: {{cloud.google.com/metadata-proxy-ready: "true", kubernetes.io/os: linux}}
  annotations: {{lab.podgate.dev/prefix-length: "20", lab.podgate.dev/cloud-metadata: gce}}
spec: {{podCIDRs: [10.16.{number}.0/24]}}
status: {{addresses: [{{type: InternalIP, address: 10.140.15.{number}}}]}}
"""


def pod(name: str, number: int) -> str:
    metadata = {"name": name, "labels": {"app": name, "tier": "front" if name != "db" else "back"}}
    container = {"name": "c", "image": "busybox", "command": ["sleep", "infinity"]}
    spec = {"nodeName": f"node-{number}", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def policy(labels: str) -> str:
    return f"""\
apiVersion: podgate.dev/v1alpha1
kind: MetadataPolicy
metadata: {{name: installer}}
spec:
  subjects: {{namespaces: [default], podSelector: {{matchLabels: {{{labels}}}}}}}
  rules: [{{paths: [/computeMetadata/v1/instance/attributes/kube-env], verdict: allow}}]
"""


@pytest.fixture(scope="module")
def running(plane: ControlPlane) -> Iterator[TestLab]:
    manifests = (node(1), node(2), pod("web", 1), pod("db", 1), pod("far", 2))
    with lab(*manifests, name="metapods", kubeconfig=plane.kubeconfig) as started:
        yield started
        started.run("delete", *(f"pod/{name}" for name in PODS))
        for each in ("daemonset/metadata-proxy-v0.1", "customresourcedefinition/metadatapolicies.podgate.dev"):
            started.run("delete", "-n", "kube-system", each, check=False)
        plane.request("DELETE", LEASE)  # nobody's any more, and another test wants to see one made


def get(running: TestLab, who: str, url: str) -> str:
    """Give the beginning of the answer, or ``failed N`` with curl's exit code."""
    return running.metadata(who, url)[: len(CONCEALED)].removesuffix("\n")


def readers(running: TestLab) -> list[str]:
    """Give the Pods that get kube-env."""
    found = {who: get(running, who, KUBE_ENV) for who in PODS}
    assert all(each.startswith(SECRET) or each == CONCEALED for each in found.values()), found
    return [who for who, each in found.items() if each.startswith(SECRET)]


def fully_scheduled(plane: ControlPlane) -> bool:
    found: dict[str, Any] = json.loads(plane.get(DAEMONSET)[1])
    status = found["status"]
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return False
    return [status.get(key) for key in ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")] == [2, 2, 2]


def per_pod(plane: ControlPlane, running: TestLab) -> None:
    """Have the proxy that knows Pods, whatever was there before."""
    paths = (DEPLOY / "customresourcedefinition.yaml", DEPLOY / "per-pod")
    running.run("apply", *(word for path in paths for word in ("-f", str(path))), "--wait")
    poll(lambda: fully_scheduled(plane))


def nothing(running: TestLab) -> None:
    """Have no proxy and no rules, whatever was there before."""
    running.run("delete", "-n", "kube-system", "daemonset/metadata-proxy-v0.1", check=False)
    for number in (1, 2):
        running.execute(f"node/node-{number}", "podgate", "metadata", "clean")


def test_a_pod_reads_its_zone_and_not_the_nodes_credentials(plane: ControlPlane, running: TestLab) -> None:
    nothing(running)
    assert get(running, "web", KUBE_ENV).startswith(SECRET)  # nobody stands between yet
    running.run("apply", "-f", str(DEPLOY), "--wait")
    poll(lambda: fully_scheduled(plane))
    assert [get(running, who, ZONE) for who in PODS] == 3 * ["projects/123456/zones/us-central1-a"]
    assert readers(running) == []
    assert get(running, "node/node-1", KUBE_ENV).startswith(SECRET)


def test_a_policy_is_for_the_pods_that_it_selects_on_every_node(plane: ControlPlane, running: TestLab) -> None:
    per_pod(plane, running)
    assert readers(running) == []

    running.apply(policy("app: web"), wait=False)
    poll(lambda: readers(running) == ["web"])
    running.apply(policy("tier: front"), wait=False)
    poll(lambda: readers(running) == ["web", "far"])
    # What kubectl get metadatapolicies prints, once the containers that watch have told it.
    poll(lambda: [(row["Accepted"], row["Nodes"]) for row in plane.table(POLICIES)] == [("True", "2/2")])
    assert plane.request("DELETE", POLICY)[0] == 200
    poll(lambda: readers(running) == [])
    assert [get(running, who, ZONE) for who in PODS] == 3 * ["projects/123456/zones/us-central1-a"]


def test_pods_of_other_nodes_are_never_watched(plane: ControlPlane, running: TestLab) -> None:
    def uris() -> list[str]:
        events = [json.loads(line) for line in plane.audit_log.read_text().splitlines() if '"pods"' in line]
        return [unquote(each["requestURI"]) for each in events if each["user"]["username"] == ACCOUNT]

    per_pod(plane, running)
    asked = poll(uris)
    assert all("fieldSelector=spec.nodeName=" in uri for uri in asked)
    pods = json.loads(plane.get("/api/v1/namespaces/kube-system/pods")[1])["items"]
    for each in pods:
        own, other = (2, 1) if each["spec"]["nodeName"] == "node-1" else (1, 2)
        log = partial(running.logs, f"kube-system/{each['metadata']['name']}", "-c", "watch")
        poll(lambda log=log, own=own: f"{own} addresses of Pods" in log())  # type: ignore[misc]
        assert f"{other} addresses of Pods" not in log()
