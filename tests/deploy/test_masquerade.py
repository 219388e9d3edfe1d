"""deploy/masquerade: what a user applies is valid, drops in for ip-masq-agent, and asks for no right without a reason.

Here: the manifests' structure and values. Not here: applying them (the lab's tests do).
Invariant: the folders differ in nothing but the choice of nodes, and what policies need.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from podgate import __version__
from podgate.features.masquerade.config import PRIVATE_RANGES, default_entries
from podgate.features.masquerade.feature import FEATURE
from podgate.features.masquerade.reading import Text, read
from podgate.features.masquerade.settings import Settings
from podgate.lab.fields import unhonoured
from podgate.lab.selecting import allows
from podgate.lab.shapes import Node
from podgate.lab.shapes import PodSpec as ScheduledSpec
from podgate.lab.validity import fault_of
from podgate.model.frozen import file_ref
from tests.deploy.manifest_schema import ConfigMap, Container, DaemonSet, PodSpec, ServiceAccount
from tests.deploy.reasons import has_reason

DEPLOY = Path(__file__).parents[2] / "deploy"
DEFAULT = DEPLOY / "masquerade"
LABELLED = DEPLOY / "masquerade-labelled-nodes"
POLICIES = DEPLOY / "masquerade-policies"
FOLDERS = pytest.mark.parametrize("folder", [DEFAULT, LABELLED, POLICIES], ids=lambda folder: folder.name)
FILES = {"configmap.yaml", "daemonset.yaml", "serviceaccount.yaml"}


def document(path: Path) -> Any:
    (only,) = yaml.safe_load_all(path.read_text())
    return only


def daemonset(folder: Path) -> DaemonSet:
    return msgspec.convert(document(folder / "daemonset.yaml"), DaemonSet)


def pod(folder: Path) -> PodSpec:
    return daemonset(folder).spec.template.spec


def container(folder: Path) -> Container:
    (only,) = pod(folder).containers
    return only


def labels_of_terms(folder: Path) -> list[dict[str, tuple[str, list[str]]]]:
    required = pod(folder).affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return [
        {each.key: (each.operator, each.values) for each in term.match_expressions}
        for term in required.node_selector_terms
    ]


@FOLDERS
def test_a_folder_holds_objects_of_known_fields_in_kube_system(folder: Path) -> None:
    rights = {"clusterrole.yaml", "clusterrolebinding.yaml", "role.yaml", "rolebinding.yaml"}
    definitions = {"customresourcedefinition.yaml", "nodereports.yaml"}
    more = rights | definitions if folder == POLICIES else set()
    assert {path.name for path in folder.iterdir()} == FILES | more
    account = msgspec.convert(document(folder / "serviceaccount.yaml"), ServiceAccount)
    config = msgspec.convert(document(folder / "configmap.yaml"), ConfigMap)
    assert {each.metadata.namespace for each in (account, config, daemonset(folder))} == {"kube-system"}
    assert account.metadata.name == pod(folder).service_account_name


def test_an_unknown_field_would_be_found() -> None:
    manifest = document(DEFAULT / "daemonset.yaml")
    manifest["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    with pytest.raises(msgspec.ValidationError, match="readOnlyRootFileSystem"):
        msgspec.convert(manifest, DaemonSet)


@FOLDERS
def test_it_takes_the_place_of_ip_masq_agent(folder: Path) -> None:
    """Same name and selector: applying replaces the old agent node by node, and the old ConfigMap stays in force."""
    daemon = daemonset(folder)
    assert daemon.metadata.name == "ip-masq-agent"
    assert daemon.spec.selector.match_labels == {"k8s-app": "ip-masq-agent"}
    assert daemon.spec.selector.match_labels.items() <= daemon.spec.template.metadata.labels.items()
    (volume,) = [volume.config_map for volume in pod(folder).volumes if volume.config_map]
    assert (volume.name, volume.optional) == ("ip-masq-agent", True)
    assert [(item.key, item.path) for item in volume.items] == [("config", "ip-masq-agent")]
    assert ("config", "/etc/config", True) in [
        (mount.name, mount.mount_path, mount.read_only) for mount in container(folder).volume_mounts
    ]


@FOLDERS
def test_the_configmap_says_what_holds_without_it_and_has_no_problem(folder: Path) -> None:
    config = msgspec.convert(document(folder / "configmap.yaml"), ConfigMap)
    assert config.metadata.name == "ip-masq-agent"
    assert list(config.data) == ["config"]
    defaults = default_entries(all_reserved=False)
    reading = read(Text(file_ref("/etc/config/ip-masq-agent"), config.data["config"].encode()), defaults, ("ip",))
    assert reading.problems == ()
    assert yaml.safe_load(config.data["config"])["nonMasqueradeCIDRs"] == list(PRIVATE_RANGES)


@FOLDERS
def test_it_runs_on_every_node_early_and_in_the_nodes_network(folder: Path) -> None:
    spec = pod(folder)
    assert spec.host_network
    assert spec.dns_policy == "Default"
    assert spec.priority_class_name == "system-node-critical"
    assert {(each.key, each.operator, each.effect) for each in spec.tolerations} == {
        ("", "Exists", "NoSchedule"),
        ("", "Exists", "NoExecute"),
        ("CriticalAddonsOnly", "Exists", ""),
    }


def test_without_a_label_every_node_but_windows_runs_it() -> None:
    assert labels_of_terms(DEFAULT) == [{"kubernetes.io/os": ("NotIn", ["windows"])}]


def test_the_variant_wants_either_of_the_two_labels() -> None:
    not_windows = ("NotIn", ["windows"])
    assert labels_of_terms(LABELLED) == [
        {"node.kubernetes.io/masq-agent-ds-ready": ("In", ["true"]), "kubernetes.io/os": not_windows},
        {"beta.kubernetes.io/masq-agent-ds-ready": ("In", ["true"]), "kubernetes.io/os": not_windows},
    ]


def test_the_variant_of_labelled_nodes_differs_in_nothing_else() -> None:
    default, labelled = document(DEFAULT / "daemonset.yaml"), document(LABELLED / "daemonset.yaml")
    for manifest in (default, labelled):
        del manifest["spec"]["template"]["spec"]["affinity"]
    assert default == labelled
    for name in FILES - {"daemonset.yaml"}:
        assert (DEFAULT / name).read_text() == (LABELLED / name).read_text()


def test_the_variant_of_policies_has_a_token_and_nothing_else() -> None:
    default, policies = document(DEFAULT / "daemonset.yaml"), document(POLICIES / "daemonset.yaml")
    for manifest in (default, policies):
        del manifest["spec"]["template"]["spec"]["automountServiceAccountToken"]
        del manifest["spec"]["template"]["spec"]["containers"][0]["args"]
    assert default == policies
    assert document(DEFAULT / "configmap.yaml") == document(POLICIES / "configmap.yaml")
    assert document(DEFAULT / "serviceaccount.yaml") == document(POLICIES / "serviceaccount.yaml")


def test_the_variant_of_policies_may_watch_what_the_feature_watches_and_nothing_else() -> None:
    """Other rights are used, and none is missing: tests/cluster/test_rights.py."""
    words = document(POLICIES / "daemonset.yaml")["spec"]["template"]["spec"]["containers"][0]["args"]
    (config,) = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    watched = {(each.kind.group, each.kind.plural) for each in FEATURE.watches(Settings(config=config), "node-1")}
    rules = document(POLICIES / "clusterrole.yaml")["rules"]
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in rules)
    watching = [rule for rule in rules if rule["verbs"] == ["list", "watch"]]
    assert {(group, name) for rule in watching for group in rule["apiGroups"] for name in rule["resources"]} == watched


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_the_roles_are_bound_to_the_account_of_the_pods(kind: str) -> None:
    role = document(POLICIES / f"{kind.lower()}.yaml")
    binding, account = document(POLICIES / f"{kind.lower()}binding.yaml"), document(POLICIES / "serviceaccount.yaml")
    name = {key: account["metadata"][key] for key in ("name", "namespace")}
    assert binding["subjects"] == [{"kind": "ServiceAccount", **name}]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role["metadata"]["name"]
    }  # fmt: skip
    if kind == "Role":
        # The Lease is where the agents' Pods are.
        assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == name["namespace"]
    assert pod(POLICIES).service_account_name == account["metadata"]["name"]


@FOLDERS
def test_it_has_two_capabilities_and_no_other_right(folder: Path) -> None:
    security = container(folder).security_context
    assert not security.privileged
    assert not security.allow_privilege_escalation
    assert security.read_only_root_filesystem
    assert security.capabilities.drop == ["ALL"]
    assert security.capabilities.add == ["NET_ADMIN", "NET_RAW"]
    assert security.seccomp_profile.type == "RuntimeDefault"


@FOLDERS
def test_no_token_of_the_api_is_mounted_but_for_policies(folder: Path) -> None:
    account = msgspec.convert(document(folder / "serviceaccount.yaml"), ServiceAccount)
    assert account.automount_service_account_token is False
    assert pod(folder).automount_service_account_token is (folder == POLICIES)


@FOLDERS
@pytest.mark.parametrize("right", ["NET_ADMIN", "NET_RAW", "runAsUser: 0", "hostNetwork: true", "type: FileOrCreate"])
def test_each_right_has_its_reason_above_it(folder: Path, right: str) -> None:
    assert has_reason(folder / "daemonset.yaml", right)


@FOLDERS
def test_what_of_the_node_it_sees_is_its_state_and_the_lock(folder: Path) -> None:
    paths = {
        volume.name: (volume.host_path.path, volume.host_path.type)
        for volume in pod(folder).volumes
        if volume.host_path
    }
    assert paths == {
        "state": ("/var/lib/podgate", "DirectoryOrCreate"),
        "xtables-lock": ("/run/xtables.lock", "FileOrCreate"),
    }
    mounts = {mount.name: mount.mount_path for mount in container(folder).volume_mounts}
    assert {name: mounts[name] for name in paths} == {name: path for name, (path, _) in paths.items()}
    assert set(mounts) == {volume.name for volume in pod(folder).volumes}


@FOLDERS
def test_probes_ask_on_loopback_where_the_agent_listens_by_default(folder: Path) -> None:
    probes = container(folder).liveness_probe.http_get, container(folder).readiness_probe.http_get
    assert [(probe.host, probe.port, probe.path) for probe in probes] == [
        ("127.0.0.1", 10350, "/healthz"),
        ("127.0.0.1", 10350, "/readyz"),
    ]


@FOLDERS
def test_it_asks_for_little_and_has_no_limit_to_be_killed_by(folder: Path) -> None:
    resources = container(folder).resources
    assert (resources.requests.cpu, resources.requests.memory) == ("10m", "32Mi")
    assert resources.limits is None


@FOLDERS
def test_it_starts_the_feature_with_its_nodes_name(folder: Path) -> None:
    config = ["--config=/etc/config/ip-masq-agent"] if folder == POLICIES else []
    assert container(folder).args == ["masquerade", "run", *config]
    assert container(folder).image == f"podgate:{__version__}"
    assert [(each.name, each.value_from.field_ref.field_path) for each in container(folder).env] == [
        ("NODE_NAME", "spec.nodeName")
    ]


@FOLDERS
def test_updates_go_a_tenth_of_the_nodes_at_a_time_and_stop_quickly(folder: Path) -> None:
    strategy = daemonset(folder).spec.update_strategy
    assert (strategy.type, strategy.rolling_update.max_unavailable) == ("RollingUpdate", "10%")
    assert pod(folder).termination_grace_period_seconds <= 10


def test_the_containerfile_installs_by_hash_and_has_a_target_per_name() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)[-2:] == [
        ("runtime", "ip-masq-agent"),
        ("runtime", "podgate"),
    ]
    assert "--require-hashes" in text
    for program in ("python3", "nftables", "iptables", "conntrack", "iproute2"):
        assert re.search(rf"install .*\b{program}\b", text)
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert copied
    assert [path for path in copied if not (DEPLOY.parent / path).exists()] == []


@FOLDERS
def test_an_api_server_takes_it_and_the_lab_honours_every_field(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        manifest = document(path)
        assert fault_of(manifest) is None
    template = document(folder / "daemonset.yaml")["spec"]["template"]
    assert unhonoured(template) == ()


NODES = [
    ("plain", DEFAULT, {}, True),
    ("linux", DEFAULT, {"kubernetes.io/os": "linux"}, True),
    ("windows", DEFAULT, {"kubernetes.io/os": "windows"}, False),
    ("no label", LABELLED, {"kubernetes.io/os": "linux"}, False),
    ("label", LABELLED, {"node.kubernetes.io/masq-agent-ds-ready": "true"}, True),
    ("older label", LABELLED, {"beta.kubernetes.io/masq-agent-ds-ready": "true"}, True),
    ("label says no", LABELLED, {"node.kubernetes.io/masq-agent-ds-ready": "false"}, False),
]


@pytest.mark.parametrize(("folder", "labels", "runs"), [row[1:] for row in NODES], ids=[row[0] for row in NODES])
def test_which_nodes_run_it(folder: Path, labels: dict[str, str], runs: bool) -> None:
    spec = document(folder / "daemonset.yaml")["spec"]["template"]["spec"]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": labels}}
    assert allows(msgspec.convert(spec, ScheduledSpec), msgspec.convert(node, Node)) is runs
