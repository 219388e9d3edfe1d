"""The lab's network with real packets: who reaches whom, and which address the other side sees."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.lab import CLI, TestLab, lab

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

# Answers each connection with the client's address, by TCP on IPv4 and IPv6 alike.
SEEN = """
import socket
server = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection, address = server.accept()
    connection.sendall(address[0].removeprefix("::ffff:").encode())
    connection.close()
"""
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 80), 20).recv(100).decode())"


def node(number: int) -> str:
    return f"""\
apiVersion: v1
kind: Node
metadata:
  name: node-{number}
  annotations:
    lab.podgate.dev/prefix-length: "20,64"
    lab.podgate.dev/secondary-addresses: 10.140.15.{number}0
spec: {{podCIDRs: [10.16.{number}.0/24, "fd00:16:{number}::/64"]}}
status:
  addresses:
    - {{type: InternalIP, address: 10.140.15.{number}}}
    - {{type: InternalIP, address: "fd00:140::{number}"}}
"""


def server(kind: str, name: str, where: str, spec: str) -> str:
    command = json.dumps([sys.executable, "-c", SEEN])
    if kind == "Host":
        return f"""\
apiVersion: lab.podgate.dev/v1
kind: Host
metadata: {{name: {name}}}
spec: {{{spec}, command: {command}}}
"""
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {where}
  {spec}
  containers:
    - name: main
      image: any
      command: {command}
      readinessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1}}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(
        node(1),
        node(2),
        server("Pod", "web", "node-1", "hostNetwork: false"),
        server("Pod", "near", "node-1", "hostNetwork: false"),
        server("Pod", "far", "node-2", "hostNetwork: false"),
        server("Pod", "agent", "node-2", "hostNetwork: true"),
        server("Host", "partner", "", 'addresses: [10.70.0.2, "fd00:70::2"], gateway: "10.70.0.1,fd00:70::1"'),
        server("Host", "other", "", "addresses: [10.71.0.2]"),
    ) as started:
        yield started


def addresses(running: TestLab, pod: str) -> list[str]:
    return [entry["ip"] for entry in running.get("Pod", pod)["status"]["podIPs"]]


def seen(running: TestLab, origin: str, address: str) -> str:
    """Connect from one place to an address, and give the client address that the server saw."""
    return running.execute(origin, sys.executable, "-c", ASK, address).strip()


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("other", ["near", "far"])
def test_pods_see_each_others_own_address(running: TestLab, other: str, version: int) -> None:
    own, there = (addresses(running, pod)[0 if version == 4 else 1] for pod in ("web", other))
    assert seen(running, "web", there) == own


@pytest.mark.parametrize(("address", "version"), [("10.70.0.2", 4), ("fd00:70::2", 6), ("10.71.0.2", 4)])
def test_an_outside_host_sees_the_pods_own_address(running: TestLab, address: str, version: int) -> None:
    assert seen(running, "web", address) == addresses(running, "web")[0 if version == 4 else 1]


def test_an_outside_host_reaches_pods_and_nodes(running: TestLab) -> None:
    assert seen(running, "host/partner", addresses(running, "far")[0]) == "10.70.0.2"
    assert seen(running, "host/partner", addresses(running, "far")[1]) == "fd00:70::2"
    assert seen(running, "host/partner", "10.140.15.2") == "10.70.0.2"
    assert seen(running, "host/other", "10.70.0.2") == "10.71.0.2"


def test_a_node_speaks_from_its_primary_address(running: TestLab) -> None:
    for address in (addresses(running, "web")[0], addresses(running, "far")[0], "10.70.0.2"):
        assert seen(running, "node/node-1", address) == "10.140.15.1"
    assert seen(running, "node/node-1", addresses(running, "far")[1]) == "fd00:140::1"


def test_a_secondary_address_of_a_node_answers_and_may_be_a_source(running: TestLab) -> None:
    assert seen(running, "web", "10.140.15.20") == addresses(running, "web")[0]
    bound = ASK.replace("80), 20)", '80), 20, ("10.140.15.10", 0))')
    assert running.execute("node/node-1", sys.executable, "-c", bound, "10.70.0.2").strip() == "10.140.15.10"


def test_a_pod_in_the_hosts_network_has_the_nodes_addresses(running: TestLab) -> None:
    assert addresses(running, "agent") == ["10.140.15.2", "fd00:140::2"]
    assert seen(running, "agent", "10.70.0.2") == "10.140.15.2"
    assert seen(running, "web", "10.140.15.2") == addresses(running, "web")[0]


@pytest.mark.parametrize("place", ["web", "node/node-1", "host/partner"])
def test_nothing_leads_out_of_the_lab(running: TestLab, place: str) -> None:
    for address in ("169.254.169.254", "198.51.100.1"):
        attempt = running.run("exec", place, "--", sys.executable, "-c", ASK, address, check=False)
        assert attempt.returncode == 1
        assert "unreachable" in attempt.stderr or "No route to host" in attempt.stderr
    assert "eth0" in running.execute(place, "ip", "-o", "link")


def test_a_pod_has_its_address_alone_and_a_gateway_that_needs_no_arp(running: TestLab) -> None:
    own = addresses(running, "web")[0]
    assert f"inet {own}/32" in running.execute("web", "ip", "-4", "addr", "show", "eth0")
    assert running.execute("web", "ip", "route", "get", "10.70.0.2").startswith("10.70.0.2 via 169.254.1.1 dev eth0")
    assert "169.254.1.1 dev eth0 lladdr" in running.execute("web", "ip", "neigh", "show", "nud", "permanent")


def test_a_pod_that_is_replaced_gets_a_network_of_its_own_at_once(running: TestLab) -> None:
    manifest = server("Pod", "again", "node-2", "terminationGracePeriodSeconds: 0")
    for _ in range(2):
        running.apply(manifest)
        assert seen(running, "web", addresses(running, "again")[0]) == addresses(running, "web")[0]
        running.run("delete", "pod/again")
    assert not any("again" in name for name in running.status()["namespaces"])


def test_a_port_of_the_lab_can_be_reached_from_the_machine(running: TestLab) -> None:
    words = [*CLI, "forward", "--name", running.name, "127.0.0.1:0", "partner:80"]
    with subprocess.Popen(words, env=running.environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split()[0].rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                assert connection.recv(100) in (b"10.140.0.1", b"10.70.0.1")
        finally:
            process.terminate()
    refused = running.run("forward", "127.0.0.1:0", "partner:81", check=False)
    assert refused.returncode == 1
    assert "port 81: Connection refused" in refused.stderr
