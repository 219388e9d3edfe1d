"""The real kube-proxy as the oracle: what podgate expects of packets is what kube-proxy does with them.

Here: the flows of tests/features/services/flows through kube-proxy, and through podgate in its place, with the same
file and API. Not here: podgate's own command line (tests/agent).
Invariant: whatever it does differently has its reason in docs/critiques/kube-proxy.md and stands in ``EXPLAINED``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from podgate.lab.kinds import Object
from tests.features.services.flows import FAMILIES, for_iptables, read_scenarios
from tests.support.cluster import ControlPlane
from tests.support.kube_proxy import configuration, fields_of, kube_proxy, podgate, relay
from tests.support.service_flows import NODES, THIS, WORLDS, NotTakenError, differences, flow_lab, node_objects
from tests.support.service_lab import ServiceLab

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

REFUSED: Final = {
    "endpoints: several slices, with several port numbers",
    "no_endpoints: Services that no proxy is for",
}
"""Scenarios with objects that an API server refuses; podgate may get them from files."""

EXPLAINED: Final = {
    # Either of the two, by the order of a map.
    "external_ips: nobody takes over a cluster IP by an external IP": ("cluster-ip-1",),
    # A slice that says terminating never wins against one that does not.
    "endpoints: one address twice": ("cluster-ip-2",),
}
"""Scenarios in which it does something else, and where packets go then; docs/critiques/kube-proxy.md says why."""

_MISSING, _CONFLICT, _INVALID = 404, 409, 422

_PATHS: Final = {"Service": "/api/v1/namespaces/{}/services", "EndpointSlice": (
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
)}  # fmt: skip


class Oracle:
    """kube-proxy on node-1, fed by an API server."""

    def __init__(
        self, plane: ControlPlane, lab: ServiceLab, mode: str, folder: Path, program: Sequence[str] | None = None
    ) -> None:
        self._plane, self._lab, self._mode, self._folder, self._program = plane, lab, mode, folder, program
        self._connection = plane.connection()
        self._there: list[str] = []

    @contextmanager
    def running(self, settings: Mapping[str, Any], zone: str) -> Iterator[None]:
        for node in node_objects(zone):
            self._write(node)
        node_1 = self._lab.namespace(THIS)
        config = configuration(NODES[0], self._mode, self._plane.kubeconfig, **fields_of(settings, self._mode))
        with kube_proxy(node_1, config, self._folder, self._program):
            yield

    def replace(self, objects: Sequence[Mapping[str, Any]]) -> None:
        for path in self._there:
            self._ask("DELETE", path)
        self._there = []
        for namespace in {obj["metadata"].get("namespace", "default") for obj in objects}:
            self._ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, _CONFLICT)
        for obj in objects:
            path = _PATHS[obj["kind"]].format(obj["metadata"].get("namespace", "default"))
            made = self._ask("POST", path, {key: value for key, value in obj.items() if key != "status"})
            self._there.append(f"{path}/{obj['metadata']['name']}")
            if "status" in obj:
                self._ask("PUT", f"{self._there[-1]}/status", {**made, "status": obj["status"]})

    def _write(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self._ask("DELETE", f"/api/v1/nodes/{name}", None, _MISSING)
        self._ask("POST", "/api/v1/nodes", node)

    def _ask(self, verb: str, path: str, body: Any = None, *fine: int) -> Any:
        data = None if body is None else json.dumps(body)
        self._connection.request(verb, path, data, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status == _INVALID:
            raise NotTakenError(f"refused: {answer['message']}")
        assert response.status in (200, 201, *fine), f"{verb} {path}: {answer}"
        return answer

    def clean(self) -> None:
        """Take away what is in the API."""
        self.replace(())
        for name in NODES:
            self._ask("DELETE", f"/api/v1/nodes/{name}", None, _MISSING)
        self._connection.close()


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
def test_kube_proxy_does_what_is_expected(plane: ControlPlane, mode: str, tmp_path: Path) -> None:
    found = asked(plane, mode, tmp_path)
    left = {
        name: unexplained
        for name, faults in found.items()
        if name not in REFUSED
        and (unexplained := [each for each in faults if not _about(each, EXPLAINED.get(name, ()))])
    }
    assert left == {}


def test_podgate_under_the_old_name_does_so_with_the_same_file_and_api(plane: ControlPlane, tmp_path: Path) -> None:
    found = asked(plane, "nftables", tmp_path, podgate())
    assert {name: faults for name, faults in found.items() if name not in REFUSED} == {}


def asked(plane: ControlPlane, mode: str, folder: Path, program: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Send all flows through a program; give what it does differently, by scenario."""
    scenarios = [for_iptables(each) if mode == "iptables" else each for each in read_scenarios()]
    with flow_lab() as lab, relay(plane, lab.namespace(THIS)):
        oracle = Oracle(plane, lab, mode, folder, program)
        try:
            found = differences(lab, oracle, scenarios)
        finally:
            oracle.clean()
    assert {name for name, faults in found.items() if faults[0].startswith("refused: ")} == REFUSED
    return found


def _about(fault: str, names: Iterable[str]) -> bool:
    """Whether a fault is about packets to one of these."""
    return any(f"-> {WORLDS[family][name]}:" in fault for family in FAMILIES for name in names)
