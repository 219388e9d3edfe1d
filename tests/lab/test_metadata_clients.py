"""Real clients of the clouds in Pods of a lab, through podgate: what works, and what is refused until allowed."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.client_libraries import PINS, UnreachableError, node_clients, python_clients
from tests.support.lab import TestLab, lab
from tests.support.metadata_lab import cloud_node, proxy_of

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SHOWN: Final = "/clients"
"""Where a Pod sees the libraries."""
ROLES: Final = "/latest/meta-data/iam/security-credentials"
POLICY: Final = json.dumps({"rules": [{"paths": [ROLES, f"{ROLES}/*"], "verdict": "allow"}]})

NODES: Final = {
    "gce": ("gce", ()),
    "aws": ("aws", ()),
    "aws-open": ("aws", ("--policy", "/etc/podgate/policy.json")),
    "azure": ("azure", ()),
    "azure-open": ("azure", ("--token", "allow")),
}
"""Node to its cloud, and the options of its proxy."""

# Where, with which client -> what its calls give; what stands in braces is a secret that the cloud planted.
PYTHON: Final = {
    "gce": {
        "on gce": True,
        "project": "proj",
        "zone": "projects/123456/zones/us-central1-a",
        "account": "123456-compute@developer.gserviceaccount.com",
        "universe": "googleapis.com",
        "token": "{token}",
        "identity": "RefreshError",
        "kube-env": "TransportError",
    },
    "aws": {"token": True, "region": "eu-west-1", "credentials": None},
    "aws-open": {"token": True, "region": "eu-west-1", "credentials": "{role-credentials}"},
    "azure": {"token": "CredentialUnavailableError"},
    "azure-open": {"token": "{identity}"},
}
NODE_JS: Final = {
    "gce": {
        "on gce": True,
        "project": "proj",
        "zone": "projects/123456/zones/us-central1-a",
        "token": "{token}",
        "kube-env": 403,
    }
}


def manifests() -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy", "namespace": "kube-system"},
           "data": {"policy.json": POLICY}}  # fmt: skip
    for number, (name, (cloud, options)) in enumerate(NODES.items(), 2):
        yield cloud_node(name, number, cloud)
        mounts = [{"name": "clients", "mountPath": SHOWN, "readOnly": True}]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"on-{name}"},
            "spec": {
                "nodeName": name,
                "hostAliases": [{"ip": "169.254.169.254", "hostnames": ["metadata.google.internal"]}],
                "containers": [
                    {"name": "main", "image": "busybox", "command": ["sleep", "infinity"], "volumeMounts": mounts}
                ],
                "volumes": [{"name": "clients", "hostPath": {"path": SHOWN, "type": "DirectoryOrCreate"}}],
            },
        }
        yield _proxy(name, ["--profile", cloud, *options])


def _proxy(name: str, words: list[str]) -> dict[str, Any]:
    proxy = proxy_of(name, words)
    spec = proxy["spec"]["template"]["spec"]
    spec["containers"][0]["volumeMounts"] = [{"name": "policy", "mountPath": "/etc/podgate"}]
    spec["volumes"] = [{"name": "policy", "configMap": {"name": "policy"}}]
    return proxy


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    account = (ROOT / "deploy" / "metadata" / "serviceaccount.yaml").read_text()
    with lab(account, yaml.safe_dump_all(list(manifests())), name="clients") as started:
        yield started


@pytest.fixture(scope="module")
def libraries() -> Path:
    return _found(python_clients)


def _found(clients: Any) -> Path:
    try:
        found: Path = clients()
    except UnreachableError as error:
        pytest.skip(str(error))
    return found


def _show(running: TestLab, node: str, folder: Path) -> None:
    """Put a folder onto a node's disk; links spare the copy where they can be made."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)

    disk = running.state / "nodes" / node / SHOWN.strip("/")
    shutil.copytree(folder, disk, copy_function=link, dirs_exist_ok=True)


def _secrets(running: TestLab, node: str) -> dict[str, str]:
    planted: dict[str, str] = json.loads(running.logs(f"host/cloud-{node}").splitlines()[0])["secrets"]
    return planted


def _named(outcomes: dict[str, object], secrets: dict[str, str]) -> dict[str, object]:
    """Give outcomes with a secret's name in the place of its word."""
    names = {word: f"{{{name}}}" for name, word in secrets.items()}
    return {call: names.get(str(outcome), outcome) for call, outcome in outcomes.items()}


@pytest.mark.parametrize("node", PYTHON)
def test_clients_from_pypi(running: TestLab, libraries: Path, node: str) -> None:
    _show(running, node, libraries)
    cloud = NODES[node][0]
    words = ("env", f"PYTHONPATH={SHOWN}", sys.executable, str(PINS / "calls.py"), cloud)
    outcomes = json.loads(running.execute(f"on-{node}", *words))
    assert _named(outcomes, _secrets(running, node)) == PYTHON[node]


@pytest.mark.parametrize("node", NODE_JS)
def test_clients_from_npm(running: TestLab, node: str) -> None:
    _show(running, node, _found(node_clients))
    outcomes = json.loads(running.execute(f"on-{node}", "node", str(PINS / "calls.mjs"), SHOWN))
    assert _named(outcomes, _secrets(running, node)) == NODE_JS[node]
