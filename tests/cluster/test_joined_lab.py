"""A lab as the nodes of a real cluster: real controllers decide, the lab binds, runs and reports; packets are real."""

import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: joined-1}
spec: {podCIDRs: [10.20.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.11}]}
---
apiVersion: v1
kind: Node
metadata: {name: joined-2}
spec: {podCIDRs: [10.20.2.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.12}]}
---
apiVersion: lab.podgate.dev/v1
kind: Host
metadata: {name: outside}
spec: {addresses: [10.71.0.2]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: joined}
spec:
  containers: [{name: shell, image: shell, command: [sleep, infinity]}]
"""
ECHO = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo, namespace: joined}
spec:
  replicas: 2
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo, version: "%s"}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: echo, image: echo, ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: joined}
spec:
  selector: {app: echo}
  ports: [{port: 80}]
"""


BATCH = """\
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: joined}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: shell, image: shell, command: [echo, done, once]}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: joined}
spec:
  replicas: 2
  serviceName: set
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: echo, image: echo}]
"""
STATEFUL = "/apis/apps/v1/namespaces/joined/statefulsets/set"


@pytest.fixture(scope="module")
def joined(plane: ControlPlane) -> Iterator[TestLab]:
    with lab(NODES, name="joined", kubeconfig=plane.kubeconfig) as started:
        yield started
        # A Deployment that stays would have its Pods in every other lab of this control plane.
        for each in ("deployment/echo", "pod/client"):
            started.run("delete", "-n", "joined", each, check=False)


def found(plane: ControlPlane, path: str) -> dict[str, Any]:
    code, body = plane.get(path)
    assert code == 200, body
    value: dict[str, Any] = json.loads(body)
    return value


def pod_of(plane: ControlPlane, label: str) -> str:
    """Give the name of the one Pod with a label."""
    (pod,) = found(plane, f"/api/v1/namespaces/joined/pods?labelSelector={label.replace('=', '%3D')}")["items"]
    return str(pod["metadata"]["name"])


def echoes(plane: ControlPlane) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = found(plane, "/api/v1/namespaces/joined/pods?labelSelector=app%3Decho")["items"]
    return items


def endpoints(plane: ControlPlane) -> set[str]:
    """Give the ready addresses in the slices of the Service, which a real controller writes."""
    path = "/apis/discovery.k8s.io/v1/namespaces/joined/endpointslices?labelSelector=kubernetes.io/service-name%3Decho"
    slices = found(plane, path)["items"]
    ready = (each for one in slices for each in one["endpoints"] or () if each["conditions"]["ready"])
    return {address for each in ready for address in each["addresses"]}


def answer(joined: TestLab, address: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(joined.execute("joined/client", "curl", "-sm30", f"http://{address}/"))
    return value


def test_a_deployment_runs_and_its_pods_answer(plane: ControlPlane, joined: TestLab) -> None:
    joined.apply(ECHO % "one")
    pods = echoes(plane)
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"joined-1", "joined-2"}
    addresses = {pod["status"]["podIP"]: pod["metadata"]["name"] for pod in pods}
    client = found(plane, "/api/v1/namespaces/joined/pods/client")["status"]["podIP"]
    for address, name in addresses.items():
        said = answer(joined, address)
        assert (said["source"], said["hostname"]) == (client, name)
    poll(lambda: endpoints(plane) == set(addresses))


def test_a_rolling_update_replaces_every_pod(plane: ControlPlane, joined: TestLab) -> None:
    joined.apply(ECHO % "one")
    before = {pod["metadata"]["uid"] for pod in echoes(plane)}
    joined.apply(ECHO % "two")
    poll(lambda: len(echoes(plane)) == 2)
    pods = echoes(plane)
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    assert {pod["metadata"]["labels"]["version"] for pod in pods} == {"two"}
    poll(lambda: endpoints(plane) == {pod["status"]["podIP"] for pod in pods})


def test_deleting_a_deployment_ends_its_pods(plane: ControlPlane, joined: TestLab) -> None:
    joined.apply(ECHO % "one")
    address = echoes(plane)[0]["status"]["podIP"]
    joined.run("delete", "-n", "joined", "deployment/echo")
    poll(lambda: echoes(plane) == [])
    poll(lambda: endpoints(plane) == set())
    assert joined.execute("joined/client", "curl", "-sm1", f"http://{address}/", check=False) == ""


