"""``--write-config-to``: podgate under the old name writes and refuses what the real kube-proxy writes and refuses.

Here: command lines, with a file and without one. Not here: what the fields mean, and what podgate says of those beyond
their limits (tests/features/services).
Invariant: both get the same words, and what they wrote is compared field by field.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.features.services.proxy_limits import CASES, given
from tests.support.controlplane import build

OLD_NAME: Final = (sys.executable, "-m", "podgate.features.services.dropin")
LINES: Final = (
    "",
    "--proxy-mode=nftables --cluster-cidr=10.0.0.0/8 --iptables-sync-period=1m30s --masquerade-all",
    "--config=FILE --hostname-override=N1 --cluster-cidr=10.9.0.0/16",
    "--proxy-mode=ipvs --ipvs-scheduler=rr --masquerade-all --feature-gates=AllowServiceExternalIPs=false",
)
FILE: Final = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "nftables",
    "bindAddress": "::",
    "nodePortAddresses": ["primary"],
    "conntrack": {"maxPerCore": 0, "udpTimeout": "1m"},
    "iptables": {"syncPeriod": "90s"},
}


@pytest.mark.parametrize("line", LINES)
def test_the_configuration_is_written_as_kube_proxy_writes_it(line: str, tmp_path: Path) -> None:
    (tmp_path / "given").write_text(json.dumps(FILE))
    words = line.replace("FILE", str(tmp_path / "given")).split()
    theirs = written((str(build(("kube-proxy",)) / "kube-proxy"), *words), tmp_path / "theirs")
    assert written((*OLD_NAME, *words), tmp_path / "ours") == theirs


@pytest.mark.parametrize("verdict", ["refused", "taken"])
def test_the_limits_of_fields_are_those_of_kube_proxy(verdict: str, tmp_path: Path) -> None:
    bodies = CASES[verdict] if verdict == "taken" else [case["body"] for case in CASES[verdict]]
    theirs, codes = str(build(("kube-proxy",)) / "kube-proxy"), {}
    for body in bodies:
        path = given(body, tmp_path)
        command = (theirs, "--config", str(path), "--write-config-to", str(tmp_path / "written"))
        codes[body] = subprocess.run(command, check=False, capture_output=True, cwd="/", timeout=60).returncode
    assert codes == dict.fromkeys(bodies, int(verdict == "refused"))


def written(command: Sequence[str], path: Path) -> Any:
    """Give what a program writes."""
    subprocess.run([*command, "--write-config-to", str(path)], check=True, capture_output=True, cwd="/", timeout=60)
    return said(yaml.safe_load(path.read_text()))


def said(document: Any) -> Any:
    """Give what a configuration says, without fields of other versions that say nothing, and buffers of Go's logs."""
    if not isinstance(document, dict):
        return document
    kept = {name: said(value) for name, value in document.items() if name != "options"}
    left_out = {"serviceProxyName", "windowsRunAsService", "vmodule", "featureGates"}
    return {name: value for name, value in kept.items() if value or name not in left_out}
