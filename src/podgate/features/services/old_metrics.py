"""old_metrics: kube-proxy's metrics by their names, from our own, and from what is in force.

Here: which reading becomes which, Services that a policy leaves without endpoints. Not here: our own metrics
(engine/status.py, feature.py), what is counted under kube-proxy's names from the start (server/progress.py).
Invariant: a name that stands here means what it means in kube-proxy; what cannot be told is not there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Final

from podgate.features.services.intent import FAMILIES, Intent, ServicePort
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table, counted
from podgate.observe.metrics import Distribution, Measured, Reading
from podgate.targets.iptables.state import State as IptablesState

IP_FAMILY: Final[Mapping[Family, str]] = {"ip": "IPv4", "ip6": "IPv6"}
"""The families as kube-proxy's label and EndpointSlices call them."""

_FAILURES: Final[Mapping[str, str]] = {
    "nftables": "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    "iptables": "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
}
_POLICIES: Final = ("internal", "external")

RULE_TABLES: Final = ("filter", "nat")
"""The tables of iptables that have rules; there is another for the canary alone."""


def failures(readings: Iterable[Reading], backend: str) -> Iterator[Measured]:
    """Give how many passes failed, by family.

    Args:
        readings: ours.
        backend: the one that is chosen; failures of another's clean-up are not of its rules.
    """
    counts: Counter[str] = Counter()
    for each in readings:
        labels = dict(each.labels)
        kind, _, place = labels.get("step", "").partition("/")
        is_ours = each.name == "podgate_services_sync_total" and labels.get("result") == "failure"
        if is_ours and kind.startswith(backend) and not isinstance(each.value, Distribution):
            counts[place.partition("/")[0]] += int(each.value)
    for family, name in IP_FAMILY.items():
        by_family = (("ip_family", name),)
        yield Measured(_FAILURES[backend], counts[family], by_family, "counter", "Passes that failed.")


class WithoutLocal:
    """Counts the Services that have endpoints, of which a policy Local finds none on this node."""

    def __init__(self) -> None:
        self._counts: dict[str, counted[str, ObjectRef, tuple[ServicePort, ...]]] = {
            family: counted(_without_local) for family in FAMILIES
        }

    def __call__(self, intent: Intent) -> Iterator[Measured]:
        """Give the counts; only Services that changed since the last call are looked at."""
        for family in FAMILIES:
            part = intent.of(family)
            counts = self._counts[family](part.ports if part is not None else Table())
            for policy in _POLICIES:
                yield Measured(
                    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
                    counts.get(policy, 0),
                    (("ip_family", IP_FAMILY[family]), ("traffic_policy", policy)),
                    help="Services with endpoints, but none on this node, where a policy Local asks for one.",
                )


class IptablesRules:
    """Counts the rules of iptables that are ours, by table."""

    def __init__(self) -> None:
        self._counts: dict[str, counted[str, str, tuple[str, ...]]] = {}

    def __call__(self, held: Mapping[str, IptablesState]) -> Iterator[Measured]:
        """Give the counts of some tables by name; only chains that changed since the last call are looked at."""
        for name, state in held.items():
            if state.table not in RULE_TABLES:
                continue
            counts = self._counts.setdefault(name, counted(_each_rule))(state.named)
            yield Measured(
                "kubeproxy_sync_proxy_rules_iptables_total",
                counts.get(_RULE, 0) + len(state.placed),
                (("ip_family", IP_FAMILY[state.family]), ("table", state.table)),
                help="Rules of iptables that are ours.",
            )


_RULE: Final = "rule"


def _each_rule(_chain: str, rules: tuple[str, ...]) -> Iterable[str]:
    return repeat(_RULE, len(rules))


def _without_local(_ref: ObjectRef, ports: tuple[ServicePort, ...]) -> frozenset[str]:
    lonely = [port for port in ports if port.anywhere and not port.local]
    wants = {"internal": any(each.internal_local for each in lonely)}
    wants["external"] = any(each.external_local for each in lonely)
    return frozenset(policy for policy in _POLICIES if wants[policy])
