"""kube-proxy's metrics: whoever watches kube-proxy watches podgate with the same dashboards and alerts.

Here: the page of the real kube-proxy and that of podgate under its name, with the same file and API, in both modes.
Not here: what the figures say (tests/features/services).
Invariant: what is another, or only on one of the two pages, stands in a table here with the reason.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from podgate.lab.kinds import Object
from tests.support.cluster import ControlPlane
from tests.support.kube_proxy import HEALTH, METRICS, configuration, kube_proxy, podgate, real, relay
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll
from tests.support.service_inputs import node_object
from tests.support.slices import endpoint_slice

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

NODE: Final = "node-of-metrics"
FIELDS: Final[Mapping[str, Any]] = {
    "clusterCIDR": "10.180.0.0/16,fd00:180::/48",
    "nodePortAddresses": ["10.140.0.11/32"],
}
SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

ABSENT: Final = {
    r"go_.*": "podgate has no Go runtime",
    r"rest_client_(re(quest|sponse)_size_bytes|(exec|rate|transport)_.*)": "of a client that podgate has not",
    r"rest_client_request_retries_total": "the same, and there only once it has tried again, as on a busy machine",
    r"kubernetes_build_info": "it is of the other program's build; podgate's version is in its log and --version",
    r"kubernetes_feature_enabled": "podgate has none of these gates",
    r"(registered|hidden|disabled)_metrics_total|cardinality_enforcement_.*": "the library counts itself",
    r"(apiserver|aggregator)_.*": "they are of an API server's library, and say nothing of a proxy",
    r"process_(virtual_memory_max_bytes|network_(receive|transmit)_bytes_total)": "the node counts",
}
"""On kube-proxy's page alone, by name, and why."""

OURS: Final = {
    r"podgate_services_.*": "podgate's own",
    r"kubeproxy_sync_proxy_rules_(nftables_(sync|cleanup)|iptables_(partial_)?restore)_failures_total": (
        "podgate shows 0 from the start, kube-proxy nothing before the first: an alert on a rate needs the 0"
    ),
    r"kubeproxy_nftables_localhost_nodeport_.*": "1.37's",
}
"""On podgate's page alone, by name, and why."""


class Metric(NamedTuple):
    """A metric as a page shows it; ``bounds`` of a histogram's buckets."""

    type: str
    labels: frozenset[str]
    bounds: tuple[str, ...] = ()


def metrics_of(page: str) -> dict[str, Metric]:
    """Read a page of metrics."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    found: dict[str, Metric] = {}
    for series, words in re.findall(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        name = next(each for each in (series, re.sub(r"_(bucket|count|sum)$", "", series)) if each in types)
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', words))
        bound = labels.pop("le", None)
        bounds = found[name].bounds if name in found else ()
        if bound is not None and (text := f"{float(bound):g}") not in bounds:
            bounds = (*bounds, text)
        found[name] = Metric(types[name], frozenset(labels), bounds)
    return found


def page_of(node: NetNamespace, port: int, path: str) -> str:
    """Give what a page on the node's loopback says."""
    return node.run("curl", "-s", "--max-time", "60", f"http://127.0.0.1:{port}{path}")


def slice_of(name: str, address_type: str, address: str) -> Object:
    """Give a slice of the Service ``watched``, which says that it has changed just now."""
    now = {"endpoints.kubernetes.io/last-change-trigger-time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    return endpoint_slice(
        "watched", address_type, [(address, NODE)], ("dns", 53, "UDP"), metadata={"name": name, "annotations": now}
    )


WATCHED: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "watched"},
    "spec": {
        "type": "NodePort",
        "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
    },
}


class World:
    """A node with nothing but addresses, and its Node in the API."""

    def __init__(self, plane: ControlPlane, node: NetNamespace) -> None:
        self.plane, self.node = plane, node

    def write(self, verb: str, path: str, obj: Object | None = None) -> None:
        code, answer = self.plane.request(verb, path, obj or {"gracePeriodSeconds": 0})
        assert code in (200, 201), answer

    def metrics(self, mode: str, program: Sequence[str], folder: Path) -> dict[str, Metric]:
        """Give the metrics of a program after a Service has come, and gone."""
        folder.mkdir()
        config = configuration(NODE, mode, self.plane.kubeconfig, **FIELDS)
        with kube_proxy(self.node, config, folder, program):
            self.write("POST", "/api/v1/namespaces/default/services", WATCHED)
            self.write("POST", SLICES, slice_of("watched-4", "IPv4", "10.180.0.7"))
            self.write("POST", SLICES, slice_of("watched-6", "IPv6", "fd00:180::7"))
            try:
                poll(lambda: self._programmed() == {"IPv4", "IPv6"})
            finally:
                for name in ("watched-4", "watched-6"):
                    self.write("DELETE", f"{SLICES}/{name}")
                self.write("DELETE", "/api/v1/namespaces/default/services/watched")
            for path in ("/healthz", "/livez"):
                page_of(self.node, HEALTH, path)
            return metrics_of(page_of(self.node, METRICS, "/metrics"))

    def _programmed(self) -> set[str]:
        """Give the families in which a change has come into force."""
        counted = r'^kubeproxy_network_programming_duration_seconds_count\{ip_family="(\w+)"\} [1-9]'
        return set(re.findall(counted, page_of(self.node, METRICS, "/metrics"), re.MULTILINE))


@pytest.fixture(scope="module")
def world(plane: ControlPlane) -> Iterator[World]:
    with netns() as node, relay(plane, node):
        for address in ("10.140.0.11/24", "fd00:140::11/64"):
            node.run("ip", "address", "add", address, "dev", "lo")
        found = World(plane, node)
        found.write("POST", "/api/v1/nodes", node_object(NODE, "10.140.0.11", "fd00:140::11"))
        yield found
        found.write("DELETE", f"/api/v1/nodes/{NODE}")


def named(name: str, table: Mapping[str, str]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in table)


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
def test_whoever_reads_kube_proxys_metrics_reads_podgates(world: World, mode: str, tmp_path: Path) -> None:
    theirs = world.metrics(mode, real(), tmp_path / "theirs")
    ours = world.metrics(mode, podgate(), tmp_path / "ours")
    assert {name for name in theirs.keys() - ours.keys() if not named(name, ABSENT)} == set()
    assert {name for name in ours.keys() - theirs.keys() if not named(name, OURS)} == set()
    differing = {name: (theirs[name], ours[name]) for name in theirs.keys() & ours.keys() if theirs[name] != ours[name]}
    assert differing == {}
    assert sum(name.startswith("kubeproxy_") for name in theirs) >= 15, "it shows what it did"
