"""health: what load balancers and the kubelet are told: kube-proxy's pages, and a Service's health check node port.

Here: the answers, from what is known. Not here: sockets, the time.
Invariant: the proxy is healthy unless a change has waited for too long; a node that is being removed is not eligible,
which load balancers see and the kubelet's liveness probe does not (KEP-3836).
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from podgate.features.services.intent import HealthCheck
from podgate.features.services.loopback_ports import SERVES, taken
from podgate.features.services.sticky import Unremembered, problem
from podgate.joints import Key
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.services import SERVICE
from podgate.model.machine import Family
from podgate.model.problems import Problem
from podgate.observe.answers import TEXT, Answer
from podgate.targets.listeners.state import ListenAddress

JSON: Final = "application/json"

_NOSNIFF: Final = (("X-Content-Type-Options", "nosniff"),)


def is_healthy(behind: float, sync_period: float) -> bool:
    """Say whether no change has waited for two sync periods, which is when kube-proxy calls itself unhealthy."""
    return behind < 2 * sync_period


def proxy_page(now: float, behind: float, *, healthy: bool, eligible: bool, asks_eligible: bool) -> Answer:
    """Answer ``/healthz``, or ``/livez`` which does not ask whether the node is eligible.

    Args:
        now: seconds since 1970.
        behind: seconds for which a change has waited.
        healthy: as ``is_healthy`` says.
        eligible: whether load balancers should send new connections here.
        asks_eligible: whether that counts.
    """
    updated = now if healthy else now - behind
    body: dict[str, Any] = {"lastUpdated": _time(updated), "currentTime": _time(now)}
    if asks_eligible:
        body["nodeEligible"] = eligible
    status = 200 if healthy and (eligible or not asks_eligible) else 503
    return status, JSON, json.dumps(body).encode(), _NOSNIFF


def service_page(check: HealthCheck | None, family: Family, *, healthy: bool) -> Answer:
    """Answer at a health check node port: 200 where an endpoint on this node is ready and the proxy works."""
    endpoints = None if check is None else check.of(family)
    if check is None or endpoints is None:
        return 404, TEXT, b"no Service has this health check node port\n"
    body = {
        "service": {"namespace": check.namespace, "name": check.name},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": healthy,
    }
    status = 200 if endpoints and healthy else 503
    weight = ("X-Load-Balancing-Endpoint-Weight", str(endpoints))
    return status, JSON, json.dumps(body).encode(), (*_NOSNIFF, weight)


class Taken(Frozen, frozen=True):
    """Says whose port cannot be had, as ``Compiled.problem_of`` (kube-proxy's reason of an Event for health checks).

    Attributes:
        node: this node's name: on others the port may be free.
        checks: health checks by port.
        owner: gives the Service of a node port that is answered on a loopback address.
    """

    node: str
    checks: Mapping[int, HealthCheck]
    owner: Callable[[ListenAddress], ObjectRef | None] = lambda _key: None

    def __call__(self, key: Key, why: str) -> Problem | None:
        """Give the problem; None where the key is of something else."""
        if isinstance(key, Unremembered):
            return problem(self.node, why)
        if isinstance(key, ListenAddress) and key.serves.startswith(tuple(SERVES.values())):
            found = self.owner(key)
            return None if found is None else taken(self.node, found, why)
        check = self.checks.get(key.port) if isinstance(key, ListenAddress) else None
        if check is None:
            return None
        ref, field = ObjectRef(SERVICE.kind, check.name, check.namespace), "spec.healthCheckNodePort"
        return Problem(ref, "error", "FailedToStartServiceHealthcheck", field, f"node {self.node}: {why}")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
