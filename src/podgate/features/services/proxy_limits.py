"""proxy_limits: what kube-proxy refuses of its configuration and the options of podgate say nothing of. Pure.

Here: limits of fields, also of those that change nothing here. Not here: types (proxy_config.py), limits that are those
of an option (settings.py).
Invariant: a configuration that is taken here kube-proxy takes too (validation.go of its configuration's API), but for
what differs by its version: feature gates, which hidden metrics there are, words in nodePortAddresses, options of logs.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from podgate.features.services.addresses import packed, span
from podgate.features.services.proxy_config import HEALTH_PORT, METRICS_PORT, ProxyConfig, with_port
from podgate.features.services.proxy_fields import FIELDS, SECOND
from podgate.features.services.settings import ALL, LOCALHOST, PRIMARY
from podgate.model.durations import go_text

_PAGE: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*)):([^:]*)")
_LAST_PORT: Final = 65535
_WHOLE: Final = (-(1 << 31), (1 << 31) - 1)
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
_WORDS: Final = (PRIMARY, LOCALHOST, ALL)
_FORMATS: Final = ("text", "json")

_NOT_NEGATIVE: Final = ("clientConnection.burst", "logging.flushFrequency", "logging.verbosity")
_OF_IPVS: Final = [path for path, field in FIELDS.items() if path.startswith("ipvs.") and field.type == "duration"]


def beyond_limits(config: ProxyConfig) -> Iterator[tuple[str, str]]:
    """Give the fields, or items of lists, that kube-proxy would refuse, with what is wrong and what to write."""
    for path, value in config.given.items():
        if FIELDS[path].type == "int" and not _WHOLE[0] <= value <= _WHOLE[1]:
            yield path, f"{value}: must be {_WHOLE[0]} to {_WHOLE[1]}"
        elif path in _NOT_NEGATIVE and value < 0:
            yield path, f"{_shown(path, value)}: must be 0 or more"
        elif path == "configSyncPeriod" and value <= 0:
            yield path, f"{_shown(path, value)}: must be more than 0"
        elif path in _OF_FIELDS:
            yield from _OF_FIELDS[path](value)
    if config["logging.format"] == "json" and config["logging.vmodule"]:
        yield "logging.vmodule", "it goes with the format text alone: leave it out"
    yield from _by_mode(config, config["mode"] or "iptables")
    if config["detectLocalMode"] in ("", "ClusterCIDR") and "clusterCIDR" in config.given:
        for text in config["clusterCIDR"].split(","):
            if span(text) is None:
                said = "write one as 10.244.0.0/16, for example, with a comma alone between two"
                yield "clusterCIDR", f'"{text}": is no range; {said}'


def _by_mode(config: ProxyConfig, mode: str) -> Iterator[tuple[str, str]]:
    bit = config["iptables.masqueradeBit"]  # of any mode; that of nftables in its own alone
    if not 0 <= bit <= 31:
        yield "iptables.masqueradeBit", f"{bit}: must be 0 to 31"
    period = f"{mode}.syncPeriod"
    if f"{mode}.minSyncPeriod" not in config.given and 0 < config.given.get(period, SECOND) < SECOND:
        yield period, f"{_shown(period, config[period])}: must be at least 1s, unless {mode}.minSyncPeriod is given too"
    if mode == "ipvs":
        for path in _OF_IPVS:
            if config[path] < 0:
                yield path, f"{_shown(path, config[path])}: must be 0 or more"
        yield from _ranges("ipvs.excludeCIDRs", config["ipvs.excludeCIDRs"] or ())


def _shown(path: str, value: Any) -> str:
    return go_text(value) if FIELDS[path].type == "duration" else str(value)


def _bound(text: str) -> Iterator[tuple[str, str]]:
    if packed(text) is None:
        yield "bindAddress", f'"{text}": is no IP address; write 0.0.0.0 or ::'


def _page(path: str, port: int) -> Callable[[str], Iterator[tuple[str, str]]]:
    def mistakes(text: str) -> Iterator[tuple[str, str]]:
        found = _PAGE.fullmatch(with_port(text, port))
        number = found[3] if found else ""
        if not text:
            return  # a flag's way to say nowhere
        if found is None or packed(found[1] or found[2] or "") is None:
            yield path, f'"{text}": write an IP address and a port, as 0.0.0.0:{port}'
        elif not (number.isascii() and number.isdecimal() and 1 <= int(number) <= _LAST_PORT):
            yield path, f'"{text}": its port must be 1 to {_LAST_PORT}'

    return mistakes


def _ranges(path: str, texts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for index, text in enumerate(texts):
        if span(text) is None:
            yield f"{path}[{index}]", f'"{text}": is no range; write one as 10.0.0.0/8, for example'


def _open_on(texts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    # Beside ranges kube-proxy takes these words from 1.37 on (KEP-6032).
    for index, text in enumerate(texts):
        if text not in _WORDS and span(text) is None:
            said = f'"{text}": write {PRIMARY}, {LOCALHOST}, {ALL}, or a range as 10.0.0.0/8'
            yield f"nodePortAddresses[{index}]", said


def _version(text: str) -> Iterator[tuple[str, str]]:
    if not _VERSION.fullmatch(text):
        yield "showHiddenMetricsForVersion", f'"{text}": is no version; write it as 1.35'


def _log_format(text: str) -> Iterator[tuple[str, str]]:
    if text not in _FORMATS:
        yield "logging.format", f'"{text}": write text or json'


def _patterns(rules: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[str, str]]:
    for index, rule in enumerate(rules):
        if not rule.get("filePattern"):
            yield f"logging.vmodule[{index}]", "it names no files: give filePattern"


_OF_FIELDS: Final[Mapping[str, Callable[[Any], Iterator[tuple[str, str]]]]] = {
    "bindAddress": _bound,
    "healthzBindAddress": _page("healthzBindAddress", HEALTH_PORT),
    "logging.format": _log_format,
    "logging.vmodule": _patterns,
    "metricsBindAddress": _page("metricsBindAddress", METRICS_PORT),
    "nodePortAddresses": _open_on,
    "showHiddenMetricsForVersion": _version,
}
