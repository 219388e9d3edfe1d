"""What load balancers and the kubelet are told, as tables."""

import json

import pytest

from podgate.features.services.health import is_healthy, proxy_page, service_page
from podgate.features.services.intent import FAMILIES, HealthCheck

PROXY = {
    # behind, eligible, asks: status, keys
    "all is well": (0.0, True, True, 200),
    "a change waits, not for long": (59.0, True, True, 200),
    "a change has waited for two periods": (60.0, True, True, 503),
    "the node is being removed": (0.0, False, True, 503),
    "the kubelet does not ask that": (0.0, False, False, 200),
    "the kubelet asks for the rest": (61.0, False, False, 503),
}


@pytest.mark.parametrize(("behind", "eligible", "asks", "status"), PROXY.values(), ids=PROXY)
def test_the_proxy(behind: float, status: int, *, eligible: bool, asks: bool) -> None:
    healthy = is_healthy(behind, 30.0)
    found, kind, body, *_ = proxy_page(1_000_000.5, behind, healthy=healthy, eligible=eligible, asks_eligible=asks)
    said = json.loads(body)
    assert (found, kind) == (status, "application/json")
    assert said["currentTime"] == "1970-01-12T13:46:40.500000Z"
    assert (said["lastUpdated"] == said["currentTime"]) is healthy
    assert ("nodeEligible" in said) is asks


SERVICES = {
    "an endpoint here": (2, True, 200),
    "none here": (0, True, 503),
    "the proxy does not work": (2, False, 503),
}


@pytest.mark.parametrize(("endpoints", "healthy", "status"), SERVICES.values(), ids=SERVICES)
def test_a_service(endpoints: int, status: int, *, healthy: bool) -> None:
    found, _, body, *more = service_page(HealthCheck("shop", "web", endpoints, 7), "ip", healthy=healthy)
    assert found == status
    assert json.loads(body) == {
        "service": {"namespace": "shop", "name": "web"},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": healthy,
    }
    assert dict(more[0]) == {
        "X-Content-Type-Options": "nosniff",
        "X-Load-Balancing-Endpoint-Weight": str(endpoints),
    }


def test_a_port_whose_service_is_gone() -> None:
    assert service_page(None, "ip", healthy=True)[0] == 404


def test_each_family_counts_its_own_endpoints() -> None:
    both, one = HealthCheck("shop", "web", 1, 0), HealthCheck("shop", "web", 1)
    assert [service_page(both, family, healthy=True)[0] for family in FAMILIES] == [200, 503]
    assert [service_page(one, family, healthy=True)[0] for family in FAMILIES] == [200, 404]
