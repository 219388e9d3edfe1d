"""``podgate services run --backend iptables`` on a node: either program, switching, restarting, healing.

Here: what the flows of test_services_flows.py, which go through iptables too, do not show. Not here: the chains' rules
(tests/features/services).
Invariant: every packet is asked of a real kernel, and so is every chain, by iptables' own programs.
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from podgate.features.services.iptables_names import TABLES
from podgate.linux.namespaces import inside_network
from podgate.targets.iptables.state import Binary
from tests.agent.test_services_flows import Podgate
from tests.features.services.flows import for_iptables, read_scenarios
from tests.support.agent import podgate
from tests.support.poll import poll
from tests.support.service_flows import NOWHERE, THIS, WORLDS, Markers, differences, flow_lab, place
from tests.support.service_lab import Probe, Seen, ServiceLab
from tests.support.slices import endpoint_slice

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WORLD = WORLDS["ip"]
SOME = re.compile(
    r"matrix: .*\(usual\)|policies: no endpoint on this node \(usual\)|load_balancers: source ranges with|"
    r"endpoints: clients stay|no_endpoints: every kind of address refuses \(policy Cluster\)"
)
HINT = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
FIREWALL = (
    "*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack "
    "! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n"
)
KUBELETS = {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-FIREWALL"}


@pytest.fixture(scope="module")
def lab() -> Iterator[ServiceLab]:
    with flow_lab() as made:
        yield made


@contextmanager
def kubelet(lab: ServiceLab, binary: Binary) -> Iterator[None]:
    """Have a kubelet's chains on the node for the body, by that program."""
    for family in ("iptables", "ip6tables"):
        lab.run(THIS, f"{family}-{binary}-restore", "--noflush", text=HINT)
    lab.run(THIS, f"iptables-{binary}-restore", "--noflush", text=FIREWALL)
    yield
    assert chains(lab, binary) == KUBELETS, "clean leaves the kubelet's chains, and no others"
    for family in ("iptables", "ip6tables"):
        for table in TABLES:
            lab.run(THIS, f"{family}-{binary}-restore", text=f"*{table}\nCOMMIT\n")


def chains(lab: ServiceLab, binary: Binary) -> set[str]:
    """Give Kubernetes' chains in both families, and those that built-in chains lead to."""
    text = "".join(lab.run(THIS, f"{family}-{binary}-save") for family in ("iptables", "ip6tables"))
    return {found[0] or found[1] for found in re.findall(r"^:(KUBE\S+)|-j (KUBE\S+)", text, re.MULTILINE)}


def clean(lab: ServiceLab, folder: Path) -> None:
    ended = podgate("services", "clean", "--state-dir", str(folder / "state"), namespace=lab.namespace(THIS))
    assert ended.code == 0, ended.err


def service(name: str, cluster_ip: str, *servers: str, **spec: Any) -> list[dict[str, Any]]:
    metadata = {"name": name, "namespace": "shop"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80, **spec.pop("port", {})}], **spec},
        },
        endpoint_slice(
            name, "IPv4", [(WORLD[server], "node-1") for server in servers], ("", 8080, "TCP"), metadata=metadata
        ),
    ]


def applied(agent: Podgate) -> list[str]:
    """Give the steps that wrote something, in order."""
    lines = [json.loads(line) for line in agent.log.read_text().splitlines() if line.startswith("{")]
    return [line["step"] for line in lines if line.get("plan") and "tables" in line["step"]]


def test_the_program_of_the_kubelet_is_used(lab: ServiceLab, tmp_path: Path) -> None:
    agent = Podgate(lab, "iptables", tmp_path)
    scenarios = [for_iptables(each) for each in read_scenarios() if SOME.match(each.name)]
    assert len(scenarios) == 8
    with kubelet(lab, "legacy"):
        assert differences(lab, agent, scenarios) == {}
        assert "KUBE-SERVICES" in chains(lab, "legacy")
        assert chains(lab, "nft") == set()
        clean(lab, tmp_path)


