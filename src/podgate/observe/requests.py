"""requests: what this process asks of an API server, by code, method and host, and how long that takes.

Here: the counts, by the names that Kubernetes' own client has for them. Not here: sending them.
Invariant: a request counts once, when its answer begins or nothing more will come of it; a watch takes as long as it
takes to begin.
"""

from collections.abc import Callable
from typing import Final

from podgate.observe.metrics import Counter, Counters, Histogram, Measured

OnRequest = Callable[[str, str, str, float], None]
"""Told of a request, as ``RequestCounts.answered``."""

NO_ANSWER: Final = "<error>"
"""The code of a request that got none."""

_BOUNDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_TOTAL: Final = "rest_client_requests_total"
_SECONDS: Final = "rest_client_request_duration_seconds"


def uncounted(_method: str, _host: str, _code: str, _seconds: float) -> None:
    """Count nothing: for requests of a verb that ends."""


class RequestCounts:
    """Counts what the connections of one process ask."""

    def __init__(self) -> None:
        self._counters = Counters(
            (
                Counter(_TOTAL, "Requests to the API, by what was answered.", ("code", "host", "method")),
                Histogram(_SECONDS, "From a request to the API to its answer's begin.", ("host", "verb"), _BOUNDS),
            )
        )

    def answered(self, method: str, host: str, code: str, seconds: float) -> None:
        """Note a request.

        Args:
            method: as ``GET``.
            host: as ``10.0.0.1:6443``.
            code: the status, or ``NO_ANSWER``.
            seconds: how long it took until the answer began, or failed.
        """
        self._counters.add(_TOTAL, code=code, host=host, method=method)
        self._counters.observe(_SECONDS, seconds, host=host, verb=method)

    def readings(self) -> tuple[Measured, ...]:
        """Give the counts."""
        return self._counters.samples()
