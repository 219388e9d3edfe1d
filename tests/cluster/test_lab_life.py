"""How labs come to a cluster and leave it: a clean end, a kill, a bad kubeconfig, an API server that is away."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cluster import ControlPlane
from tests.support.lab import CLI, TestLab, lab
from tests.support.poll import poll

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: life-1}
spec: {podCIDRs: [10.21.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.21}]}
---
apiVersion: v1
kind: Pod
metadata: {name: one, namespace: life}
spec: {nodeSelector: {kubernetes.io/hostname: life-1}, containers: [{name: echo, image: echo}]}
"""


def found(plane: ControlPlane, path: str) -> dict[str, Any] | None:
    code, body = plane.get(path)
    assert code in (200, 404), body
    return json.loads(body) if code == 200 else None


def up(tmp_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PODGATE_LAB_DIR": str(tmp_path)}
    command = [*CLI, "up", "--name", "refused", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)


def test_a_lab_that_ends_takes_its_nodes_and_pods_along(plane: ControlPlane) -> None:
    with lab(CLUSTER, name="life", kubeconfig=plane.kubeconfig):
        assert found(plane, "/api/v1/nodes/life-1")
        assert found(plane, "/api/v1/namespaces/life/pods/one")
    assert found(plane, "/api/v1/nodes/life-1") is None
    assert found(plane, "/api/v1/namespaces/life/pods/one") is None


def test_a_lab_that_was_killed_runs_the_same_pods_when_it_is_back(plane: ControlPlane, tmp_path: Path) -> None:
    def pod(running: TestLab) -> tuple[str, str, str]:
        value = running.get("pod", "one", "life")
        return value["metadata"]["uid"], value["status"]["podIP"], value["spec"]["nodeName"]

    with lab(CLUSTER, name="life", kubeconfig=plane.kubeconfig, base=tmp_path) as first:
        before = pod(first)
        first.process.send_signal(signal.SIGKILL)  # The lab ends with the process that it stays attached to.
        first.process.wait()
        poll(lambda: first.run("status", check=False).returncode != 0)
    with lab(CLUSTER, name="life", kubeconfig=plane.kubeconfig, base=tmp_path) as second:
        assert pod(second) == before
        assert second.execute("life/one", "hostname").strip() == "one"


def test_a_kubeconfig_that_cannot_be_used_starts_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    missing = up(tmp_path, "--kubeconfig", str(tmp_path / "none"))
    assert (missing.returncode, "cannot be read" in missing.stderr) == (2, True), missing.stderr

    unsafe = json.loads(plane.kubeconfig.read_text())
    unsafe["clusters"][0]["cluster"] = {"server": plane.server, "insecure-skip-tls-verify": True}
    bad = tmp_path / "unsafe"
    bad.write_text(json.dumps(unsafe))
    refused = up(tmp_path, "--kubeconfig", str(bad))
    assert (refused.returncode, "insecure-skip-tls-verify" in refused.stderr) == (2, True), refused.stderr

    nobody = up(tmp_path, "--kubeconfig", str(plane.login("nobody")))
    assert (nobody.returncode, "403 Forbidden" in nobody.stderr) == (1, True), nobody.stderr
    assert not (tmp_path / "refused").exists()


def test_an_api_server_that_is_not_there_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    away = json.loads(plane.kubeconfig.read_text())
    away["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "away"
    path.write_text(json.dumps(away))
    done = up(tmp_path, "--kubeconfig", str(path))
    assert (done.returncode, "https://127.0.0.1:1" in done.stderr) == (1, True), done.stderr
