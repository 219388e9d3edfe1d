"""``podgate metadata kube-up migrate-labels`` against the real API server, with no more rights than it needs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import ControlPlane
from tests.support.real_api import RealApi

OLD = "beta.kubernetes.io/metadata-proxy-ready"
NEW = "cloud.google.com/metadata-proxy-ready"
NODES = {"legacy-1": {OLD: "true"}, "legacy-2": {OLD: "true", NEW: "false"}, "legacy-3": {OLD: "false"}}
USER = "podgate-labels"
ROLE = {"metadata": {"name": USER}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "patch"]}]}
BINDING = {
    "metadata": {"name": USER},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
}


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[RealApi]:
    found = RealApi(plane)
    found.put("clusterroles", ROLE)
    found.put("clusterrolebindings", BINDING)
    for name, labels in NODES.items():
        found.remove("nodes", name)
        found.put("nodes", {"metadata": {"name": name, "labels": labels}})
    yield found
    for name in NODES:
        found.remove("nodes", name)
    found.remove("clusterrolebindings", USER)
    found.remove("clusterroles", USER)


def migrate(kubeconfig: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "podgate.cli", "metadata", "kube-up", "migrate-labels"]
    return subprocess.run(
        [*command, "--kubeconfig", str(kubeconfig), *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_old_labels_become_new_ones(plane: ControlPlane, api: RealApi) -> None:
    done = migrate(plane.login(USER), "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"label": f"{NEW}=true", "labelled": ["legacy-1", "legacy-2"], "refused": {}}
    nodes = {name: api.get("nodes", name) for name in NODES}
    assert {name: node["metadata"]["labels"].get(NEW) for name, node in nodes.items() if node} == {
        "legacy-1": "true", "legacy-2": "true", "legacy-3": None,
    }  # fmt: skip
    assert all(node and OLD in node["metadata"]["labels"] for node in nodes.values())
    assert "nothing to do" in migrate(plane.login(USER)).stdout


def test_who_may_not_is_told_so(plane: ControlPlane, api: RealApi) -> None:
    done = migrate(plane.login("podgate-stranger"), "--timeout", "1")
    assert (done.returncode, "403 Forbidden" in done.stdout) == (3, True), done
