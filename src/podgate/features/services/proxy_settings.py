"""proxy_settings: what a KubeProxyConfiguration means as options of ``podgate services``.

Here: field by field. Not here: reading the file (proxy_config.py), the old program's flags (proxy_flags.py).
Invariant: an option that the file says nothing of is not given, so that it keeps its default, or a flag's value.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from podgate.commandline.options import SettingsError
from podgate.features.services.addresses import span, within
from podgate.features.services.node import is_loopback
from podgate.features.services.proxy_config import (
    HEALTH_PORT,
    METRICS_PORT,
    ProxyConfig,
    is_usual,
    node_name,
    usual_pages,
    with_port,
)
from podgate.features.services.proxy_fields import EXTERNAL_IPS_GATE, FIELDS, SECOND
from podgate.features.services.settings import ALL, LOCALHOST
from podgate.model.durations import go_text
from podgate.model.spelling import did_you_mean

NO_IPVS: Final = (
    "mode ipvs is not built yet: use nftables, which is as fast with any number of Services; "
    "what kube-proxy left in ipvs mode is removed by its own --cleanup"
)
_MODES: Final = {"": "iptables", "iptables": "iptables", "nftables": "nftables"}
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+(?:e-[0-9]+)?|e-[0-9]+)")
"""How a float of seconds is shown by default."""
_ON_LOOPBACK: Final = f"node ports are open on loopback if {LOCALHOST} is among nodePortAddresses"


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / SECOND


def in_go_form(path: str, message: str) -> str:
    """Write the seconds that a message names as Go does, where it is about a field that is a duration."""
    if FIELDS[path].type != "duration":
        return message
    return _NUMBER.sub(lambda found: go_text(round(float(found[0]) * SECOND)), message)


def _same(value: Any) -> Any:
    return value


_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "clientConnection.kubeconfig": ("kubeconfig", _same),
    "clusterCIDR": ("cluster_cidr", _same),
    "conntrack.maxPerCore": ("conntrack_max_per_core", _same),
    "conntrack.min": ("conntrack_min", _same),
    "conntrack.tcpBeLiberal": ("conntrack_tcp_be_liberal", _same),
    "conntrack.tcpCloseWaitTimeout": ("conntrack_tcp_timeout_close_wait", _seconds),
    "conntrack.tcpEstablishedTimeout": ("conntrack_tcp_timeout_established", _seconds),
    "conntrack.udpStreamTimeout": ("conntrack_udp_timeout_stream", _seconds),
    "conntrack.udpTimeout": ("conntrack_udp_timeout", _seconds),
    "detectLocal.bridgeInterface": ("pod_bridge_interface", _same),
    "detectLocal.interfaceNamePrefix": ("pod_interface_name_prefix", _same),
    "detectLocalMode": ("detect_local_mode", _same),
    "healthzBindAddress": ("health_addr", partial(with_port, port=HEALTH_PORT)),
    "hostnameOverride": ("node_name", node_name),
    "metricsBindAddress": ("metrics_addr", partial(with_port, port=METRICS_PORT)),
    "nodePortAddresses": ("nodeport_addresses", ",".join),
    "oomScoreAdj": ("oom_score_adj", _same),
    "serviceProxyName": ("service_proxy_name", _same),
}
_BY_MODE: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "masqueradeAll": ("masquerade_all", _same),
    "masqueradeBit": ("masquerade_bit", _same),
    "minSyncPeriod": ("min_sync_period", _seconds),
    "syncPeriod": ("sync_period", _seconds),
}
_OF_LOCAL_MODE: Final = {
    "clusterCIDR": "ClusterCIDR",
    "detectLocal.bridgeInterface": "BridgeInterface",
    "detectLocal.interfaceNamePrefix": "InterfaceNamePrefix",
}
"""Fields that count with one way to tell Pods' traffic apart alone."""
_LOCAL_MODES: Final = frozenset((*_OF_LOCAL_MODE.values(), "NodeCIDR"))