@contextmanager
def asking(lab: ServiceLab, probes: Sequence[Probe], seen: list[Seen]) -> Iterator[None]:
    """Send probes again and again while the body goes on, and keep what came of them."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            seen.extend(lab.ask(probes, 30.0))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_switching_leaves_no_gap_and_no_rules_behind(lab: ServiceLab, tmp_path: Path) -> None:
    agent, markers = Podgate(lab, "nftables", tmp_path), Markers(lab)
    found = service("web", WORLD["cluster-ip-1"], "local-1", type="NodePort", port={"nodePort": 30080})
    agent.replace([*found, *markers.next({})])
    probes = [
        Probe(place("pod"), WORLD["cluster-ip-1"], "tcp", 80),
        Probe(place("outside"), WORLD["node"], "tcp", 30080),
    ]
    seen: list[Seen] = []
    with kubelet(lab, "nft"):
        with agent.running({"nodeport_addresses": "primary"}, ""):
            markers.wait()
        with asking(lab, probes, seen):
            for backend in ("iptables", "nftables", "iptables"):
                # Whoever is too busy to answer itself for 2 s may be kube-proxy: that is looked at again soon.
                with agent.running({"nodeport_addresses": "primary", "backend": backend, "sync_period": 1.0}, ""):
                    poll(partial(is_alone, lab, backend))
        clean(lab, tmp_path)
    assert (len(seen) > 20, {one.verdict for one in seen}) == (True, {"answered"})


def is_alone(lab: ServiceLab, backend: str) -> bool:
    """Say whether a back end's rules are there, and nothing of the other."""
    in_nftables = "podgate-services" in lab.run(THIS, "nft", "list", "tables")
    in_iptables = chains(lab, "nft") - KUBELETS
    return (
        (not in_nftables and "KUBE-SERVICES" in in_iptables)
        if backend == "iptables"
        else (in_nftables and not in_iptables)
    )


@pytest.mark.parametrize("binary", ["nft", "legacy"])
def test_a_restart_writes_nothing_and_what_others_change_is_put_right(
    binary: Binary, lab: ServiceLab, tmp_path: Path
) -> None:
    agent, markers = Podgate(lab, "iptables", tmp_path), Markers(lab)
    found = service("web", WORLD["cluster-ip-1"], "local-1", "local-2", sessionAffinity="ClientIP")
    save = (f"iptables-{binary}-save", "-t", "nat")
    with kubelet(lab, binary):
        agent.replace([*found, *markers.next({})])
        with agent.running({}, ""):
            markers.wait()
            poll(lambda: is_ready(lab))  # all tables are written, not only those that lead to endpoints
        first = len(applied(agent))
        assert first > 0
        # The kernel tells of what iptables-nft does; iptables-legacy's rules are read again.
        with agent.running({"sync_period": 1.0 if binary == "legacy" else 600.0}, ""):
            poll(lambda: is_ready(lab))
            assert applied(agent)[first:] == []
            before = rules(lab.run(THIS, *save))
            lab.run(THIS, f"iptables-{binary}", "-t", "nat", "-F", "KUBE-SERVICES")
            poll(lambda: rules(lab.run(THIS, *save)) == before)
            poll(lambda: applied(agent)[first:] == [f"iptables-{binary}/ip/nat"])
            lab.run(THIS, f"iptables-{binary}", "-t", "nat", "-N", "KUBE-SVC-STRANGE")
            lab.run(THIS, f"iptables-{binary}", "-t", "nat", "-N", "KUBE-STRANGE")
            poll(lambda: "KUBE-SVC-STRANGE" not in chains(lab, binary))
            lab.run(THIS, f"iptables-{binary}", "-t", "nat", "-X", "KUBE-STRANGE")  # nobody else took it
        clean(lab, tmp_path)


