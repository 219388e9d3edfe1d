"""deploy/services: what a user applies is valid, drops in for kube-proxy, and asks for no right without a reason.

Here: the manifests' structure and values. Not here: applying them (the lab's tests do).
Invariant: an address of the API server stands in one place, and is none that needs rules.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from podgate import __version__
from podgate.features.services.compile import watches
from podgate.features.services.proxy_config import read_config
from podgate.features.services.settings import Settings
from podgate.joints import SourceError
from podgate.lab.fields import unhonoured
from podgate.lab.validity import fault_of
from podgate.model.frozen import file_ref
from podgate.sources.origin import Api, access_of
from tests.deploy.reasons import has_reason

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDER = DEPLOY / "services"
CONFIG = "/var/lib/kube-proxy/config.conf"


def document(name: str) -> Any:
    (only,) = yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())
    return only


def pod() -> Any:
    return document("daemonset")["spec"]["template"]["spec"]


def container() -> Any:
    (only,) = pod()["containers"]
    return only


def test_it_takes_the_place_of_kube_proxy() -> None:
    """Names and selector are kubeadm's: applying replaces it node by node, and the old ConfigMap stays in force."""
    daemon = document("daemonset")
    assert daemon["metadata"]["name"] == "kube-proxy"
    assert daemon["spec"]["selector"] == {"matchLabels": {"k8s-app": "kube-proxy"}}
    assert daemon["spec"]["template"]["metadata"]["labels"]["k8s-app"] == "kube-proxy"
    assert document("configmap")["metadata"]["name"] == "kube-proxy"
    assert set(document("configmap")["data"]) == {"config.conf", "kubeconfig.conf"}
    namespaces = {document(name)["metadata"]["namespace"] for name in ("daemonset", "configmap", "serviceaccount")}
    assert namespaces == {"kube-system"}


def test_the_configuration_is_read_without_a_complaint() -> None:
    config = read_config(file_ref(CONFIG), document("configmap")["data"]["config.conf"].encode())
    assert config.problems == ()
    assert config["mode"] == "nftables"
    assert config["clientConnection.kubeconfig"] == "/var/lib/kube-proxy/kubeconfig.conf"


def test_the_api_server_is_named_by_an_address_that_cannot_be_mistaken_for_one() -> None:
    kubeconfig = yaml.safe_load(document("configmap")["data"]["kubeconfig.conf"])
    (cluster,) = kubeconfig["clusters"]
    assert re.fullmatch(r"https://[a-z-]+\.invalid:6443", cluster["cluster"]["server"])  # RFC 2606: it never resolves
    (user,) = kubeconfig["users"]
    assert user["user"] == {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}


def test_with_the_placeholder_it_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(document("configmap")["data"]["kubeconfig.conf"])
    with pytest.raises(SourceError, match=r"clusters\[0\]\.cluster\.server: .* still to be written"):
        access_of(Api(str(path)), {})


def test_it_may_watch_what_the_feature_watches_and_nothing_else() -> None:
    watched = {(each.kind.group, each.kind.plural) for each in watches(Settings(), "node-1")}
    rules = document("clusterrole")["rules"]
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in rules)
    watching = [rule for rule in rules if rule["verbs"] == ["list", "watch"]]
    assert {(group, name) for rule in watching for group in rule["apiGroups"] for name in rule["resources"]} == watched
    others = {name for rule in rules if rule not in watching for name in rule["resources"]}
    assert others == {"nodereports", "events"}  # their verbs: tests/cluster/test_rights.py


def test_the_role_is_bound_to_the_account_of_the_pods() -> None:
    account = document("serviceaccount")
    binding = document("clusterrolebinding")
    name = {key: account["metadata"][key] for key in ("name", "namespace")}
    assert binding["subjects"] == [{"kind": "ServiceAccount", **name}]
    assert binding["roleRef"]["name"] == document("clusterrole")["metadata"]["name"]
    assert pod()["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is False
    assert pod()["automountServiceAccountToken"] is True


def test_it_runs_on_every_node_early_and_in_the_nodes_network() -> None:
    spec = pod()
    assert (spec["hostNetwork"], spec["dnsPolicy"], spec["priorityClassName"]) == (
        True,
        "Default",
        "system-node-critical",
    )
    assert {(each.get("key", ""), each.get("effect", "")) for each in spec["tolerations"]} == {
        ("", "NoSchedule"),
        ("", "NoExecute"),
        ("CriticalAddonsOnly", ""),
    }
    assert {each["operator"] for each in spec["tolerations"]} == {"Exists"}


def test_the_agent_has_two_capabilities_and_no_other_right() -> None:
    security = container()["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}
    assert not security["privileged"]
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_what_writes_sysctls_and_ends_is_privileged() -> None:
    (init,) = pod()["initContainers"]
    assert init["securityContext"] == {"privileged": True}
    assert (init["command"], init["args"]) == (["kube-proxy"], ["--init-only", f"--config={CONFIG}"])
    assert init["image"] == container()["image"] == f"podgate:{__version__}"


@pytest.mark.parametrize(
    "right", ["NET_ADMIN", "NET_RAW", "runAsUser: 0", "hostNetwork: true", "privileged: true", "type: FileOrCreate"]
)
def test_each_right_has_its_reason_above_it(right: str) -> None:
    assert has_reason(FOLDER / "daemonset.yaml", right)


def test_it_starts_the_feature_with_its_nodes_name() -> None:
    assert container()["args"] == ["services", "run", f"--config={CONFIG}"]
    assert [(each["name"], each["valueFrom"]["fieldRef"]["fieldPath"]) for each in container()["env"]] == [
        ("NODE_NAME", "spec.nodeName")
    ]


def test_probes_ask_where_the_agent_listens_by_default() -> None:
    port = int(Settings().health_addr.rpartition(":")[2])
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"port": port, "path": path}


def test_what_of_the_node_it_sees_is_its_state_and_the_lock() -> None:
    paths = {each["name"]: each["hostPath"]["path"] for each in pod()["volumes"] if "hostPath" in each}
    assert paths == {"state": "/var/lib/podgate", "xtables-lock": "/run/xtables.lock"}
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounts == {**paths, "config": "/var/lib/kube-proxy"}
    assert Settings().state_dir.startswith(f"{paths['state']}/")


def test_there_is_an_image_of_the_old_name() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert re.search(r'^FROM runtime AS kube-proxy\nENTRYPOINT \["kube-proxy"\]$', text, re.MULTILINE)
    assert " kube-proxy:podgate.features.services.dropin;" in text


def test_an_api_server_takes_it_and_the_lab_honours_every_field() -> None:
    for path in sorted(FOLDER.iterdir()):
        assert fault_of(document(path.stem)) is None
    assert unhonoured(document("daemonset")["spec"]["template"]) == ()