def options_in(config: ProxyConfig, backend: str | None = None, local_mode: str | None = None) -> dict[str, Any]:
    """Give the options that a configuration names, by the names of the settings.

    Args:
        config: what was read.
        backend: what ``--backend`` says, which goes before the mode in the file.
        local_mode: what ``--detect-local-mode`` says, which goes before that in the file.

    Raises:
        SettingsError: the mode is none that is built.
    """
    mode = config["mode"]
    if backend is None and mode == "ipvs":
        raise SettingsError([NO_IPVS])
    if backend is None and mode not in _MODES:
        raise SettingsError([f'"{mode}" is no mode{did_you_mean(mode, _MODES)}: write nftables or iptables'])
    chosen = backend or _MODES[mode]
    options: dict[str, Any] = {"backend": chosen, **_pages(config)}
    for path, (option, meaning) in _FIELDS.items():
        if path in config.given and _counts(path, _local_mode(config, local_mode)):
            options[option] = meaning(config.given[path])
    for name, (option, meaning) in _BY_MODE.items():
        if f"{chosen}.{name}" in config.given:
            options[option] = meaning(config.given[f"{chosen}.{name}"])
    if chosen == "iptables" and config["iptables.localhostNodePorts"]:
        options |= _with_localhost(config["nodePortAddresses"] or ())
    gates: Mapping[str, Any] = config["featureGates"]
    if EXTERNAL_IPS_GATE in gates:
        options["external_ips"] = bool(gates[EXTERNAL_IPS_GATE])
    return options


def idle_fields(config: ProxyConfig, backend: str, local_mode: str | None = None) -> Iterator[tuple[str, str]]:
    """Give the fields that change nothing since another part is in force, and what to write instead.

    What a part says unless somebody says otherwise is not named, nor what the part in force says, too. Arguments as
    above.
    """
    mode = _local_mode(config, local_mode)
    for path, value in config.given.items():
        part, _, name = path.partition(".")
        other = f"{backend}.{name}"
        if is_usual(path, value) or FIELDS[path].unused:
            continue
        if part in _MODES and part != backend and not (other in FIELDS and config.given.get(other) == value):
            why = f"it counts in mode {part} alone, and {backend} is in force"
            yield path, f"{why}: write {other}" if other in FIELDS else f"{why}, where {_ON_LOOPBACK}"
        elif not _counts(path, mode):
            wanted = _OF_LOCAL_MODE[path]
            yield path, f"it counts where {wanted} tells Pods apart, and {mode} is in force: choose {wanted}"


def _counts(path: str, local_mode: str) -> bool:
    """Whether a field counts with a way to tell Pods' traffic apart; with one that there is not, nobody knows."""
    return local_mode not in _LOCAL_MODES or _OF_LOCAL_MODE.get(path, local_mode) == local_mode


def _local_mode(config: ProxyConfig, given: str | None) -> str:
    return str(given or config["detectLocalMode"] or "ClusterCIDR")


def paths_of(backend: str) -> Mapping[str, str]:
    """Give the field of the configuration that stands for each option, with a back end."""
    return {
        **{option: path for path, (option, _) in _FIELDS.items()},
        **{option: f"{backend}.{name}" for name, (option, _) in _BY_MODE.items()},
        "backend": "mode",
        "external_ips": f"featureGates.{EXTERNAL_IPS_GATE}",
    }


def _pages(config: ProxyConfig) -> dict[str, str]:
    return {_FIELDS[path][0]: address for path, address in usual_pages(config["bindAddress"]).items()}


def _with_localhost(words: Sequence[str]) -> dict[str, str]:
    """Open node ports on IPv4 loopback addresses too, if these words hold some, as kube-proxy does; none hold all."""
    ranges = [given for word in words if (given := span(word)) is not None]
    if words and not any(within(_LOOPBACK, (each,)) or (len(each[0]) == 4 and is_loopback(each[0])) for each in ranges):
        return {}
    return {"nodeport_addresses": ",".join((*(words or (ALL,)), LOCALHOST))}


_LOOPBACK: Final = bytes((127, 0, 0, 1))
