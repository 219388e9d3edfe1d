"""old_metrics: kube-proxy's metrics by their names, from our own.

Here: which reading becomes which. Not here: our own metrics (engine/status.py, feature.py).
Invariant: a name that stands here means what it means in kube-proxy; what cannot be told is not there.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from podgate.observe.metrics import Distribution, Measured, Reading

_FAMILIES: Final[Mapping[str, str]] = {"nftables/ip": "IPv4", "nftables/ip6": "IPv6"}


def old_metrics(readings: Iterable[Reading], now: float) -> Iterator[Measured]:
    """Give kube-proxy's metrics.

    Args:
        readings: ours.
        now: seconds since 1970.
    """
    for each in readings:
        labels = dict(each.labels)
        family = _FAMILIES.get(labels.get("step", ""))
        if family is not None:
            yield from _of_step(each, family, labels, now)


def _of_step(each: Reading, family: str, labels: Mapping[str, str], now: float) -> Iterator[Measured]:
    by_family = (("ip_family", family),)
    match each.name:
        case "podgate_services_sync_duration_seconds" if isinstance(each.value, Distribution):
            yield Measured(
                "kubeproxy_sync_proxy_rules_duration_seconds",
                each.value,
                by_family,
                "histogram",
                "Duration of a pass that wrote what had changed.",
            )
        case "podgate_services_sync_age_seconds" if not isinstance(each.value, Distribution):
            yield Measured(
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                now - each.value,
                by_family,
                help="When the rules were last seen right.",
            )
        case "podgate_services_sync_total" if labels.get("result") == "failure":
            yield Measured(
                "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
                each.value,
                by_family,
                "counter",
                "Passes that failed.",
            )
        case _:
            return
