"""kube-proxy to podgate and back, while clients connect all the time: every pair of modes.

Here: the real kube-proxy and ``podgate services run`` on one node, one after the other, fed by one API server.
Not here: podgate's own back ends to each other (tests/agent/test_services_iptables.py), what single flows do.
Invariant: whatever nobody translates is refused at once by a machine behind the node, so a gap shows as a refusal.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.agent import Agent, podgate, started
from tests.support.cluster import ControlPlane
from tests.support.kube_proxy import configuration, kube_proxy, relay
from tests.support.netns import NetNamespace
from tests.support.poll import poll
from tests.support.service_flows import NODES, THIS, WORLDS, flow_lab, node_objects, place
from tests.support.service_lab import Probe, ServiceLab
from tests.support.services_agent import counted, service, slice_of

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

WORLD: Final = WORLDS["ip"]
ADDRESS: Final = WORLD["cluster-ip-1"]
PORT, NODE_PORT = 8080, 30080
PROBES: Final = [
    Probe(place("pod"), ADDRESS, "tcp", PORT),
    Probe(place("outside"), WORLD["node"], "tcp", NODE_PORT),
    Probe(place("pod"), WORLD["node"], "tcp", NODE_PORT),
    Probe(THIS, ADDRESS, "tcp", PORT),
]
KUBELETS: Final = {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-FIREWALL"}
FIELDS: Final = {"clusterCIDR": WORLD["cluster-cidr"], "nodePortAddresses": ["primary"]}
FLAGS: Final = (
    *("--cluster-cidr", WORLD["cluster-cidr"], "--nodeport-addresses", "primary", "--sync-period", "1"),
    *("--metrics-addr", "127.0.0.1:10350", "--conntrack-max-per-core", "0"),
)
_ENOUGH: Final = 40
"""Connections that must have been made in each phase."""


@pytest.fixture(scope="module")
def lab(plane: ControlPlane) -> Iterator[ServiceLab]:
    with flow_lab() as made, relay(plane, made.namespace(THIS)), objects(plane):
        yield made


@contextmanager
def objects(plane: ControlPlane) -> Iterator[None]:
    """Have this node and one Service, with an endpoint here and one elsewhere, in the API."""
    ports = {"port": PORT, "nodePort": NODE_PORT}
    found = slice_of("web", WORLD["local-1"], WORLD["remote-1"], port=PORT)
    found["endpoints"][1]["nodeName"] = NODES[1]
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    made = [("/api/v1/nodes", node) for node in node_objects("")]
    made += [
        ("/api/v1/namespaces/default/services", service("web", ADDRESS, ports, type="NodePort")),
        (slices, found),
    ]
    for path, obj in made:
        code, answer = plane.request("POST", path, obj)
        assert code == 201, answer
    yield
    for path, obj in made:
        plane.request("DELETE", f"{path}/{obj['metadata']['name']}", {"gracePeriodSeconds": 0})


class Clients:
    """Open connections all the time, four at once, and count what comes of them."""

    def __init__(self, lab: ServiceLab) -> None:
        self._lab, self._over = lab, threading.Event()
        self.seen: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._over.is_set():
            for probe, one in zip(PROBES, self._lab.ask(PROBES, 20.0), strict=True):
                found = (
                    one.verdict if one.verdict == "answered" else f"{probe.origin} -> {probe.address}: {one.verdict}"
                )
                self.seen[found] += 1

    @contextmanager
    def asking(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def some_more(self) -> None:
        """Wait until some have been answered from now on."""
        now = self.seen["answered"]
        poll(lambda: self.seen["answered"] >= now + _ENOUGH, 60)


def refused(clients: Clients) -> dict[str, int]:
    """Give what came of connections that were not answered."""
    return {name: count for name, count in clients.seen.items() if name != "answered"}


def tables(node: NetNamespace) -> set[str]:
    """Give kube-proxy's and podgate's tables of nftables, and whether there are chains of kube-proxy in iptables."""
    text = node.run("nft", "list", "tables")
    found = {name for name in ("kube-proxy", "podgate-services") if f"table ip {name}\n" in text}
    chains = {line.split()[0][1:] for line in node.run("iptables-nft-save").splitlines() if line.startswith(":KUBE")}
    return found | ({"KUBE"} if chains - KUBELETS else set())


OWN: Final = {
    ("kube-proxy", "nftables"): "kube-proxy",
    ("podgate", "nftables"): "podgate-services",
    ("kube-proxy", "iptables"): "KUBE",
    ("podgate", "iptables"): "KUBE",
}
"""What each of them writes, as ``tables`` calls it."""


@contextmanager
def agent(node: NetNamespace, plane: ControlPlane, folder: Path, backend: str) -> Iterator[Agent]:
    """Run podgate; the body begins when its rules are in."""
    words = ("--kubeconfig", str(plane.kubeconfig), "--backend", backend, *FLAGS)
    with started(node, folder, *words, feature="services") as running:
        poll(lambda: counted(running, "ready") == 1.0, 60)
        yield running


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_one_takes_over_from_the_other_and_gives_back(
    plane: ControlPlane, lab: ServiceLab, mode: str, backend: str, tmp_path: Path
) -> None:
    node, theirs, ours = lab.namespace(THIS), OWN["kube-proxy", mode], OWN["podgate", backend]
    for table, chain in (
        ("mangle", "KUBE-IPTABLES-HINT"),
        ("mangle", "KUBE-KUBELET-CANARY"),
        ("filter", "KUBE-FIREWALL"),
    ):
        node.run("iptables-nft", "-t", table, "-N", chain)
    config = configuration(NODES[0], mode, plane.kubeconfig, **FIELDS)
    clients = Clients(lab)
    with contextlib.ExitStack() as there:
        proxy = there.enter_context(contextlib.ExitStack())
        proxy.enter_context(kube_proxy(node, config, tmp_path))
        poll(lambda: {one.verdict for one in lab.ask(PROBES, 5.0)} == {"answered"})
        there.enter_context(clients.asking())
        clients.some_more()

        with agent(node, plane, tmp_path, backend) as running:
            clients.some_more()
            assert tables(node) == {theirs, ours}
            poll(lambda: "runs on this node" in running.text() or theirs == ours)
            proxy.close()
            poll(lambda: tables(node) == {ours})
            clients.some_more()
            poll(lambda: counted(running, "ready") == 1.0)
            assert running.stop() == 0
        clients.some_more()

        if (mode, backend) == ("nftables", "iptables"):
            # In that mode kube-proxy removes its chains of iptables when it starts, before its own table is there.
            with agent(node, plane, tmp_path, "nftables"):
                poll(lambda: tables(node) == {"podgate-services"})
        assert refused(clients) == {}
        proxy.enter_context(kube_proxy(node, config, tmp_path))
        clients.some_more()
        cleaned = podgate("services", "clean", "--state-dir", str(tmp_path / "state"), namespace=node)
        assert cleaned.code == 0, cleaned
        assert tables(node) == {theirs}
        clients.some_more()
    kubelets = {line.split()[0][1:] for line in node.run("iptables-nft-save").splitlines() if line.startswith(":KUBE")}
    assert kubelets >= KUBELETS
    node.run("nft", "flush", "ruleset")
    assert refused(clients) == {}
