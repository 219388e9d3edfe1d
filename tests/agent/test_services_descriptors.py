"""``podgate services run`` with more node ports on loopback addresses, and more clients, than it may have files open.

Here: a low limit of open files, real requests. Not here: one socket without a descriptor
(tests/observe/test_accepting.py), shares of the limit (tests/features/services/server/test_room.py).
Invariant: a probe is answered whatever the number of Services and of clients.
"""

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from podgate.features.services.server.room import shares_of
from podgate.linux.namespaces import inside_network
from tests.support.agent import Agent, started
from tests.support.netns import NetNamespace
from tests.support.poll import poll
from tests.support.services_agent import Folder, service, slice_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

LIMIT = 256
SERVICES = 400
FIRST = 30000
ENDPOINT = "10.0.0.1"
METRICS, HEALTH = 10249, 10350
PAGES = ("--metrics-addr", f"127.0.0.1:{METRICS}", "--health-addr", f"127.0.0.1:{HEALTH}")
OPTIONS = (*PAGES, "--nodeport-addresses", "primary,localhost")
LISTENERS = 'kubeproxy_nftables_localhost_nodeport_listeners{ip_family="IPv4"}'


def objects(count: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number in range(count):
        port = {"port": 80, "nodePort": FIRST + number}
        found.append(service(f"s{number}", f"10.96.{number // 200}.{number % 200 + 1}", port, type="NodePort"))
        found.append(slice_of(f"s{number}", ENDPOINT))
    return found


def probed(agent: Agent) -> set[int]:
    return {agent.get(page, HEALTH)[0] for page in ("/readyz", "/healthz", "/livez")}


def connect(clients: ExitStack, port: int) -> None:
    with suppress(ConnectionResetError):  # there are too many already
        clients.enter_context(socket.create_connection(("127.0.0.1", port), 30.0))


def open_files(agent: Agent) -> int:
    return sum(1 for _ in Path(f"/proc/{agent.pid}/fd").iterdir())


def test_node_ports_and_clients_leave_room_for_probes(node: NetNamespace, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "source")
    folder.write(objects(SERVICES))
    low = ("prlimit", f"--nofile={LIMIT}:{LIMIT}")
    words = ("--source", str(folder.path), *OPTIONS)
    shares = shares_of(LIMIT)
    with started(node, tmp_path, *words, under=low, feature="services") as agent, ExitStack() as clients:
        agent.until_ready()
        poll(lambda: f"{LISTENERS} {shares.node_ports}" in agent.get("/metrics", METRICS)[1])
        problems = agent.log("node node-1: of the 256 files that this process may have open")
        assert len(problems) == SERVICES - shares.node_ports
        assert "raise the limit of open files" in problems[0]["message"]
        without = {word for problem in problems for word in problem["message"].split() if word.startswith("Service/")}
        assert without == {f"Service/default/s{number}:" for number in range(shares.node_ports, SERVICES)}
        node.run("ip", "addr", "add", f"{ENDPOINT}/32", "dev", "lo")
        with inside_network(node.descriptor):
            clients.enter_context(socket.create_server((ENDPOINT, 80), backlog=1000))  # it never accepts
            for port in range(FIRST, FIRST + shares.node_ports):
                for _ in range(8):
                    connect(clients, port)
            for port in (METRICS, HEALTH):
                for _ in range(100):
                    connect(clients, port)
        for _ in range(10):
            assert probed(agent) == {200}
            assert open_files(agent) < LIMIT
        assert not agent.log("accept")
        assert agent.stop() == 0


def test_a_soft_limit_is_raised(node: NetNamespace, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "source")
    folder.write(objects(300))
    low = ("prlimit", "--nofile=256:4096")
    words = ("--source", str(folder.path), *OPTIONS)
    with started(node, tmp_path, *words, under=low, feature="services") as agent:
        agent.until_ready()
        poll(lambda: f"{LISTENERS} 300" in agent.get("/metrics", METRICS)[1])
        assert agent.metrics(METRICS)["process_max_fds"] == 4096
        assert not agent.log("files that this process may have open")
