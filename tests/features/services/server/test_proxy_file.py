"""Where in a KubeProxyConfiguration something is wrong: file, line, field."""

from pathlib import Path
from typing import Any

import pytest

from podgate.commandline.options import SettingsError
from podgate.features.services.server.proxy_file import configured_by

HEAD = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
"""

MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no YAML": ("a: [", {}, "FILE:5: error: not YAML"),
    "a wrong type": ("oomScoreAdj: yes", {}, "FILE:4: error: oomScoreAdj: true is not a whole number: correct it"),
    "in a group": (
        "iptables:\n  masqueradeAll: false\n  syncPeriod: 3d\n",
        {},
        'FILE:6: error: iptables.syncPeriod: "3d" is no duration',
    ),
    "a value that no type tells": (
        "clusterCIDR: ten",
        {},
        'FILE:4: error: clusterCIDR: "ten": is no range; write one as 10.244.0.0/16, for example',
    ),
    "an item of a list": (
        "nodePortAddresses:\n- primary\n- here\n",
        {},
        'FILE:6: error: nodePortAddresses[1]: "here": write primary, localhost, all, or a range as 10.0.0.0/8',
    ),
    "a field of the mode that is chosen": (
        "nftables:\n  masqueradeBit: 40",
        {},
        "FILE:5: error: nftables.masqueradeBit: 40: must be 0 to 31",
    ),
    "a field that needs another": (
        "detectLocalMode: BridgeInterface",
        {},
        "FILE:4: error: detectLocalMode: BridgeInterface: give detectLocal.bridgeInterface too",
    ),
    "an address": ("metricsBindAddress: nowhere:1", {}, 'FILE:4: error: metricsBindAddress: "nowhere:1": '),
    "the back end": (
        "mode: ipvs",
        {},
        "FILE:3: error: mode: mode ipvs is not built yet",
    ),
    "a flag": (
        "clusterCIDR: 10.0.0.0/8",
        {"cluster_cidr": "ten"},
        '--cluster-cidr "ten": is no range; write one as 10.244.0.0/16, for example',
    ),
}


@pytest.mark.parametrize(("body", "given", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_its_place(body: str, given: dict[str, Any], expected: str, tmp_path: Path) -> None:
    file = tmp_path / "config.conf"
    file.write_text(HEAD.replace("mode: nftables\n", "") + body if body.startswith("mode") else HEAD + body)
    with pytest.raises(SettingsError) as raised:
        configured_by(str(file), {"config": str(file), **given}, lambda _line: None)
    (problem,) = raised.value.problems
    assert problem.replace(str(file), "FILE").startswith(expected)


def test_what_changes_nothing_is_said_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config.conf"
    said: list[str] = []
    file.write_text(f"{HEAD}winkernel:\n  enableDSR: true\nnodePortAdresses: []\n")
    assert configured_by(str(file), {}, said.append).options == {"backend": "nftables"}
    assert len(said) == 2
    assert said[0].startswith(f"{file}:5: warning: winkernel.enableDSR: it changes nothing here")
    assert said[1].startswith(f"{file}:6: warning: nodePortAdresses: there is no such field")


def test_fields_of_another_mode_or_way_to_tell_pods_apart_are_named_with_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "config.conf"
    said: list[str] = []
    file.write_text(
        f"{HEAD}iptables:\n  masqueradeAll: true\ndetectLocal:\n  bridgeInterface: br0\nwinkernel: {{sourceVip: x}}\n"
    )
    configured_by(str(file), {"config": str(file)}, said.append)
    places = [line.removeprefix(f"{file}:").partition(" it changes nothing here: ")[::2] for line in said]
    assert places == [
        (
            "5: warning: iptables.masqueradeAll:",
            "it counts in mode iptables alone, and nftables is in force: write nftables.masqueradeAll",
        ),
        (
            "7: warning: detectLocal.bridgeInterface:",
            "it counts where BridgeInterface tells Pods apart, and ClusterCIDR is in force: choose BridgeInterface",
        ),
        ("8: warning: winkernel.sourceVip:", "podgate runs on Linux"),
    ]
    said.clear()
    configured_by(str(file), {"backend": "iptables", "detect_local_mode": "BridgeInterface"}, said.append)
    assert len(said) == 1, "flags go before the file"


MANY = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftable
clusterCIDR: 10.244.0.0/33
detectLocalMode: Foo
conntrack:
  maxPerCore: "3"
  min: -1
nftables: {syncPeriod: 5, minSyncPeriod: 60s}
oomScoreAdj: 2000
bogus: 1
"""


def test_mistakes_of_every_sort_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.conf"
    file.write_text(MANY)
    with pytest.raises(SettingsError) as raised:
        configured_by(str(file), {"masquerade_bit": 99}, lambda _line: None)
    said = [problem.removeprefix(f"{file}:") for problem in raised.value.problems]
    assert said == [
        "--masquerade-bit 99: must be 0 to 31",
        '3: error: mode: "nftable" is no mode (did you mean "nftables"?): write nftables or iptables',
        '4: error: clusterCIDR: "10.244.0.0/33": is no range; write one as 10.244.0.0/16, for example',
        '5: error: detectLocalMode: "Foo": must be one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix',
        '7: error: conntrack.maxPerCore: "3" is not a whole number: correct it',
        "8: error: conntrack.min: -1: must be 0 or more",
        # That minSyncPeriod is longer than the default of syncPeriod is not said: nobody knows what that was to be.
        "9: error: nftables.syncPeriod: 5 is not a duration as 30s or 1h30m: correct it",
        "10: error: oomScoreAdj: 2000: must be -1000 to 1000",
        "11: warning: bogus: there is no such field: it changes nothing",
    ]


def test_what_only_a_mistyped_field_would_tell_is_not_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "config.conf"
    file.write_text(f"{HEAD}detectLocalMode: BridgeInterface\ndetectLocal: 3\n")
    with pytest.raises(SettingsError) as raised:
        configured_by(str(file), {}, lambda _line: None)
    assert raised.value.problems == (f"{file}:5: error: detectLocal: 3 is not a map: write its fields below it",)
