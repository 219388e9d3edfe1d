"""proxy_flags: the flags of kube-proxy, and which fields of its configuration they are. Pure.

Here: names, types, meanings. Not here: their syntax (commandline/posixflags.py), what fields do (proxy_settings.py).
Invariant: the flags are the old program's; with --config it looks at no other but --hostname-override, and says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from podgate.commandline.goflags import FlagError, Type
from podgate.commandline.posixflags import read_posix_flags
from podgate.features.services.proxy_config import with_port
from podgate.features.services.proxy_fields import FIELDS
from podgate.model.durations import NotADuration, parse
from podgate.model.frozen import Frozen


class ProxyFlag(NamedTuple):
    """One flag: its type on the command line, and the fields that it sets."""

    type: Type
    fields: tuple[str, ...] = ()


FLAGS: Final[dict[str, ProxyFlag]] = {
    "bind-address": ProxyFlag("string", ("bindAddress",)),
    "bind-address-hard-fail": ProxyFlag("bool", ("bindAddressHardFail",)),
    "cleanup": ProxyFlag("bool"),
    "cluster-cidr": ProxyFlag("string", ("clusterCIDR",)),
    "config": ProxyFlag("string"),
    "config-sync-period": ProxyFlag("string", ("configSyncPeriod",)),
    "conntrack-max-per-core": ProxyFlag("int", ("conntrack.maxPerCore",)),
    "conntrack-min": ProxyFlag("int", ("conntrack.min",)),
    "conntrack-tcp-be-liberal": ProxyFlag("bool", ("conntrack.tcpBeLiberal",)),
    "conntrack-tcp-timeout-close-wait": ProxyFlag("string", ("conntrack.tcpCloseWaitTimeout",)),
    "conntrack-tcp-timeout-established": ProxyFlag("string", ("conntrack.tcpEstablishedTimeout",)),
    "conntrack-udp-timeout": ProxyFlag("string", ("conntrack.udpTimeout",)),
    "conntrack-udp-timeout-stream": ProxyFlag("string", ("conntrack.udpStreamTimeout",)),
    "detect-local-mode": ProxyFlag("string", ("detectLocalMode",)),
    "feature-gates": ProxyFlag("string", ("featureGates",)),
    "healthz-bind-address": ProxyFlag("string", ("healthzBindAddress",)),
    "healthz-port": ProxyFlag("int"),
    "hostname-override": ProxyFlag("string", ("hostnameOverride",)),
    "init-only": ProxyFlag("bool"),
    "iptables-localhost-nodeports": ProxyFlag("bool", ("iptables.localhostNodePorts",)),
    "iptables-masquerade-bit": ProxyFlag("int", ("iptables.masqueradeBit", "nftables.masqueradeBit")),
    "iptables-min-sync-period": ProxyFlag("string", ("iptables.minSyncPeriod", "nftables.minSyncPeriod")),
    "iptables-sync-period": ProxyFlag("string", ("iptables.syncPeriod", "nftables.syncPeriod")),
    "ipvs-exclude-cidrs": ProxyFlag("string", ("ipvs.excludeCIDRs",)),
    "ipvs-min-sync-period": ProxyFlag("string", ("ipvs.minSyncPeriod",)),
    "ipvs-scheduler": ProxyFlag("string", ("ipvs.scheduler",)),
    "ipvs-strict-arp": ProxyFlag("bool", ("ipvs.strictARP",)),
    "ipvs-sync-period": ProxyFlag("string", ("ipvs.syncPeriod",)),
    "ipvs-tcp-timeout": ProxyFlag("string", ("ipvs.tcpTimeout",)),
    "ipvs-tcpfin-timeout": ProxyFlag("string", ("ipvs.tcpFinTimeout",)),
    "ipvs-udp-timeout": ProxyFlag("string", ("ipvs.udpTimeout",)),
    "kube-api-burst": ProxyFlag("int", ("clientConnection.burst",)),
    "kube-api-content-type": ProxyFlag("string", ("clientConnection.contentType",)),
    "kube-api-qps": ProxyFlag("string", ("clientConnection.qps",)),
    "kubeconfig": ProxyFlag("string", ("clientConnection.kubeconfig",)),
    "masquerade-all": ProxyFlag("bool", ("iptables.masqueradeAll", "nftables.masqueradeAll")),
    "metrics-bind-address": ProxyFlag("string", ("metricsBindAddress",)),
    "metrics-port": ProxyFlag("int"),
    "nodeport-addresses": ProxyFlag("string", ("nodePortAddresses",)),
    "oom-score-adj": ProxyFlag("int", ("oomScoreAdj",)),
    "pod-bridge-interface": ProxyFlag("string", ("detectLocal.bridgeInterface",)),
    "pod-interface-name-prefix": ProxyFlag("string", ("detectLocal.interfaceNamePrefix",)),
    "profiling": ProxyFlag("bool", ("enableProfiling",)),
    "proxy-mode": ProxyFlag("string", ("mode",)),
    "show-hidden-metrics-for-version": ProxyFlag("string", ("showHiddenMetricsForVersion",)),
    "version": ProxyFlag("bool"),
    "write-config-to": ProxyFlag("string"),
}
"""Name to what it is."""

WITHOUT_EFFECT: Final[dict[str, Type]] = {
    "boot-id-file": "string",
    "log-flush-frequency": "string",
    "log-json-info-buffer-size": "string",
    "log-json-split-stream": "bool",
    "log-text-info-buffer-size": "string",
    "log-text-split-stream": "bool",
    "logging-format": "string",
    "machine-id-file": "string",
    "master": "string",
    "proxy-port-range": "string",
    "v": "string",
    "vmodule": "string",
}
"""Flags that are taken and change nothing."""

_TYPES: Final[dict[str, Type]] = {**{name: flag.type for name, flag in FLAGS.items()}, **WITHOUT_EFFECT}
_BESIDE_CONFIG: Final = frozenset({"config", "hostname-override", "cleanup", "init-only", "version", "write-config-to"})
_GATE_WORDS: Final = {"true": True, "false": False}


class ProxyFlags(Frozen, frozen=True):
    """What a command line says.

    Attributes:
        fields: fields of the configuration, as in ProxyConfig.given.
        config: the file of ``--config``, empty for none.
        write_to: the file of ``--write-config-to``, empty for none.
        cleanup, init_only, version: as the flags are called.
        notes: what should be known about a command line that is taken as it is.
    """

    fields: Mapping[str, Any] = {}
    config: str = ""
    write_to: str = ""
    cleanup: bool = False
    init_only: bool = False
    version: bool = False
    notes: tuple[str, ...] = ()


def read_flags(words: Sequence[str]) -> ProxyFlags:
    """Read a command line, without the program's name. Raises FlagError."""
    given, others = read_posix_flags(words, _TYPES, {"v": "v"})
    if others:
        raise FlagError(f'unknown command "{others[0]}" for "kube-proxy"')
    config = str(given.get("config", ""))
    notes = [f"--{name} has no effect here: remove it" for name in given if name in WITHOUT_EFFECT]
    looked_at = {name: value for name, value in given.items() if name in FLAGS}
    if config:
        ignored = [name for name in looked_at if name not in _BESIDE_CONFIG]
        notes += [f"--{name} is not looked at, since --config is given: write it there" for name in ignored]
        looked_at = {name: value for name, value in looked_at.items() if name in _BESIDE_CONFIG}
    return ProxyFlags(
        fields=_with_ports(dict(_fields(looked_at)), looked_at),
        config=config,
        write_to=str(given.get("write-config-to", "")),
        cleanup=given.get("cleanup") is True,
        init_only=given.get("init-only") is True,
        version=given.get("version") is True,
        notes=tuple(notes),
    )


