"""proxy_fields: the fields of KubeProxyConfiguration v1alpha1: types, defaults, and whether they change anything here.

Here: the table. Not here: reading a configuration (proxy_config.py), what a field does (settings.py).
Invariant: every field of the old program's configuration is here, and each that changes nothing says why.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

FieldType = Literal["text", "bool", "int", "float", "duration", "list", "maps", "map"]

SECOND: Final = 1_000_000_000

_IPVS: Final = "mode ipvs is not built yet"
_WINDOWS: Final = "podgate runs on Linux"
_LOGS: Final = "podgate logs its own way: text on a terminal, JSON elsewhere"
_ADDRESSES: Final = "while somebody else holds an address, that is said and tried again, and Services work"
_CLIENT: Final = "podgate paces itself by what the API server answers (429 and Retry-After), and speaks JSON"


class ConfigField(NamedTuple):
    """One field. ``unused`` says why it changes nothing; empty for one that does. Durations are nanoseconds."""

    type: FieldType
    default: Any
    unused: str = ""


FIELDS: Final[dict[str, ConfigField]] = {
    "bindAddress": ConfigField("text", "0.0.0.0", "the Node tells this node's addresses; an IPv6 one moves pages"),  # noqa: S104 - as upstream
    "bindAddressHardFail": ConfigField("bool", default=False, unused=_ADDRESSES),
    "clientConnection.acceptContentTypes": ConfigField("text", "", _CLIENT),
    "clientConnection.burst": ConfigField("int", 10, _CLIENT),
    "clientConnection.contentType": ConfigField("text", "application/vnd.kubernetes.protobuf", _CLIENT),
    "clientConnection.kubeconfig": ConfigField("text", ""),
    "clientConnection.qps": ConfigField("float", 5, _CLIENT),
    "clusterCIDR": ConfigField("text", ""),
    "configSyncPeriod": ConfigField("duration", 900 * SECOND, "the API's watches are never listed again for no reason"),
    "conntrack.maxPerCore": ConfigField("int", 32768),
    "conntrack.min": ConfigField("int", 131072),
    "conntrack.tcpBeLiberal": ConfigField("bool", default=False),
    "conntrack.tcpCloseWaitTimeout": ConfigField("duration", 3600 * SECOND),
    "conntrack.tcpEstablishedTimeout": ConfigField("duration", 86400 * SECOND),
    "conntrack.udpStreamTimeout": ConfigField("duration", 0),
    "conntrack.udpTimeout": ConfigField("duration", 0),
    "detectLocal.bridgeInterface": ConfigField("text", ""),
    "detectLocal.interfaceNamePrefix": ConfigField("text", ""),
    "detectLocalMode": ConfigField("text", ""),
    "enableProfiling": ConfigField("bool", default=False, unused="there is no Go runtime to profile"),
    "featureGates": ConfigField("map", {}),
    "healthzBindAddress": ConfigField("text", "0.0.0.0:10256"),
    "hostnameOverride": ConfigField("text", ""),
    "iptables.localhostNodePorts": ConfigField("bool", default=True),
    "iptables.masqueradeAll": ConfigField("bool", default=False),
    "iptables.masqueradeBit": ConfigField("int", 14),
    "iptables.minSyncPeriod": ConfigField("duration", SECOND),
    "iptables.syncPeriod": ConfigField("duration", 30 * SECOND),
    "ipvs.excludeCIDRs": ConfigField("list", None, _IPVS),
    "ipvs.minSyncPeriod": ConfigField("duration", 0, _IPVS),
    "ipvs.scheduler": ConfigField("text", "", _IPVS),
    "ipvs.strictARP": ConfigField("bool", default=False, unused=_IPVS),
    "ipvs.syncPeriod": ConfigField("duration", 0, _IPVS),
    "ipvs.tcpFinTimeout": ConfigField("duration", 0, _IPVS),
    "ipvs.tcpTimeout": ConfigField("duration", 0, _IPVS),
    "ipvs.udpTimeout": ConfigField("duration", 0, _IPVS),
    "logging.flushFrequency": ConfigField("duration", 5 * SECOND, _LOGS),
    "logging.format": ConfigField("text", "text", _LOGS),
    "logging.options": ConfigField("map", {}, _LOGS),
    "logging.verbosity": ConfigField("int", 0, _LOGS),
    "logging.vmodule": ConfigField("maps", None, _LOGS),
    "metricsBindAddress": ConfigField("text", "127.0.0.1:10249"),
    "mode": ConfigField("text", ""),
    "nftables.masqueradeAll": ConfigField("bool", default=False),
    "nftables.masqueradeBit": ConfigField("int", 14),
    "nftables.minSyncPeriod": ConfigField("duration", 0),
    "nftables.syncPeriod": ConfigField("duration", 0),
    "nodePortAddresses": ConfigField("list", None),
    "oomScoreAdj": ConfigField("int", -999),
    "portRange": ConfigField("text", "", "it was for the userspace mode, which is gone upstream too"),
    "serviceProxyName": ConfigField("text", ""),
    "showHiddenMetricsForVersion": ConfigField("text", "", "no metric is hidden"),
    "windowsRunAsService": ConfigField("bool", default=False, unused=_WINDOWS),
    "winkernel.enableDSR": ConfigField("bool", default=False, unused=_WINDOWS),
    "winkernel.forwardHealthCheckVip": ConfigField("bool", default=False, unused=_WINDOWS),
    "winkernel.networkName": ConfigField("text", "", _WINDOWS),
    "winkernel.rootHnsEndpointName": ConfigField("text", "", _WINDOWS),
    "winkernel.sourceVip": ConfigField("text", "", _WINDOWS),
}
"""Path to field, in the order of the alphabet, as the old program writes them."""


EXTERNAL_IPS_GATE: Final = "AllowServiceExternalIPs"
"""The one feature gate that changes something here (KEP-5707)."""


NANOSECONDS: Final = frozenset({"logging.flushFrequency"})
"""Durations that are also given as numbers, as kubeadm writes them (component-base's TimeOrMetaDuration)."""


def means_default(path: str, value: Any) -> bool:
    """Say whether a value stands for the default: an empty one does, where the old program's type has no null.

    Where it has one, as for limits of connection tracking, 0 is a value: leave the limit as it is.
    """
    has_null = path.startswith("conntrack.") or path.endswith(".masqueradeBit") or path == "oomScoreAdj"
    return not has_null and _is_empty(value)


def _is_empty(value: Any) -> bool:
    """Whether nothing is said: also by ``logging.options`` as kubeadm writes it, with ``"0"`` for each size."""
    if isinstance(value, Mapping):
        return all(each == "0" or _is_empty(each) for each in value.values())
    return value == "" or (value == 0 and not isinstance(value, bool))
