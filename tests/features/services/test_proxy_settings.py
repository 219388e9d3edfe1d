"""What a KubeProxyConfiguration means as options: field by field, and what --backend changes."""

from typing import Any

import pytest

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.services.feature import FEATURE
from podgate.features.services.proxy_config import read_config
from podgate.features.services.proxy_settings import idle_fields, options_in, paths_of
from podgate.features.services.settings import Settings
from podgate.model.frozen import file_ref

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

MEANINGS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "nothing is iptables, as upstream, with node ports on loopback": (
        "",
        None,
        {"backend": "iptables", "nodeport_addresses": "all,localhost"},
    ),
    "loopback in a range": (
        "nodePortAddresses: [127.0.0.0/8, 10.0.0.0/8]",
        "iptables",
        {"backend": "iptables", "nodeport_addresses": "127.0.0.0/8,10.0.0.0/8,localhost"},
    ),
    "a range of all": (
        "nodePortAddresses: [0.0.0.0/0]",
        "iptables",
        {"backend": "iptables", "nodeport_addresses": "0.0.0.0/0,localhost"},
    ),
    "ranges without loopback": (
        "nodePortAddresses: [primary, 'fd00::/64', '::1/128']",
        "iptables",
        {"backend": "iptables", "nodeport_addresses": "primary,fd00::/64,::1/128"},
    ),
    "no node ports on loopback": ("iptables: {localhostNodePorts: false}", None, {"backend": "iptables"}),
    "a mode": ("mode: nftables", None, {"backend": "nftables"}),
    "a flag goes before the mode": ("mode: ipvs", "nftables", {"backend": "nftables"}),
    "fields of the chosen mode alone": (
        "mode: nftables\niptables: {masqueradeAll: true}\nnftables: {masqueradeBit: 13, syncPeriod: 1m}",
        None,
        {"backend": "nftables", "masquerade_bit": 13, "sync_period": 60.0},
    ),
    "durations in seconds": (
        "mode: nftables\nconntrack: {udpTimeout: 1m30s, min: 5}",
        None,
        {"backend": "nftables", "conntrack_udp_timeout": 90.0, "conntrack_min": 5},
    ),
    "lists and texts": (
        "mode: nftables\nnodePortAddresses: [primary, 10.0.0.0/8]\nclusterCIDR: 10.244.0.0/16\nhostnameOverride: n1",
        None,
        {
            "backend": "nftables",
            "nodeport_addresses": "primary,10.0.0.0/8",
            "cluster_cidr": "10.244.0.0/16",
            "node_name": "n1",
        },
    ),
    "addresses of pages without a port": (
        "mode: nftables\nhealthzBindAddress: 127.0.0.1\nmetricsBindAddress: '::1'",
        None,
        {"backend": "nftables", "health_addr": "127.0.0.1:10256", "metrics_addr": "[::1]:10249"},
    ),
    "a cluster of IPv6, as kubeadm writes it": (
        "mode: nftables\nbindAddress: '::'\nhealthzBindAddress: ''\nmetricsBindAddress: '127.0.0.1:9'",
        None,
        {"backend": "nftables", "health_addr": "[::]:10256", "metrics_addr": "127.0.0.1:9"},
    ),
    "a node's name in capitals": (
        "mode: nftables\nhostnameOverride: ' N1 '",
        None,
        {"backend": "nftables", "node_name": "n1"},
    ),
    "the gate of external IPs": (
        "mode: nftables\nfeatureGates: {AllowServiceExternalIPs: false}",
        None,
        {"backend": "nftables", "external_ips": False},
    ),
    "kubeadm's kubeconfig": (
        "mode: nftables\nclientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}",
        None,
        {"backend": "nftables", "kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
    ),
}


@pytest.mark.parametrize(("body", "backend", "expected"), MEANINGS.values(), ids=MEANINGS)
def test_options(body: str, backend: str | None, expected: dict[str, Any]) -> None:
    config = read_config(file_ref("f"), (HEAD + body).encode())
    found = options_in(config, backend)
    assert found == expected
    settings_from(Settings, found)


IN_IPTABLES: str = "it counts in mode iptables alone, and nftables is in force"
IN_NFTABLES: str = "it counts in mode nftables alone, and iptables is in force"

EVERY_PART: str = """
iptables: {localhostNodePorts: true, masqueradeAll: false, masqueradeBit: 14, minSyncPeriod: 0s, syncPeriod: 30s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", syncPeriod: 30s}
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 1s, syncPeriod: 0s}
"""

