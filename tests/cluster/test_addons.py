"""``podgate addon reconcile`` on the real API: metadata-proxy from nothing to v0.2, run by a lab that has joined."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import ControlPlane
from tests.support.lab import TestLab, lab
from tests.support.poll import poll

ROOT = Path(__file__).parents[2]
KUBE_ENV = "http://169.254.169.254/computeMetadata/v1/instance/attributes/kube-env"
NODES = """\
apiVersion: v1
kind: Node
metadata:
  name: addons-1
  labels: {cloud.google.com/metadata-proxy-ready: "true"}
  annotations: {lab.podgate.dev/cloud-metadata: gce}
spec: {podCIDRs: [10.21.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.19.0.11}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: addons}
spec: {nodeName: addons-1, containers: [{name: shell, image: shell, command: [sleep, infinity]}]}
"""
SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: addon-settings, namespace: kube-system, labels: {addonmanager.kubernetes.io/mode: EnsureExists}}
data: {level: "1"}
"""
SETTINGS_PATH = "/api/v1/namespaces/kube-system/configmaps/addon-settings"
DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets"


RBAC = "/apis/rbac.authorization.k8s.io/v1"
OF_OTHERS = (
    "/api/v1/namespaces/kube-system/serviceaccounts/metadata-proxy",
    f"{RBAC}/namespaces/kube-system/roles/podgate-metadata-watch",
    f"{RBAC}/namespaces/kube-system/rolebindings/podgate-metadata-watch",
    f"{RBAC}/clusterroles/podgate-metadata",
    f"{RBAC}/clusterrolebindings/podgate-metadata",
)
"""What other modules leave on their control plane with an add-on's label; the plans here are of a clean one."""


@pytest.fixture(scope="module")
def joined(plane: ControlPlane) -> Iterator[TestLab]:
    for path in OF_OTHERS:
        plane.request("DELETE", path)
    with lab(NODES, name="addons", kubeconfig=plane.kubeconfig) as started:
        yield started
        started.run("delete", "-n", "addons", "pod/client", check=False)


def manifest(version: str) -> str:
    """Give the add-on as the cluster scripts render it, of one version."""
    template = (ROOT / "deploy" / "metadata" / "kube-up" / "metadata-proxy.yaml").read_bytes()
    command = [sys.executable, "-m", "podgate.cli", "metadata", "kube-up", "manifest"]
    done = subprocess.run(command, input=template, capture_output=True, check=True)
    # A short grace: nothing here has connections that must end by themselves.
    return done.stdout.decode().replace("v0.1", version).replace("Seconds: 30", "Seconds: 2")


