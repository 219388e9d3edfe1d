"""KubeProxyConfiguration: what is read, what is complained of, and that all defaults are written as kube-proxy does."""

from typing import Any

import pytest
import yaml

from podgate.features.services.proxy_config import nested, read_config
from podgate.features.services.proxy_fields import FIELDS
from podgate.model.frozen import file_ref

REF = file_ref("/var/lib/kube-proxy/config.conf")
HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

KUBEADM = """
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
mode: nftables
nodePortAddresses: null
"""

READ: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {}),
    "a duration in nanoseconds": ("conntrack: {udpTimeout: 1m30s}", {"conntrack.udpTimeout": 90_000_000_000}),
    "null is absent": ("nodePortAddresses: null\nconntrack: {min: null}", {}),
    "a list": ("nodePortAddresses: [primary]", {"nodePortAddresses": ("primary",)}),
    "a group's field": ("nftables: {masqueradeBit: 13}", {"nftables.masqueradeBit": 13}),
    "the period of a mode": ("nftables: {syncPeriod: 1m}", {"nftables.syncPeriod": 60_000_000_000}),
    "empty is the default, where there is no null": ('healthzBindAddress: ""', {}),
    "0 is a value, where there is": ("conntrack: {min: 0}", {"conntrack.min": 0}),
    "kubeadm's way to say nothing": (
        'logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}}',
        {},
    ),
    "gates": (
        "featureGates: {AllowServiceExternalIPs: false}",
        {"featureGates": {"AllowServiceExternalIPs": False}},
    ),
}

COMPLAINTS = {
    "unknown key": ("nodePortAddreses: []", "warning", "nodePortAddreses", 'did you mean "nodePortAddresses"'),
    "unknown key in a group": ("conntrack: {mim: 3}", "warning", "conntrack.mim", 'did you mean "conntrack.min"'),
    "a key that looks like a group's field": (
        '"iptables.masqueradeAll": true',
        "warning",
        '["iptables.masqueradeAll"]',
        "there is no such field",
    ),
    "wrong type": ("mode: 3", "error", "mode", "3 is not a text"),
    "a list for a text": (
        "clusterCIDR: [10.1.0.0/16]",
        "error",
        "clusterCIDR",
        '["10.1.0.0/16"] is not a text: write one text with commas',
    ),
    "true is no number": ("oomScoreAdj: true", "error", "oomScoreAdj", "true is not a whole number"),
    "a list of numbers": ("nodePortAddresses: [1]", "error", "nodePortAddresses", "is not a list of texts"),
    "no duration": ("configSyncPeriod: 15", "error", "configSyncPeriod", "is not a duration"),
    "a bad duration": ("configSyncPeriod: 15d", "error", "configSyncPeriod", "there is no unit"),
    "a group that is none": ("iptables: 3", "error", "iptables", "is not a map"),
    "another kind": ("kind: KubeletConfiguration", "error", "kind", "write KubeProxyConfiguration"),
    "the ConfigMap that kubectl gives": ("kind: ConfigMap\ndata: {config.conf: x}", "error", "kind", "jsonpath="),
    "another version": ("apiVersion: kubeproxy.config.k8s.io/v1", "error", "apiVersion", "v1alpha1"),
    "unused": ("ipvs: {scheduler: wrr}", "warning", "ipvs.scheduler", "mode ipvs is not built yet"),
    "another gate": ("featureGates: {X: true}", "warning", "featureGates.X", "podgate has no such gate"),
    "a gate that is a word": (
        "featureGates: {AllowServiceExternalIPs: maybe}",
        "error",
        "featureGates.AllowServiceExternalIPs",
        '"maybe" is not true or false: correct it',
    ),
    "an empty gate": ('featureGates: {X: ""}', "error", "featureGates.X", '"" is not true or false: correct it'),
    "no document": ("\0", "error", "", ""),
    "a list instead": ("[]", "error", "", "there is no KubeProxyConfiguration in it"),
}


def text_of(body: str) -> bytes:
    if body.startswith(("\0", "[")):
        return body.encode()
    lines = [line for line in HEAD.splitlines() if line.partition(":")[0] != body.partition(":")[0]]
    return "\n".join((*lines, body)).encode()


@pytest.mark.parametrize(("body", "expected"), READ.values(), ids=READ)
def test_fields_are_read(body: str, expected: dict[str, Any]) -> None:
    found = read_config(REF, text_of(body))
    assert (dict(found.given), found.problems) == (expected, ())


def test_what_kubeadm_writes_is_taken_without_a_complaint_about_defaults() -> None:
    found = read_config(REF, (HEAD + KUBEADM).encode())
    assert found.problems == ()
    assert found["clientConnection.kubeconfig"] == "/var/lib/kube-proxy/kubeconfig.conf"
    assert (found["mode"], found["clusterCIDR"]) == ("nftables", "10.244.0.0/16")
    assert found["conntrack.min"] == FIELDS["conntrack.min"].default


@pytest.mark.parametrize(("body", "severity", "field", "words"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_mistakes_are_named(body: str, severity: str, field: str, words: str) -> None:
    found = read_config(REF, text_of(body))
    (problem,) = found.problems
    assert (problem.severity, problem.field) == (severity, field)
    assert words in problem.message
    assert found.is_usable is (severity == "warning")


def test_the_defaults_are_written_with_every_field_and_read_back_as_defaults() -> None:
    written = nested({})
    assert written["conntrack"]["tcpEstablishedTimeout"] == "24h0m0s"
    assert written["iptables"] == {
        "localhostNodePorts": True,
        "masqueradeAll": False,
        "masqueradeBit": 14,
        "minSyncPeriod": "1s",
        "syncPeriod": "30s",
    }
    found = read_config(REF, yaml.safe_dump(written).encode())
    assert found.problems == ()
    assert all(found[path] in (field.default, ()) for path, field in FIELDS.items())


def test_an_unused_field_at_its_default_is_not_complained_of() -> None:
    assert read_config(REF, text_of("ipvs: {strictARP: false}")).problems == ()
