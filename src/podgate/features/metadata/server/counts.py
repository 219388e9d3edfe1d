"""counts: the server's metrics.

Here: what is counted, and the samples. Not here: serving them (the host), log lines (journal.py).
Invariant: ``request_count`` has the name, labels and help text of metadata-proxy v0.1.12, so dashboards stay.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from podgate.observe.metrics import SECONDS, Distribution, Measured

REQUEST_COUNT: Final = "request_count"
_HELP: Final = "Number of metadata proxy requests broken down by filter result of request and HTTP response code."
_RESULTS: Final = {False: "filter_result_proxied", True: "filter_result_blocked"}
_MINE: Final = "podgate_metadata"


class Counts:
    """Grows with each request."""

    def __init__(self) -> None:
        self._codes: Counter[tuple[bool, int]] = Counter()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._buckets = [0] * (len(SECONDS) + 1)
        self._seconds = 0.0
        self.shed: Counter[str] = Counter()
        self.upstream_failures = 0
        self.clients = self.busy = self.upstreams = 0
        self.dropped_lines = self.unlogged = 0

    def request(self, verdict: str, reason: str, code: int, seconds: float) -> None:
        """Count an answered request; the latency is that of forwarded ones."""
        denied = verdict == "deny"
        self._codes[denied, code] += 1
        self._reasons[verdict, reason] += 1
        if not denied:
            self._buckets[bisect_left(SECONDS, seconds)] += 1
            self._seconds += seconds

    def samples(self) -> Iterator[Measured]:
        """Give everything as it is now."""
        for (denied, code), count in self._codes.items():
            labels = (("filter_result", _RESULTS[denied]), ("code", str(code)))
            yield Measured(REQUEST_COUNT, count, labels, "counter", _HELP)
        for (verdict, reason), count in self._reasons.items():
            labels = (("verdict", verdict), ("reason", reason))
            yield Measured(f"{_MINE}_requests_total", count, labels, "counter", "Requests by verdict and reason.")
        yield Measured(
            f"{_MINE}_request_duration_seconds",
            Distribution(SECONDS, tuple(self._buckets), self._seconds),
            kind="histogram",
            help="Duration of forwarded requests, until the answer is whole.",
        )
        text = "Connections by what they are for."
        idle = self.clients - self.busy
        for kind, count in (("client-idle", idle), ("client-busy", self.busy), ("upstream", self.upstreams)):
            yield Measured(f"{_MINE}_connections", count, (("kind", kind),), help=text)
        for why, count in self.shed.items():
            yield Measured(
                f"{_MINE}_shed_connections_total", count, (("reason", why),), "counter", "Connections given up."
            )
        totals = (
            ("upstream_failures", self.upstream_failures, "Requests that the upstream did not answer."),
            ("log_lines_dropped", self.dropped_lines, "Log lines that nobody read in time."),
            ("denials_not_logged", self.unlogged, "Denials beyond the rate that is logged."),
        )
        for name, count, words in totals:
            yield Measured(f"{_MINE}_{name}_total", count, kind="counter", help=words)