IDLE: dict[str, tuple[str, str, str | None, dict[str, str]]] = {
    "what is left in the part of the mode before": (
        "iptables: {masqueradeAll: true, syncPeriod: 1h, masqueradeBit: 13, localhostNodePorts: false}",
        "nftables",
        None,
        {
            "iptables.masqueradeAll": f"{IN_IPTABLES}: write nftables.masqueradeAll",
            "iptables.syncPeriod": f"{IN_IPTABLES}: write nftables.syncPeriod",
            "iptables.masqueradeBit": f"{IN_IPTABLES}: write nftables.masqueradeBit",
            "iptables.localhostNodePorts": (
                f"{IN_IPTABLES}, where node ports are open on loopback if localhost is among nodePortAddresses"
            ),
        },
    ),
    "the other way": (
        "nftables: {minSyncPeriod: 5s}\niptables: {masqueradeAll: true}",
        "iptables",
        None,
        {"nftables.minSyncPeriod": f"{IN_NFTABLES}: write iptables.minSyncPeriod"},
    ),
    "what both parts say alike": (
        "nftables: {masqueradeAll: true, masqueradeBit: 3}\niptables: {masqueradeAll: true, masqueradeBit: 4}",
        "nftables",
        None,
        {"iptables.masqueradeBit": f"{IN_IPTABLES}: write nftables.masqueradeBit"},
    ),
    "what kubeadm, EKS and --write-config-to write into every part": (
        EVERY_PART,
        "nftables",
        None,
        {},
    ),
    "another way to tell Pods apart": (
        "detectLocal: {bridgeInterface: br0, interfaceNamePrefix: veth}\nclusterCIDR: 10.0.0.0/8",
        "nftables",
        None,
        {
            "detectLocal.bridgeInterface": (
                "it counts where BridgeInterface tells Pods apart, and ClusterCIDR is in force: choose BridgeInterface"
            ),
            "detectLocal.interfaceNamePrefix": (
                "it counts where InterfaceNamePrefix tells Pods apart, and ClusterCIDR is in force: "
                "choose InterfaceNamePrefix"
            ),
        },
    ),
    "the way that a flag gives": (
        "detectLocal: {bridgeInterface: br0}\nclusterCIDR: 10.0.0.0/8",
        "nftables",
        "BridgeInterface",
        {
            "clusterCIDR": (
                "it counts where ClusterCIDR tells Pods apart, and BridgeInterface is in force: choose ClusterCIDR"
            )
        },
    ),
}


@pytest.mark.parametrize(("body", "backend", "local_mode", "expected"), IDLE.values(), ids=IDLE)
def test_fields_of_what_is_not_in_force(
    body: str, backend: str, local_mode: str | None, expected: dict[str, str]
) -> None:
    config = read_config(file_ref("f"), (HEAD + body).encode())
    assert config.problems == ()
    assert dict(idle_fields(config, backend, local_mode)) == expected
    idle_options = {option for option, path in paths_of(backend).items() if path in expected}
    assert idle_options.isdisjoint(options_in(config, backend, local_mode))


@pytest.mark.parametrize(("mode", "words"), [("ipvs", "use nftables"), ("userspace", "write nftables or iptables")])
def test_a_mode_that_is_not_built_says_what_to_do(mode: str, words: str) -> None:
    config = read_config(file_ref("f"), f"{HEAD}mode: {mode}".encode())
    with pytest.raises(SettingsError, match=words):
        options_in(config)


def test_flags_go_before_the_file_and_what_changes_nothing_is_said(tmp_path: Any) -> None:
    path = tmp_path / "config.conf"
    path.write_text(f"{HEAD}mode: nftables\nclusterCIDR: 10.244.0.0/16\noomScoreAdj: 5\nipvs: {{scheduler: wrr}}\n")
    said: list[str] = []
    given = FEATURE.configured({"config": str(path), "cluster_cidr": "10.1.0.0/16"}, said.append)
    settings = settings_from(Settings, given)
    assert (settings.cluster_cidr, settings.oom_score_adj, settings.backend) == ("10.1.0.0/16", 5, "nftables")
    assert said == [f"{path}:6: warning: ipvs.scheduler: it changes nothing here: mode ipvs is not built yet"]


@pytest.mark.parametrize("text", [None, "mode: 3"])
def test_a_file_that_cannot_be_used_is_a_mistake(text: str | None, tmp_path: Any) -> None:
    path = tmp_path / "config.conf"
    if text is not None:
        path.write_text(HEAD + text)
    with pytest.raises(SettingsError, match=str(path)):
        FEATURE.configured({"config": str(path)}, lambda _line: None)
