"""``podgate services run`` beside an API server that is killed, compacted, slow and restored: no client notices, and
each day ends in the rules that a fresh start would write.

Here: one agent with the real control plane behind a proxy, and clients that ask all the time. Not here: the watch alone
(test_compaction.py, tests/sources/kube), rolling updates (test_services.py), all of it at once (./dev soak services).
Invariant: every day changes endpoints while the agent cannot hear of it, and the Service keeps one throughout.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.agent import Agent, podgate, started
from tests.support.chaos_proxy import ChaosProxy, Do, Fault, in_thread
from tests.support.cluster import ControlPlane
from tests.support.etcd import compact, keep, restore
from tests.support.kube_proxy import relay
from tests.support.kubeconfigs import through
from tests.support.poll import happens, poll
from tests.support.real_api import RealApi
from tests.support.service_flows import NODES, THIS, WORLDS, flow_lab, node_objects, place
from tests.support.service_lab import Probe, ServiceLab
from tests.support.services_agent import PAGES, counted, held, service, slice_of

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

WORLD: Final = WORLDS["ip"]
ADDRESS, PORT = WORLD["cluster-ip-1"], 8080
FLAGS: Final = ("--cluster-cidr", WORLD["cluster-cidr"], "--conntrack-max-per-core", "0", "--node-name", NODES[0])
_STAYS: Final = WORLD["local-1"]
_SERVICES: Final = "/api/v1/namespaces/default/services"
_SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def late(number: int) -> str:
    """Give the address of a Service that comes later."""
    return f"10.96.7.{number}"


class Cluster:
    """The objects in the API, and the way that the agent takes to it."""

    def __init__(self, plane: ControlPlane, proxy: ChaosProxy, do: Do) -> None:
        self.plane, self.proxy, self._do = plane, proxy, do

    def ask(self, verb: str, path: str, body: Any = None) -> None:
        code, answer = self.plane.request(verb, path, body)
        assert code in (200, 201), answer

    def serve(self, *more: str) -> None:
        """Have these endpoints beside the one that stays."""
        found = slice_of("web", _STAYS, *(WORLD[name] for name in more), port=PORT)
        self.ask("PUT", f"{_SLICES}/web-1", found)

    def appear(self, number: int) -> None:
        """Have one Service more, which nobody serves."""
        self.ask("POST", _SERVICES, service(f"late-{number}", late(number)))

    def cut(self) -> None:
        """Cut all connections of the agent."""
        self._do(self.proxy.cut_all)


@contextmanager
def chaotic(plane: ControlPlane) -> Iterator[Cluster]:
    """Have a proxy before the API server for the body, and a Service with one endpoint in the API."""
    with in_thread(plane.server, RealApi(plane).upstream) as (proxy, do):
        cluster = Cluster(plane, proxy, do)
        try:
            for node in node_objects(""):
                cluster.ask("POST", "/api/v1/nodes", node)
            cluster.ask("POST", _SERVICES, service("web", ADDRESS, {"port": PORT}))
            cluster.ask("POST", _SLICES, slice_of("web", _STAYS, port=PORT))
            yield cluster
        finally:
            for name in ("web", *(f"late-{number}" for number in range(1, 6))):
                plane.request("DELETE", f"{_SERVICES}/{name}")
            plane.request("DELETE", f"{_SLICES}/web-1")
            for name in NODES:
                plane.request("DELETE", f"/api/v1/nodes/{name}")


class Node:
    """The node, and a client on it.

    Args:
        lab: the network.
        source: how a command is told of the API.
        folder: for logs and state.
    """

    def __init__(self, lab: ServiceLab, source: tuple[str, ...], folder: Path) -> None:
        self._lab, self._source, self._folder = lab, source, folder
        self.namespace = lab.namespace(THIS)
        self._over = threading.Event()
        self.seen: Counter[str] = Counter()

    @contextmanager
    def agent(self) -> Iterator[Agent]:
        """Run the agent; the body begins when its rules are in."""
        with started(self.namespace, self._folder, *self._source, *PAGES, *FLAGS, feature="services") as running:
            assert happens(lambda: counted(running, "ready") == 1.0, 60), running.text()[-3000:]
            yield running

    def reached(self) -> set[str]:
        """Give who answers a Pod."""
        seen = self._lab.ask([Probe(place("pod"), ADDRESS, "tcp", PORT)] * 12, 60.0)
        return {one.endpoint.rpartition(":")[0] or one.verdict for one in seen}

    def knows(self, number: int) -> bool:
        """Say whether the rules know of a late Service."""
        return any(late(number) in element for element in held(self.namespace)["cluster-ips"])

    def comes_to(self, number: int, *endpoints: str) -> None:
        """Wait until the rules are what a fresh start would write, with a late Service and these endpoints."""
        wanted = {_STAYS, *(WORLD[name] for name in endpoints)}
        poll(lambda: self.knows(number))
        poll(lambda: self.reached() == wanted)
        poll(lambda: podgate("services", "plan", *self._source, *FLAGS, namespace=self.namespace).code == 0)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Have a client ask all the time for the body, and see that it was always answered."""

        def ask() -> None:
            while not self._over.wait(0.01):
                asked = self._lab.ask([Probe(place("pod"), ADDRESS, "tcp", PORT)] * 3, 60.0)
                self.seen.update(one.verdict for one in asked)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        assert self.seen.keys() == {"answered"}
        assert self.seen["answered"] > 100


