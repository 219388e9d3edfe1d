"""deploy/metadata: every field of the old DaemonSet, no right without a reason, and the boot unit's rules.

Here: the manifests' structure and values. Not here: applying them (tests/lab/test_lab_metadata.py).
Invariant: the three forms differ in nothing but what they are there for.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from podgate import __version__
from podgate.features.metadata.kube_up import manifest
from podgate.features.metadata.node_rules import READY_LABEL, node_rules
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.to_nftables import refusals_table
from podgate.lab.fields import unhonoured
from podgate.lab.validity import fault_of
from podgate.model.machine import Machine
from podgate.targets.nftables.render import render
from tests.deploy.reasons import has_reason

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDER = DEPLOY / "metadata"
TEMPLATE = FOLDER / "kube-up" / "metadata-proxy.yaml"
BOOT = FOLDER / "boot"
OLD_LABELS = {
    "k8s-app": "metadata-proxy",
    "kubernetes.io/cluster-service": "true",
    "addonmanager.kubernetes.io/mode": "Reconcile",
}


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def daemonset(path: Path = FOLDER / "daemonset.yaml") -> Any:
    (only,) = documents(path.read_text())
    return only


def pod(found: Any) -> Any:
    return found["spec"]["template"]["spec"]


def test_it_takes_the_place_of_the_old_daemonset() -> None:
    found = daemonset()
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("metadata-proxy-v0.1", "kube-system")
    assert found["metadata"]["labels"] == {**OLD_LABELS, "version": "v0.1"}
    assert found["spec"]["selector"] == {"matchLabels": {"k8s-app": "metadata-proxy", "version": "v0.1"}}
    assert found["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
    (account,) = documents((FOLDER / "serviceaccount.yaml").read_text())
    assert account["metadata"] == {"name": "metadata-proxy", "namespace": "kube-system", "labels": OLD_LABELS}


def test_the_pod_has_every_field_of_the_old_one() -> None:
    spec = pod(daemonset())
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["serviceAccountName"] == "metadata-proxy"
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "Default"
    assert spec["tolerations"] == [
        {"operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists", "effect": "NoSchedule"},
    ]
    assert spec["nodeSelector"] == {READY_LABEL: "true", "kubernetes.io/os": "linux"}
    assert spec["terminationGracePeriodSeconds"] == 30
    (container,) = spec["containers"]
    room = {"memory": "25Mi", "cpu": "30m"}
    assert container["resources"] == {"requests": room, "limits": room}
    assert (container["name"], container["args"]) == ("metadata-proxy", ["metadata", "run"])
    assert container["image"] == f"podgate:{__version__}"


def test_two_capabilities_instead_of_all_and_no_token() -> None:
    spec = pod(daemonset())
    security = spec["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_BIND_SERVICE"]}
    assert not security["privileged"]
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]
    assert not spec["automountServiceAccountToken"]
    assert "volumes" not in spec


@pytest.mark.parametrize("right", ["NET_ADMIN", "NET_BIND_SERVICE", "runAsUser: 0", "hostNetwork: true"])
def test_each_right_has_its_reason_above_it(right: str) -> None:
    assert has_reason(FOLDER / "daemonset.yaml", right)


def test_the_variant_keeps_the_old_security_context_and_differs_in_nothing_else() -> None:
    usual, old = daemonset(), daemonset(FOLDER / "privileged" / "daemonset.yaml")
    assert pod(old)["containers"][0].pop("securityContext") == {"privileged": True}
    del pod(usual)["containers"][0]["securityContext"]
    assert usual == old


def test_the_scripts_manifest_without_the_block_is_the_usual_one() -> None:
    account, proxy = documents(manifest(TEMPLATE.read_text(), {}))
    assert [account] == documents((FOLDER / "serviceaccount.yaml").read_text())
    assert proxy == daemonset()


def test_the_scripts_manifest_with_the_block_sends_the_old_metric_under_the_old_name() -> None:
    _, proxy = documents(manifest(TEMPLATE.read_text(), {"ENABLE_PROMETHEUS_TO_SD": "true"}))
    _, exporter = pod(proxy)["containers"]
    assert exporter["image"] == "gke.gcr.io/prometheus-to-sd:v0.11.1-gke.1"
    assert "--source=metadata_proxy:http://127.0.0.1:989?whitelisted=request_count" in exporter["command"]
    room = {"memory": "20Mi", "cpu": "2m"}
    assert exporter["resources"] == {"requests": room, "limits": room}


def test_an_api_server_takes_it_and_the_lab_honours_every_field() -> None:
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in documents(path.read_text()):
            assert fault_of(document) is None
    assert unhonoured(daemonset()["spec"]["template"], ("cpu", "memory")) == ()


def test_the_boot_unit_loads_what_podgate_itself_would_write_without_knowing_the_uplink() -> None:
    rules = node_rules(Settings(), Machine())
    text = (BOOT / "podgate-metadata-refuse.nft").read_text()
    body = text[text.index("\ntable ip ") + 1 :]
    assert body == f"{render(refusals_table(rules, 'ip'))}\n{render(refusals_table(rules, 'ip6'))}"


def test_the_boot_unit_comes_before_kubelet_and_kubelet_needs_it() -> None:
    lines = (BOOT / "podgate-metadata-refuse.service").read_text().splitlines()
    before = next(line for line in lines if line.startswith("Before=")).partition("=")[2].split()
    assert {"kubelet.service", "containerd.service", "crio.service"} <= set(before)
    assert "RequiredBy=kubelet.service" in lines
    assert "ExecStart=/usr/sbin/nft -f /etc/podgate/podgate-metadata-refuse.nft" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_boot_unit() -> None:
    unit = str(BOOT / "podgate-metadata-refuse.service")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "Unknown" not in done.stderr
