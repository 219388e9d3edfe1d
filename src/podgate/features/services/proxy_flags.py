"""proxy_flags: the flags of kube-proxy, and which fields of its configuration they are. Pure.

Here: names, types, meanings. Not here: their syntax (commandline/posixflags.py), what fields do (proxy_settings.py).
Invariant: the flags are the old program's; with --config it looks at no other but --hostname-override, and says so.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from podgate.commandline.goflags import FlagError, Type
from podgate.commandline.options import listed
from podgate.commandline.posixflags import read_posix_flags
from podgate.features.services.proxy_config import with_port
from podgate.features.services.proxy_fields import FIELDS
from podgate.model.durations import NotADuration, parse
from podgate.model.frozen import Frozen


class ProxyFlag(NamedTuple):
    """One flag: its type on the command line, the fields that it sets, and what for, where it changes anything."""

    type: Type
    fields: tuple[str, ...] = ()
    does: str = ""


class Effectless(NamedTuple):
    """A flag that is taken and changes nothing: its type on the command line, and why."""

    type: Type
    why: str


FLAGS: Final[dict[str, ProxyFlag]] = {
    "bind-address": ProxyFlag("string", ("bindAddress",)),
    "bind-address-hard-fail": ProxyFlag("bool", ("bindAddressHardFail",)),
    "cleanup": ProxyFlag(
        "bool", (), "take away what kube-proxy and podgate left in the kernel, and end; refused while either runs"
    ),
    "cluster-cidr": ProxyFlag(
        "string",
        ("clusterCIDR",),
        "the ranges of all Pods, one per family at most, for --detect-local-mode ClusterCIDR",
    ),
    "config": ProxyFlag(
        "string", (), "a KubeProxyConfiguration to go by; of the other flags only --hostname-override counts then"
    ),
    "config-sync-period": ProxyFlag("string", ("configSyncPeriod",)),
    "conntrack-max-per-core": ProxyFlag(
        "int",
        ("conntrack.maxPerCore",),
        "connections that the kernel tracks at least, times processors; 0 leaves the limit",
    ),
    "conntrack-min": ProxyFlag(
        "int", ("conntrack.min",), "connections that the kernel tracks at least, however few processors"
    ),
    "conntrack-tcp-be-liberal": ProxyFlag(
        "bool", ("conntrack.tcpBeLiberal",), "take TCP packets outside of the window as part of their connection"
    ),
    "conntrack-tcp-timeout-close-wait": ProxyFlag(
        "string",
        ("conntrack.tcpCloseWaitTimeout",),
        "for how long TCP connections in CLOSE_WAIT are tracked; 0 leaves it",
    ),
    "conntrack-tcp-timeout-established": ProxyFlag(
        "string", ("conntrack.tcpEstablishedTimeout",), "for how long idle TCP connections are tracked; 0 leaves it"
    ),
    "conntrack-udp-timeout": ProxyFlag(
        "string", ("conntrack.udpTimeout",), "for how long UDP without an answer is tracked; 0 leaves it"
    ),
    "conntrack-udp-timeout-stream": ProxyFlag(
        "string", ("conntrack.udpStreamTimeout",), "for how long UDP in both directions is tracked; 0 leaves it"
    ),
    "detect-local-mode": ProxyFlag(
        "string",
        ("detectLocalMode",),
        "how Pods' traffic is told apart: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    ),
    "feature-gates": ProxyFlag(
        "string", ("featureGates",), "NAME=true or NAME=false, with commas; podgate has AllowServiceExternalIPs alone"
    ),
    "healthz-bind-address": ProxyFlag(
        "string",
        ("healthzBindAddress",),
        "where /healthz and /livez are served; without a port 10256; empty: no page of its own",
    ),
    "healthz-port": ProxyFlag(
        "int", (), "the port of --healthz-bind-address where that names none; 0 serves no such page"
    ),
    "hostname-override": ProxyFlag("string", ("hostnameOverride",), "this node's name, as its Node has it"),
    "init-only": ProxyFlag("bool", (), "write the parameters of the kernel, which needs privileges, and end"),
    "iptables-localhost-nodeports": ProxyFlag(
        "bool", ("iptables.localhostNodePorts",), "open node ports on 127.0.0.1 too (mode iptables)"
    ),
    "iptables-masquerade-bit": ProxyFlag(
        "int",
        ("iptables.masqueradeBit", "nftables.masqueradeBit"),
        "the bit of the packet mark that says masquerade, 0 to 31, in mode nftables too",
    ),
    "iptables-min-sync-period": ProxyFlag(
        "string",
        ("iptables.minSyncPeriod", "nftables.minSyncPeriod"),
        "how long at least between two writes, in mode nftables too",
    ),
    "iptables-sync-period": ProxyFlag(
        "string",
        ("iptables.syncPeriod", "nftables.syncPeriod"),
        "how long between full reads of the rules, in mode nftables too",
    ),
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
    "kubeconfig": ProxyFlag(
        "string", ("clientConnection.kubeconfig",), "how the API is reached; empty for the Pod's own account"
    ),
    "logging-format": ProxyFlag("string", ("logging.format",)),
    "masquerade-all": ProxyFlag(
        "bool",
        ("iptables.masqueradeAll", "nftables.masqueradeAll"),
        "give Pods' traffic to cluster IPs this node's address too",
    ),
    "metrics-bind-address": ProxyFlag(
        "string",
        ("metricsBindAddress",),
        "where /metrics, /proxyMode and /configz are served; without a port 10249; empty for nowhere",
    ),
    "metrics-port": ProxyFlag(
        "int", (), "the port of --metrics-bind-address where that names none; 0 serves no such page"
    ),
    "nodeport-addresses": ProxyFlag(
        "string", ("nodePortAddresses",), "where node ports are open: primary, or ranges, with commas"
    ),
    "oom-score-adj": ProxyFlag(
        "int",
        ("oomScoreAdj",),
        "how much rather the kernel ends this process than others, -1000 to 1000",
    ),
    "pod-bridge-interface": ProxyFlag(
        "string", ("detectLocal.bridgeInterface",), "the bridge that Pods' traffic comes from, for BridgeInterface"
    ),
    "pod-interface-name-prefix": ProxyFlag(
        "string", ("detectLocal.interfaceNamePrefix",), "how names of Pods' interfaces begin, for InterfaceNamePrefix"
    ),
    "profiling": ProxyFlag("bool", ("enableProfiling",)),
    "proxy-mode": ProxyFlag(
        "string", ("mode",), "what rules are written to: iptables or nftables; ipvs is not built (exit 2)"
    ),
    "show-hidden-metrics-for-version": ProxyFlag("string", ("showHiddenMetricsForVersion",)),
    "version": ProxyFlag("bool", (), "print the version, and end"),
    "write-config-to": ProxyFlag("string", (), "write the configuration that the flags mean to this file, and end"),
}
"""Name to what it is."""

_NO_LOG: Final = FIELDS["logging.format"].unused
_NO_MASTER: Final = "the kubeconfig says where the API is"
_NO_ID: Final = "nobody asks for this machine's identity"

WITHOUT_EFFECT: Final[dict[str, Effectless]] = {
    "boot-id-file": Effectless("string", _NO_ID),
    "log-flush-frequency": Effectless("string", _NO_LOG),
    "log-json-info-buffer-size": Effectless("string", _NO_LOG),
    "log-json-split-stream": Effectless("bool", _NO_LOG),
    "log-text-info-buffer-size": Effectless("string", _NO_LOG),
    "log-text-split-stream": Effectless("bool", _NO_LOG),
    "machine-id-file": Effectless("string", _NO_ID),
    "master": Effectless("string", _NO_MASTER),
    "proxy-port-range": Effectless("string", FIELDS["portRange"].unused),
    "v": Effectless("string", _NO_LOG),
    "vmodule": Effectless("string", _NO_LOG),
}
"""Flags of no field that are taken and change nothing."""

_TYPES: Final[dict[str, Type]] = {
    **{name: flag.type for name, flag in FLAGS.items()},
    **{name: flag.type for name, flag in WITHOUT_EFFECT.items()},
}
_BESIDE_CONFIG: Final = frozenset({"config", "hostname-override", "cleanup", "init-only", "version", "write-config-to"})
_OPTION: Final = re.compile(r"--[a-z][a-z-]*")
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
    notes = [_effectless(name, WITHOUT_EFFECT[name].why) for name in given if name in WITHOUT_EFFECT]
    looked_at = {name: value for name, value in given.items() if name in FLAGS}
    if config:
        ignored = [name for name in looked_at if name not in _BESIDE_CONFIG]
        notes += [f"--{name} is not looked at, since --config is given: write it there" for name in ignored]
        looked_at = {name: value for name, value in looked_at.items() if name in _BESIDE_CONFIG}
    fields = _with_ports(dict(_fields(looked_at)), looked_at)
    for name in looked_at:
        why = unused_why(FLAGS[name])
        if why and any(fields.get(path, FIELDS[path].default) != FIELDS[path].default for path in FLAGS[name].fields):
            notes.append(_effectless(name, why))
    return ProxyFlags(
        fields=fields,
        config=config,
        write_to=str(given.get("write-config-to", "")),
        cleanup=given.get("cleanup") is True,
        init_only=given.get("init-only") is True,
        version=given.get("version") is True,
        notes=tuple(notes),
    )


def unused_why(flag: ProxyFlag) -> str:
    """Say why a flag changes nothing; empty for one that does."""
    return FIELDS[flag.fields[0]].unused if flag.fields else ""


def flag_of(path: str) -> str:
    """Give the flag that sets a field, of which ``path`` may name an item."""
    field = path.partition("[")[0]
    return next(name for name, flag in FLAGS.items() if field in flag.fields)


def in_old_words(mistake: str, options: Mapping[str, str]) -> str:
    """Name the flags of kube-proxy in place of podgate's.

    Args:
        mistake: what is wrong with options of podgate.
        options: the field that stands for each of them (proxy_settings.paths_of).
    """
    flags = {path: name for name, flag in FLAGS.items() for path in flag.fields}
    names = {f"--{option.replace('_', '-')}": flags[path] for option, path in options.items() if path in flags}
    return _OPTION.sub(lambda found: f"--{names[found[0]]}" if found[0] in names else found[0], mistake)


def _effectless(name: str, why: str) -> str:
    return f"--{name} has no effect here ({why}): remove it"


_PORTS: Final = {"healthz-port": "healthzBindAddress", "metrics-port": "metricsBindAddress"}
"""Deprecated flags, which the old program hides: 0 is nowhere; others count where the address has no port."""

_LAST_PORT: Final = 65535
_EMPTY_IS_USUAL: Final = ("bindAddress", "detectLocalMode")
"""Fields whose flag without a text says as much as no flag."""


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
            if text != "" or path not in _EMPTY_IS_USUAL:
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
            return listed(text)
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