_PORTS: Final = {"healthz-port": "healthzBindAddress", "metrics-port": "metricsBindAddress"}
"""Deprecated flags, which the old program hides: 0 is nowhere; others count where the address has no port."""

_LAST_PORT: Final = 65535


def _with_ports(fields: dict[str, Any], given: Mapping[str, str | bool]) -> dict[str, Any]:
    for name, path in _PORTS.items():
        if name in given:
            port = int(given[name])
            if not 0 <= port <= _LAST_PORT:
                raise FlagError(f'invalid argument "{port}" for "--{name}" flag: write 0 to {_LAST_PORT}')
            fields[path] = with_port(fields.get(path, FIELDS[path].default), port) if port else ""
    return fields


def _fields(given: Mapping[str, str | bool]) -> Iterator[tuple[str, Any]]:
    for name, text in given.items():
        for path in FLAGS[name].fields:
            yield path, _value(name, path, text)


def _value(name: str, path: str, text: str | bool) -> Any:
    if isinstance(text, bool):
        return text
    match FIELDS[path].type:
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        case "map":
            return dict(_gate(part) for part in text.split(",") if part.strip())
        case "duration":
            try:
                return parse(text)
            except NotADuration as problem:
                raise FlagError(f'invalid argument "{text}" for "--{name}" flag: {problem}') from problem
        case _:
            return text


def _gate(text: str) -> tuple[str, bool]:
    name, equals, value = text.strip().partition("=")
    if not equals or value.lower() not in _GATE_WORDS:
        raise FlagError(f'invalid argument "{text}" for "--feature-gates" flag: write NAME=true or NAME=false')
    return name, _GATE_WORDS[value.lower()]