def reconcile(plane: ControlPlane, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "podgate.cli", "addon", "reconcile", str(folder), "--output", "json"]
    done = subprocess.run(
        [*command, "--kubeconfig", str(plane.kubeconfig), *words],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PODGATE_SOURCE"},
        timeout=280,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def steps(answer: dict[str, Any]) -> list[str]:
    return [f"{step['verb']} {step['object']}" for step in answer["steps"]]


def names(plane: ControlPlane, path: str = DAEMONS) -> set[str]:
    code, body = plane.get(f"{path}?labelSelector=k8s-app%3Dmetadata-proxy")
    assert code == 200, body
    return {item["metadata"]["name"] for item in json.loads(body)["items"]}


def ready(plane: ControlPlane, name: str) -> bool:
    status = json.loads(plane.get(f"{DAEMONS}/{name}")[1]).get("status", {})
    return bool(status.get("desiredNumberScheduled") == status.get("numberAvailable") == 1)


def refused_to_the_pod(joined: TestLab) -> bool:
    return "concealed" in joined.execute("addons/client", "curl", "-sm30", KUBE_ENV, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("set") / "addons"
    made.mkdir()
    (made / "settings.yaml").write_text(SETTINGS)
    return made


def put(plane: ControlPlane, folder: Path, joined: TestLab, version: str) -> None:
    """Have the add-on run in one version."""
    (folder / "metadata-proxy.yaml").write_text(manifest(version))
    code, answer = reconcile(plane, folder, "--once", "--timeout", "200")
    assert (code, names(plane)) == (0, {f"metadata-proxy-{version}"}), answer
    poll(lambda: ready(plane, f"metadata-proxy-{version}"))
    poll(lambda: refused_to_the_pod(joined))


def remove_all(plane: ControlPlane, folder: Path) -> None:
    """Take the add-on out of the folder, see it go, and take away what is made once; whatever was there before."""
    (folder / "metadata-proxy.yaml").unlink(missing_ok=True)
    assert reconcile(plane, folder, "--once")[0] == 0
    assert names(plane) == names(plane, "/api/v1/namespaces/kube-system/serviceaccounts") == set()
    poll(lambda: names(plane, "/api/v1/namespaces/kube-system/pods") == set())
    assert plane.request("DELETE", SETTINGS_PATH)[0] == 200


def test_an_addon_is_made_as_the_plan_says(plane: ControlPlane, joined: TestLab, folder: Path) -> None:
    remove_all(plane, folder)  # which of these tests ran before is chance
    (folder / "metadata-proxy.yaml").write_text(manifest("v0.1"))
    code, answer = reconcile(plane, folder, "--dry-run")
    assert (code, steps(answer)) == (
        1,
        [
            "create ServiceAccount/kube-system/metadata-proxy",
            "create ConfigMap/kube-system/addon-settings",
            "create DaemonSet/kube-system/metadata-proxy-v0.1",
        ],
    )
    assert names(plane) == set()
    put(plane, folder, joined, "v0.1")
    assert reconcile(plane, folder, "--dry-run")[0] == 0
    command = [sys.executable, "-m", "podgate.cli", "doctor", "--feature=metadata", "--kubeconfig"]
    said = subprocess.run([*command, str(plane.kubeconfig)], capture_output=True, text=True, check=False).stdout
    assert "ok      metadata: nodes: 1 of " in said
    assert "ok      metadata: version: agents run podgate:0.1.0; this is podgate" in said


def test_drift_is_corrected_but_not_in_what_is_made_once(plane: ControlPlane, joined: TestLab, folder: Path) -> None:
    put(plane, folder, joined, "v0.1")
    have = json.loads(plane.get(f"{DAEMONS}/metadata-proxy-v0.1")[1])
    del have["metadata"]["labels"]["addonmanager.kubernetes.io/mode"]
    have["spec"]["template"]["spec"]["containers"][0]["image"] = "podgate:other"
    assert plane.request("PUT", f"{DAEMONS}/metadata-proxy-v0.1", have)[0] == 200
    edited = {**json.loads(plane.get(SETTINGS_PATH)[1]), "data": {"level": "2"}}
    assert plane.request("PUT", SETTINGS_PATH, edited)[0] == 200
    assert steps(reconcile(plane, folder, "--dry-run")[1]) == ["correct DaemonSet/kube-system/metadata-proxy-v0.1"]
    assert reconcile(plane, folder, "--once")[0] == 0
    have = json.loads(plane.get(f"{DAEMONS}/metadata-proxy-v0.1")[1])
    assert have["spec"]["template"]["spec"]["containers"][0]["image"] == "podgate:0.1.0"
    assert "addonmanager.kubernetes.io/mode" in have["metadata"]["labels"]
    poll(lambda: ready(plane, "metadata-proxy-v0.1"))


@pytest.mark.parametrize(
    ("mode", "body", "why"),
    [
        ("Reconcile", "dta: {a: b}", ".dta: field not declared in schema"),
        ("EnsureExists", "dta: {a: b}", 'unknown field "dta"'),
        ("Reconcile", "data: {a: 1}", ".data.a: expected string"),
    ],
)
def test_a_field_that_the_api_does_not_know_is_refused_by_name(
    plane: ControlPlane, tmp_path: Path, mode: str, body: str, why: str
) -> None:
    metadata = f"{{name: misspelt, labels: {{addonmanager.kubernetes.io/mode: {mode}}}}}"
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\n{body}\n")
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n")
    code, answer = reconcile(plane, tmp_path, "--once", "--timeout", "1", "--name=misspelt", "--mode=Reconcile")
    assert (code, why in answer["refused"]["ConfigMap/default/misspelt"]) == (1, True), answer
    assert plane.request("DELETE", "/api/v1/namespaces/default/configmaps/plain")[0] == 200


def test_a_new_version_takes_the_place_of_the_old_one(plane: ControlPlane, joined: TestLab, folder: Path) -> None:
    put(plane, folder, joined, "v0.1")
    # A manifest that is broken takes nothing away.
    (folder / "metadata-proxy.yaml").write_text("kind: [")
    code, answer = reconcile(plane, folder, "--once", "--timeout", "1")
    assert (code, len(answer["errors"]), names(plane)) == (1, 1, {"metadata-proxy-v0.1"})
    # Both versions are on the host's network: the old one goes once the new one's Pod has started.
    (folder / "metadata-proxy.yaml").write_text(manifest("v0.2"))
    assert steps(reconcile(plane, folder, "--dry-run")[1]) == [
        "create DaemonSet/kube-system/metadata-proxy-v0.2",
        "hold DaemonSet/kube-system/metadata-proxy-v0.1",
    ]
    put(plane, folder, joined, "v0.2")


def test_what_left_the_folder_goes_but_not_what_is_made_once(plane: ControlPlane, folder: Path) -> None:
    remove_all(plane, folder)