def killed(cluster: Cluster) -> None:
    """Kill the API server, which forgets all versions; objects change before the agent hears of it again."""
    cluster.plane.stop_part("kube-apiserver")
    cluster.proxy.down = True
    cluster.plane.start_part("kube-apiserver")
    cluster.serve("local-2", "remote-1")
    cluster.appear(1)
    cluster.proxy.down = False


def compacted(cluster: Cluster) -> None:
    """Have etcd forget the versions that the agent goes on from, while it cannot ask."""
    cluster.proxy.down = True
    cluster.cut()
    cluster.serve("remote-2")
    cluster.appear(2)
    compact(cluster.plane)
    cluster.proxy.down = False


def slow(cluster: Cluster) -> None:
    """Answer late, in pieces of three bytes, and then break off."""
    cluster.proxy.strike(Fault(delay=2.0, times=3), Fault(piece=3, times=3), Fault(after=300, times=3))
    cluster.cut()
    cluster.serve("local-2", "remote-2")
    cluster.appear(3)


def restored(cluster: Cluster, kept: Path) -> None:
    """Have an older state, in which one Service is not yet there, and change it before it is as new as the lost one."""
    restore(cluster.plane, kept)
    cluster.ask("DELETE", f"{_SERVICES}/late-3")
    cluster.serve("local-2", "remote-1")
    cluster.appear(5)


@pytest.mark.timeout(900)  # the control plane is started four times
def test_every_bad_day_ends_in_the_right_rules_and_no_client_notices(plane: ControlPlane, tmp_path: Path) -> None:
    with flow_lab() as lab, chaotic(plane) as cluster, contextlib.ExitStack() as clients:
        node = Node(lab, ("--kubeconfig", str(through(cluster.proxy, plane, tmp_path))), tmp_path)
        clients.enter_context(relay(plane, node.namespace, cluster.proxy.port))
        with node.agent() as agent:
            clients.enter_context(node.asking())
            killed(cluster)
            node.comes_to(1, "local-2", "remote-1")
            compacted(cluster)
            node.comes_to(2, "remote-2")
            slow(cluster)
            node.comes_to(3, "local-2", "remote-2")
            poll(agent.ready)
            keep(plane, tmp_path / "etcd")
            cluster.serve("remote-1")
            cluster.appear(4)
            node.comes_to(4, "remote-1")
            restored(cluster, tmp_path / "etcd")
            node.comes_to(5, "local-2", "remote-1")
            assert not node.knows(3)
            assert not node.knows(4)
