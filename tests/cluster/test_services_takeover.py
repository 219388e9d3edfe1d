"""kube-proxy to podgate and back, while clients connect all the time: every pair of modes, both families.

Here: the real kube-proxy and ``podgate services run`` on one node, one after the other, fed by one API server.
Not here: podgate's own back ends to each other (tests/agent/test_services_iptables.py), what single flows do, a
DaemonSet of which only the image changes (test_services.py).
Invariant: whatever nobody translates is refused at once by a machine behind the node, so a gap shows as a refusal.
"""

import contextlib
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from podgate.features.services.backends import BINARIES
from podgate.features.services.iptables_names import TABLES
from podgate.features.services.node import IPVS_DEVICE
from podgate.lab.kinds import Object
from podgate.linux.namespaces import inside_network
from podgate.model.machine import Family
from podgate.targets.iptables.state import Binary, program
from tests.features.services.flows import FAMILIES
from tests.support.agent import Agent, Ended, podgate, started
from tests.support.cluster import ControlPlane
from tests.support.iptables_programs import path_with
from tests.support.kube_proxy import configuration, kube_proxy, real, relay
from tests.support.kube_proxy import podgate as old_program
from tests.support.lasting import Client, Lasting, lasting_servers
from tests.support.netns import NetNamespace
from tests.support.poll import poll
from tests.support.service_flows import NODES, THIS, WORLDS, flow_lab, node_objects, place
from tests.support.service_lab import Probe, ServiceLab
from tests.support.services_agent import counted, service
from tests.support.slices import endpoint_slice

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

