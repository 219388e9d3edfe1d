"""Why a port has no endpoint: check and explain say the same."""

from typing import Any

import pytest

from podgate.features.services.check import check
from podgate.features.services.compile import Compiler
from podgate.features.services.endpoints import Here
from podgate.features.services.explain import Asker
from podgate.features.services.lacking import lack_of
from podgate.features.services.settings import Settings
from podgate.features.services.slices import read_slice
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from tests.support.service_inputs import inputs_of

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]},
}
NOT_READY = {"addresses": ["10.244.2.3"], "conditions": {"ready": False}}


def of_web(**fields: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "web"}
    meta = {"name": f"web-{fields['addressType']}", "labels": labels}
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, **fields}


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([], "NoEndpoints"),
        ([of_web(addressType="IPv6", endpoints=[{"addresses": ["fd00::1"]}], ports=[{"name": "x"}])], "NoEndpoints"),
        ([of_web(addressType="IPv4", endpoints=[NOT_READY], ports=[{"name": "http", "port": 80}])], "NotReady"),
        ([of_web(addressType="IPv4", endpoints=[NOT_READY], ports=[{"name": "htp", "port": 80}])], "NoSuchPort"),
    ],
)
def test_check_and_explain_give_one_reason(slices: list[dict[str, Any]], reason: str) -> None:
    settings = Settings(node_name="node-1", cluster_cidr="10.244.0.0/16")
    inputs = inputs_of([SERVICE, *slices], settings)
    intent = Compiler(settings, lambda found: found)(inputs).states
    assert intent.ip is not None
    ((port,),) = intent.ip.ports.values()
    read = [facts for ref, each in inputs.objects.objects(ENDPOINT_SLICE).items() if (facts := read_slice(ref, each))]
    lack = lack_of(port, read)
    assert lack.reason == reason
    assert [each.message for each in check(intent, inputs, settings) if each.reason == reason] == [lack.message]
    (answer,) = Asker(intent, inputs, Here("node-1"), None).answers("web:80")
    assert answer.decision.reason == lack.message