def test_nodes_are_ready_and_renew_their_leases(plane: ControlPlane, joined: TestLab) -> None:
    node = found(plane, "/api/v1/nodes/joined-1")
    conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert {"type": "InternalIP", "address": "172.18.0.11"} in node["status"]["addresses"]
    poll(lambda: not found(plane, "/api/v1/nodes/joined-1")["spec"].get("taints"))
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/joined-1"
    poll(lambda: plane.get(lease)[0] == 200)
    first = found(plane, lease)["spec"]["renewTime"]
    poll(lambda: found(plane, lease)["spec"]["renewTime"] > first)


def test_a_pod_speaks_to_the_api_with_its_own_account(plane: ControlPlane, joined: TestLab) -> None:
    script = (
        "cd /var/run/secrets/kubernetes.io/serviceaccount && curl -sm30 --cacert ca.crt"
        ' -H "Authorization: Bearer $(cat token)"'
        " https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/selfsubjectreviews"
        " -H 'Content-Type: application/json'"
        """ -d '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' """
    )
    user = json.loads(joined.shell("joined/client", script))["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:joined:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["client"]


def test_a_configmap_edit_reaches_a_mounted_file(plane: ControlPlane, joined: TestLab) -> None:
    manifest = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: words, namespace: joined}
data: {word: %s}
---
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: joined}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: shell, image: shell, command: [sleep, infinity], volumeMounts: [{name: words, mountPath: /words}]}
  volumes: [{name: words, configMap: {name: words}}]
"""
    joined.apply(manifest % "first")
    assert joined.execute("joined/reader", "cat", "/words/word") == "first"
    joined.apply(manifest % "second", wait=False)
    poll(lambda: joined.execute("joined/reader", "cat", "/words/word") == "second")
    joined.run("delete", "-n", "joined", "pod/reader")
    assert plane.get("/api/v1/namespaces/joined/pods/reader")[0] == 404


def test_jobs_and_stateful_sets_run_by_their_own_controllers(plane: ControlPlane, joined: TestLab) -> None:
    said = joined.apply(BATCH)
    assert "Job/joined/once created" in said
    job = "/apis/batch/v1/namespaces/joined/jobs/once"
    poll(lambda: found(plane, job)["status"].get("succeeded") == 1)
    assert joined.logs("joined/" + pod_of(plane, "job-name=once")).strip() == "done once"
    poll(lambda: found(plane, STATEFUL)["status"].get("readyReplicas") == 2)
    assert joined.execute("joined/set-1", "hostname").strip() == "set-1"
    joined.run("delete", "-n", "joined", "job/once", "statefulset/set")


def test_the_api_server_reads_logs_from_the_node(plane: ControlPlane, joined: TestLab) -> None:
    joined.apply(ECHO % "one")
    pod = echoes(plane)[0]
    answer(joined, pod["status"]["podIP"])
    path = f"/api/v1/namespaces/joined/pods/{pod['metadata']['name']}/log"
    poll(lambda: b"GET /" in plane.get(path)[1])
    lines = plane.get(path)[1].decode().splitlines()
    assert plane.get(f"{path}?tailLines=1")[1].decode().splitlines() == lines[-1:]
    assert plane.get("/api/v1/namespaces/joined/pods/client/log") == (200, b"")


def test_pods_of_other_nodes_are_left_alone(plane: ControlPlane, joined: TestLab) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "elsewhere"},
        "spec": {"nodeName": "of-somebody-else", "containers": [{"name": "a", "image": "a"}]},
    }
    assert plane.request("POST", "/api/v1/namespaces/joined/pods", pod)[0] == 201
    joined.apply(ECHO % "one")  # A pass over everything has ended since.
    assert "elsewhere" not in {one["name"] for one in joined.status()["pods"]}
    kept = found(plane, "/api/v1/namespaces/joined/pods/elsewhere")
    assert (kept["status"]["phase"], "podIP" in kept["status"]) == ("Pending", False)
    plane.request("DELETE", "/api/v1/namespaces/joined/pods/elsewhere?gracePeriodSeconds=0")


def test_pods_go_on_while_the_api_server_is_gone(plane: ControlPlane, joined: TestLab) -> None:
    joined.apply(ECHO % "one")
    addresses = sorted(endpoints(plane))
    plane.stop_part("kube-apiserver", signal.SIGKILL)
    try:
        assert [answer(joined, address)["destination"] for address in addresses] == addresses
    finally:
        plane.start_part("kube-apiserver")
    joined.apply(ECHO % time.monotonic_ns())
    assert len(echoes(plane)) == 2


def test_the_lab_warns_of_nothing_else(joined: TestLab) -> None:
    expected = re.compile(r"cannot watch|127\.0\.0\.1")  # The test above took the API server away.
    assert [warning for warning in joined.status()["warnings"] if not expected.search(warning)] == []