ADDRESSES: Final = [WORLDS[family]["cluster-ip-1"] for family in FAMILIES]
PORT, NODE_PORT, LASTING = 8080, 30080, 9091
CIDRS: Final = ",".join(WORLDS[family]["cluster-cidr"] for family in FAMILIES)
PROBES: Final = [
    probe
    for family in FAMILIES
    for probe in (
        Probe(place("pod"), WORLDS[family]["cluster-ip-1"], "tcp", PORT),
        Probe(place("pod"), WORLDS[family]["cluster-ip-1"], "udp", PORT),
        Probe(place("outside"), WORLDS[family]["node"], "tcp", NODE_PORT),
        Probe(place("pod"), WORLDS[family]["node"], "tcp", NODE_PORT),
        Probe(THIS, WORLDS[family]["cluster-ip-1"], "tcp", PORT),
    )
]
STAYING: Final = [
    client
    for address in ADDRESSES
    for client in (Client(place("pod"), address, "tcp", LASTING), Client(place("pod"), address, "udp", PORT))
    for _ in range(4)
]
KUBELETS: Final = {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-FIREWALL"}
FIELDS: Final = {"clusterCIDR": CIDRS, "nodePortAddresses": ["primary"]}
FLAGS: Final = (
    *("--cluster-cidr", CIDRS, "--nodeport-addresses", "primary", "--sync-period", "1"),
    *("--metrics-addr", "127.0.0.1:10350", "--conntrack-max-per-core", "0"),
)
_ENOUGH: Final = 60
"""Connections that must have been made in each phase."""
_PAUSE: Final = 0.01
"""Seconds between two rounds of connections, so that a gap is seen and the programs have a processor."""


@pytest.fixture(scope="module")
def lab(plane: ControlPlane) -> Iterator[ServiceLab]:
    ends = [(place(end), WORLDS[family][end]) for family in FAMILIES for end in ("local-1", "remote-1")]
    with flow_lab() as made, lasting_servers(made, ends, LASTING), relay(plane, made.namespace(THIS)), objects(plane):
        yield made


_PORTS: Final = (("web", PORT, "TCP"), ("dns", PORT, "UDP"), ("lasting", LASTING, "TCP"))


@contextmanager
def objects(plane: ControlPlane) -> Iterator[None]:
    """Have this node and one Service of both families in the API, with an endpoint here and one elsewhere."""
    ports: list[dict[str, Any]] = [
        {"name": name, "port": port, "protocol": protocol} for name, port, protocol in _PORTS
    ]
    ports[0]["nodePort"] = NODE_PORT
    both: Object = {"clusterIPs": ADDRESSES, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    made = [("/api/v1/nodes", node) for node in node_objects("")]
    made.append(("/api/v1/namespaces/default/services", service("web", ADDRESSES[0], *ports, type="NodePort", **both)))
    for number, world in enumerate(WORLDS.values()):
        ends = zip((world["local-1"], world["remote-1"]), NODES, strict=True)
        made.append(
            (slices, endpoint_slice("web", world["address-type"], ends, *_PORTS, metadata={"name": f"web-{number}"}))
        )
    for path, obj in made:
        code, answer = plane.request("POST", path, obj)
        assert code == 201, answer
    yield
    for path, obj in made:
        plane.request("DELETE", f"{path}/{obj['metadata']['name']}", {"gracePeriodSeconds": 0})


class Clients:
    """Open connections all the time, ten at once, and count what comes of them; others stay, and ask again."""

    def __init__(self, lab: ServiceLab) -> None:
        self._lab, self._over = lab, threading.Event()
        self._staying = Lasting(lab, STAYING)
        self.seen: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with contextlib.closing(self._staying):
            while not self._over.wait(_PAUSE):
                for probe, one in zip(PROBES, self._lab.ask(PROBES, 60.0), strict=True):
                    where = f"{probe.origin} -> {probe.address}: " if one.verdict != "answered" else ""
                    self.seen[f"{where}{one.verdict}"] += 1
                self._staying.ask()

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
        poll(lambda: self.seen["answered"] >= now + _ENOUGH)

    def faults(self) -> dict[str, int]:
        """Give what came of connections that were not answered, and what became of those that should have stayed."""
        others = {name: count for name, count in self.seen.items() if name != "answered"}
        return others | dict.fromkeys(self._staying.faults, 1)


class Pair(NamedTuple):
    """Who takes over from whom: kube-proxy's mode, podgate's back end, and the iptables of the node's kubelet."""

    mode: str
    backend: str
    binary: Binary = "nft"

    @property
    def theirs(self) -> set[str]:
        """What kube-proxy writes, as ``tables`` calls it."""
        return _both("kube-proxy" if self.mode == "nftables" else self.binary)

    @property
    def ours(self) -> set[str]:
        """What podgate writes, as ``tables`` calls it."""
        return _both("podgate-services" if self.backend == "nftables" else self.binary)

    def program(self, folder: Path) -> tuple[str, ...]:
        """Give kube-proxy, which runs the first ``iptables`` of its PATH: the one that this pair is about."""
        return ("env", f"PATH={path_with(self.binary, folder)}", *real())


def _both(name: str) -> set[str]:
    return {f"{family} {name}" for family in FAMILIES}


def tables(node: NetNamespace) -> set[str]:
    """Give by family whose tables there are in nftables, and which iptables has chains of kube-proxy."""
    text = node.run("nft", "list", "tables")
    written = {f"{family} {name}" for family in FAMILIES for name in ("kube-proxy", "podgate-services")}
    found = {each for each in written if f"table {each}\n" in text}
    return found | {f"{family} {binary}" for family, binary in _PROGRAMS if chains(node, family, binary) - KUBELETS}


_PROGRAMS: Final = [(family, binary) for family in FAMILIES for binary in BINARIES]


def chains(node: NetNamespace, family: Family, binary: Binary) -> set[str]:
    """Give Kubernetes' chains of one iptables."""
    lines = node.run(f"{program(family, binary)}-save").splitlines()
    return {line.split()[0][1:] for line in lines if line.startswith(":KUBE")}


@contextmanager
def kubelet(node: NetNamespace, binary: Binary) -> Iterator[None]:
    """Have the chains of a kubelet for the body, which must be there at its end, and no rules of others after it."""
    hint = "*mangle\n:KUBE-IPTABLES-HINT -\n:KUBE-KUBELET-CANARY -\nCOMMIT\n*filter\n:KUBE-FIREWALL -\nCOMMIT\n"
    for family in FAMILIES:
        node.run(f"{program(family, binary)}-restore", "--noflush", text=hint)
    try:
        yield
        assert all(chains(node, family, binary) >= KUBELETS for family in FAMILIES)
    finally:
        for family in FAMILIES:
            for table in TABLES:
                node.run(f"{program(family, 'legacy')}-restore", text=f"*{table}\nCOMMIT\n")
        node.run("nft", "flush", "ruleset")


@contextmanager
def agent(node: NetNamespace, plane: ControlPlane, folder: Path, backend: str) -> Iterator[Agent]:
    """Run podgate; the body begins when its rules are in."""
    words = ("--kubeconfig", str(plane.kubeconfig), "--backend", backend, *FLAGS)
    with started(node, folder, *words, feature="services") as running:
        poll(lambda: counted(running, "ready") == 1.0)
        yield running


PAIRS: Final = [
    *(Pair(mode, backend) for mode in ("nftables", "iptables") for backend in ("nftables", "iptables")),
    *(Pair("iptables", backend, "legacy") for backend in ("nftables", "iptables")),
]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_one_takes_over_from_the_other_and_gives_back(
    plane: ControlPlane, lab: ServiceLab, pair: Pair, tmp_path: Path
) -> None:
    node = lab.namespace(THIS)
    config = configuration(NODES[0], pair.mode, plane.kubeconfig, **FIELDS)
    their_program = pair.program(tmp_path / "bin")
    with contextlib.ExitStack() as there:
        there.enter_context(kubelet(node, pair.binary))
        proxy = there.enter_context(contextlib.ExitStack())
        proxy.enter_context(kube_proxy(node, config, tmp_path, their_program))
        poll(lambda: {one.verdict for one in lab.ask(PROBES, 5.0)} == {"answered"})
        clients = Clients(lab)
        there.enter_context(clients.asking())
        clients.some_more()

        with agent(node, plane, tmp_path, pair.backend) as running:
            clients.some_more()
            assert tables(node) == pair.theirs | pair.ours
            poll(lambda: "runs on this node" in running.text())
            proxy.close()
            poll(lambda: tables(node) == pair.ours)
            clients.some_more()
            poll(lambda: counted(running, "ready") == 1.0)
            assert running.stop() == 0
        clients.some_more()

        if (pair.mode, pair.backend) == ("nftables", "iptables"):
            # In that mode kube-proxy removes its chains of iptables when it starts, before its own table is there.
            with agent(node, plane, tmp_path, "nftables"):
                poll(lambda: tables(node) == _both("podgate-services"))
        assert clients.faults() == {}
        proxy.enter_context(kube_proxy(node, config, tmp_path, their_program))
        clients.some_more()
        cleaned = podgate("services", "clean", "--state-dir", str(tmp_path / "state"), namespace=node)
        assert cleaned.code == 0, cleaned
        assert tables(node) == pair.theirs
        clients.some_more()
        assert clients.faults() == {}


def old_name(node: NetNamespace, *words: str) -> Ended:
    """Run podgate as kube-proxy, which ends by itself."""
    with inside_network(node.descriptor):
        done = subprocess.run(
            [*old_program(), *words], capture_output=True, text=True, check=False, timeout=60, cwd="/"
        )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "pair",
    [Pair("nftables", "nftables"), Pair("iptables", "iptables"), Pair("iptables", "iptables", "legacy")],
    ids="-".join,
)
def test_the_old_names_own_verbs_on_a_node_with_rules_of_kube_proxy(
    plane: ControlPlane, lab: ServiceLab, pair: Pair, tmp_path: Path
) -> None:
    node = lab.namespace(THIS)
    config = configuration(NODES[0], pair.mode, plane.kubeconfig, **FIELDS)
    given = ("--config", str(tmp_path / "kube-proxy.json"))
    with kubelet(node, pair.binary):
        with kube_proxy(node, config, tmp_path, pair.program(tmp_path / "bin")):
            assert old_name(node, "--init-only", *given).code == 0
            refused = old_name(node, "--cleanup", *given)
            assert (refused.code, refused.out) == (1, "")
            assert "(kube-proxy) runs on this node; stop it, and they go" in refused.err
            assert tables(node) == pair.theirs
        assert old_name(node, "--init-only", *given).code == 0
        assert old_name(node, "--write-config-to", str(tmp_path / "written.yaml"), *given).code == 0
        assert tables(node) == pair.theirs
        assert {one.verdict for one in lab.ask(PROBES, 5.0)} == {"answered"}, "what it left still serves"

        assert old_name(node, "--cleanup").code == 0
        assert tables(node) == set()
        again = old_name(node, "--cleanup", "--proxy-mode", "ipvs")
        assert (again.code, again.out) == (0, "nothing of ours was there\n")


def test_a_kube_proxy_inside_another_program_is_known_by_its_pages(
    plane: ControlPlane, lab: ServiceLab, tmp_path: Path
) -> None:
    node, embedding = lab.namespace(THIS), tmp_path / "k3s"
    embedding.symlink_to(real()[0])
    config = configuration(NODES[0], "nftables", plane.kubeconfig, **FIELDS)
    with kubelet(node, "nft"), kube_proxy(node, config, tmp_path, (str(embedding),)):
        refused = old_name(node, "--cleanup")
        assert "somebody answers at 127.0.0.1:10256, where it tells its health" in refused.err
        elsewhere = (*FLAGS, "--health-addr", "127.0.0.1:10351")
        with started(node, tmp_path, "--kubeconfig", str(plane.kubeconfig), *elsewhere, feature="services") as running:
            poll(lambda: "its tables stay beside ours: somebody answers at 127.0.0.1:10256" in running.text())
        assert tables(node) == _both("kube-proxy") | _both("podgate-services")


IPVS: Final = """
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -j KUBE-LOAD-BALANCER
-A KUBE-NODE-PORT -p udp -j KUBE-MARK-MASQ
-A KUBE-LOAD-BALANCER -p sctp -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
COMMIT
*filter
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A KUBE-PROXY-FIREWALL -j KUBE-SOURCE-RANGES-FIREWALL
COMMIT
"""
"""The chains of mode ipvs, without what matches sets, which this kernel may lack as it lacks IPVS."""


@contextmanager
def left_by_ipvs(node: NetNamespace) -> Iterator[None]:
    """Have for the body what mode ipvs leaves: its device, by name, with the addresses of Services, and its chains."""
    node.run("ip", "link", "add", IPVS_DEVICE, "type", "bridge")  # not every kernel has dummy devices
    for address in ADDRESSES:
        node.run("ip", "addr", "add", address, "dev", IPVS_DEVICE, *(["nodad"] if ":" in address else []))
    node.run("ip", "link", "set", IPVS_DEVICE, "up")
    for family in FAMILIES:
        node.run(f"{program(family, 'nft')}-restore", "--noflush", text=IPVS)
    try:
        yield
    finally:
        node.run("ip", "link", "del", IPVS_DEVICE, check=False)


@pytest.mark.parametrize("pair", [Pair("ipvs", "nftables"), Pair("ipvs", "iptables")], ids="-".join)
def test_what_mode_ipvs_left_keeps_no_connection_from_its_way_and_is_named(
    plane: ControlPlane, lab: ServiceLab, pair: Pair, tmp_path: Path
) -> None:
    node = lab.namespace(THIS)
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    with kubelet(node, "nft"), left_by_ipvs(node):
        with agent(node, plane, tmp_path, pair.backend) as running:
            poll(lambda: tables(node) == pair.ours)
            assert not IPVS_CHAINS & {name for family in FAMILIES for name in chains(node, family, "nft")}
            for _ in range(6):
                assert {one.verdict for one in lab.ask(PROBES, 20.0)} == {"answered"}
            assert f"left the device {IPVS_DEVICE}, with {len(ADDRESSES)} addresses" in running.text()
            poll(lambda: b"IpvsLeftOver" in plane.get(events)[1])
            assert IPVS_DEVICE in node.run("ip", "link")
        assert old_name(node, "--cleanup").code == 0
        assert IPVS_DEVICE not in node.run("ip", "link")
        assert tables(node) == set()


IPVS_CHAINS: Final = {
    name for name in re.findall(r"^:(\S+)", IPVS, re.MULTILINE) if "IPVS" in name or name.endswith("PORT")
}
