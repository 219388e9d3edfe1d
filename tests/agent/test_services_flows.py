"""``podgate services run`` as users run it, asked with real packets: every flow of tests/features/services/flows.

Here: the agent on node-1 of the flows' network, fed from a file. Not here: the flows, and what kube-proxy makes of them
(tests/cluster/test_kube_proxy.py).
Invariant: TCP and UDP, IPv4 and IPv6 at once, in one network, one agent after the other.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from podgate.linux.namespaces import inside_network
from tests.features.services.flows import FAMILIES, for_iptables, read_scenarios
from tests.support.service_flows import NODES, THIS, WORLDS, differences, flow_lab, node_objects
from tests.support.service_lab import ServiceLab

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SERVICE_RANGES = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "ServiceCIDR",
    "metadata": {"name": "kubernetes"},
    "spec": {"cidrs": [WORLDS[family]["service-cidr"] for family in FAMILIES]},
}


class Podgate:
    """``podgate services run`` on node-1."""

    def __init__(self, lab: ServiceLab, backend: str, folder: Path) -> None:
        self._lab, self._backend, self._folder = lab, backend, folder
        self.log = folder / "log"
        (folder / "source").mkdir()

    @contextmanager
    def running(self, settings: Mapping[str, Any], zone: str) -> Iterator[None]:
        self._write("cluster", [*node_objects(zone), SERVICE_RANGES])
        command = [
            *("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "podgate.cli", "services", "run"),
            *("--source", str(self._folder / "source"), "--node-name", NODES[0], "--backend", self._backend),
            *("--state-dir", str(self._folder / "state"), "--metrics-addr", "", "--health-addr", "127.0.0.1:10256"),
            *_flags(settings),
        ]
        with inside_network(self._lab.descriptors[THIS]), self.log.open("ab") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()

    def replace(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self._write("services", objects)

    def _write(self, name: str, objects: Sequence[Mapping[str, Any]]) -> None:
        fresh = self._folder / name
        fresh.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        fresh.rename(self._folder / "source" / f"{name}.json")


def _flags(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}={value}"


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_every_flow_goes_where_it_should(backend: str, tmp_path: Path) -> None:
    scenarios = [for_iptables(each) if backend == "iptables" else each for each in read_scenarios()]
    with flow_lab() as lab:
        agent = Podgate(lab, backend, tmp_path)
        try:
            assert differences(lab, agent, scenarios) == {}
        except AssertionError:
            print(agent.log.read_text()[-5000:])
            raise