def is_ready(lab: ServiceLab) -> bool:
    with inside_network(lab.descriptors[THIS]):
        connection = HTTPConnection("127.0.0.1", 10256, timeout=30.0)
        with contextlib.closing(connection), contextlib.suppress(OSError, HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
    return False


def rules(saved: str) -> list[str]:
    return [line for line in saved.splitlines() if line.startswith("-A")]


def test_node_ports_on_loopback_addresses_are_open_when_asked_for(lab: ServiceLab, tmp_path: Path) -> None:
    agent, markers = Podgate(lab, "iptables", tmp_path), Markers(lab)
    lab.namespace(THIS).sysctl("ipv4.conf.all.route_localnet", "0")
    lab.serve_once(THIS, "127.0.0.1", "udp", 9)
    found = service("web", WORLD["cluster-ip-1"], "local-1", type="NodePort", port={"nodePort": 30080})
    inside, neighbour = Probe(THIS, "127.0.0.1", "tcp", 30080), Probe(OTHER, "127.0.0.1", "udp", 9)
    with kubelet(lab, "nft"), leading_loopback_to_node_1(lab):
        lab.run(THIS, "iptables-nft", "-F", "KUBE-FIREWALL")  # a kubelet has this rule, too; newer ones may not
        agent.replace([*found, *markers.next({})])
        with agent.running({"nodeport_addresses": "all,localhost", "metrics_addr": "127.0.0.1:10249"}, ""):
            markers.wait()
            poll(lambda: lab.ask([inside], 2.0)[0].endpoint == f"{WORLD['local-1']}:8080")
            before = accepted_on_loopback(lab)
            lab.ask([inside, inside], 30.0)
            assert (before >= 1, accepted_on_loopback(lab)) == (True, before + 2)
            assert lab.ask([neighbour], 1.0)[0].verdict == "silent"
        lab.run(THIS, "iptables-nft", "-F", "KUBE-NODEPORTS")
        assert lab.ask([neighbour], 30.0)[0].verdict == "answered", "without our rule a neighbour gets through"
        with agent.running({"nodeport_addresses": "all"}, ""):
            poll(lambda: lab.ask([inside], 2.0)[0].verdict == "refused")
        clean(lab, tmp_path)


OTHER = "node/node-2"


def accepted_on_loopback(lab: ServiceLab) -> float:
    page = lab.run(THIS, "curl", "-s", "http://127.0.0.1:10249/metrics")
    (line,) = re.findall(r"^kubeproxy_iptables_localhost_nodeports_accepted_packets_total (\S+)$", page, re.MULTILINE)
    return float(line)


@contextmanager
def leading_loopback_to_node_1(lab: ServiceLab) -> Iterator[None]:
    """Have another node send its packets to 127.0.0.1 to node-1 for the body (CVE-2020-8558)."""
    lab.namespace(OTHER).sysctl("ipv4.conf.all.route_localnet", "1")
    lab.run(OTHER, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
    lab.run(OTHER, "ip", "route", "add", "127.0.0.1", "via", WORLD["node"], "src", WORLD["other-node"])
    yield
    lab.run(OTHER, "ip", "route", "del", "127.0.0.1")
    lab.run(OTHER, "ip", "addr", "add", "127.0.0.1/8", "dev", "lo")


def test_what_belongs_to_no_connection_is_dropped_unless_that_is_liberal(lab: ServiceLab, tmp_path: Path) -> None:
    """Answers of node-3 to outside do not come back this way, so what the client says next is out of its connection."""
    agent, markers = Podgate(lab, "iptables", tmp_path), Markers(lab)
    lab.serve_once(NOWHERE, WORLD["balancer-1"], "tcp", 80)
    probe = Probe(place("outside"), WORLD["balancer-1"], "tcp", 80)
    with kubelet(lab, "nft"):
        agent.replace(markers.next({}))
        with agent.running({}, ""):
            markers.wait()
            assert lab.ask([probe], 2.0)[0].verdict == "silent"
        with agent.running({"conntrack_tcp_be_liberal": True}, ""):
            poll(lambda: lab.ask([probe], 2.0)[0].verdict == "answered")
        clean(lab, tmp_path)
