"""passes: what passes over rules did, as kube-proxy counts it: rules written, failures of a kind.

Here: the counts. Not here: who tells of them (rules.py), how many passes failed (old_metrics.py), how long they took
(progress.py).
Invariant: only figures of the back end that is chosen are told, as with kube-proxy.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from podgate.features.services.intent import FAMILIES
from podgate.features.services.old_metrics import IP_FAMILY, RULE_TABLES
from podgate.model.machine import Family
from podgate.observe.metrics import Counter, Counters, Measured
from podgate.targets.iptables.state import TableName

_RULES: Final = "kubeproxy_sync_proxy_rules"
_FAILURES: Final[Mapping[str, Counter]] = {
    "iptables": Counter(
        f"{_RULES}_iptables_partial_restore_failures_total",
        "Passes over what had changed that failed; all is read again then.",
        ("ip_family",),
    ),
    "nftables": Counter(
        f"{_RULES}_nftables_cleanup_failures_total",
        "Times that what no rule uses any more could not be taken away.",
        ("ip_family",),
    ),
}


class Passes:
    """Counts; ``backend`` is the one that is chosen."""

    def __init__(self, backend: str) -> None:
        self._failures = _FAILURES[backend]
        self._counters = Counters((self._failures,))
        self._written: dict[tuple[Family, TableName], int] = {}
        self._last: dict[tuple[Family, TableName], int] = {}
        for family in FAMILIES:
            self._counters.add(self._failures.name, 0.0, ip_family=IP_FAMILY[family])

    def failed(self, family: Family, *, whole: bool) -> None:
        """Note such a failure; one of a pass over all is none."""
        if not whole:
            self._counters.add(self._failures.name, ip_family=IP_FAMILY[family])

    def wrote(self, family: Family, table: TableName, rules: int) -> None:
        """Note how many rules a pass wrote that has not committed yet."""
        self._written[family, table] = rules

    def committed(self, family: Family, table: TableName) -> None:
        """Note the end of a pass; one that wrote nothing had nothing to write."""
        written = self._written.pop((family, table), 0)
        if table in RULE_TABLES:
            self._last[family, table] = written

    def readings(self) -> Iterator[Measured]:
        """Give the counts."""
        yield from self._counters.samples()
        for (family, table), rules in self._last.items():
            labels = (("ip_family", IP_FAMILY[family]), ("table", table))
            yield Measured(f"{_RULES}_iptables_last", rules, labels, help="Rules of iptables that the last pass wrote.")
