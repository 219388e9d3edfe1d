"""``podgate services run`` and node ports on loopback addresses, which the process answers itself with nftables.

Here: the option, a restart, endpoints that go. Not here: how bytes are passed on
(tests/features/services/server/test_loopback.py).
Invariant: what a client meets is what ``explain`` says.
"""

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podgate.linux.namespaces import inside_network
from tests.support.agent import Agent, podgate
from tests.support.netns import NetNamespace
from tests.support.poll import poll
from tests.support.services_agent import Folder, service, serving, slice_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NODE_PORT = 30080
WEB = service("web", "10.96.0.1", {"port": 80, "nodePort": NODE_PORT}, type="NodePort")
HERE = "10.0.0.1"
OPTIONS = ("--nodeport-addresses", "primary,localhost")
LISTENERS = 'kubeproxy_nftables_localhost_nodeport_listeners{ip_family="IPv4"}'


@pytest.fixture
def endpoint(node: NetNamespace, tmp_path: Path) -> Iterator[None]:
    """Have an endpoint on the node that answers over HTTP."""
    page = tmp_path / "pages"
    page.mkdir()
    (page / "who").write_text("the endpoint")
    node.run("ip", "addr", "add", f"{HERE}/32", "dev", "lo")
    with node.running(sys.executable, "-m", "http.server", "--bind", HERE, "--directory", str(page), "80"):
        with inside_network(node.descriptor):
            poll(lambda: is_open(HERE, 80))
        yield


def is_open(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 30.0):
        return True
    return False


def answers(agent: Agent) -> bool:
    return agent.get("/who", NODE_PORT) == (200, "the endpoint")


def explained(folder: Folder) -> str:
    asked = podgate(
        *("services", "explain", f"127.0.0.1:{NODE_PORT}", "--from", "node", "--source", str(folder.path)),
        *("--node-name", "node-1", *OPTIONS),
    )
    return asked.out


@pytest.mark.usefixtures("endpoint")
def test_they_answer_while_there_is_an_endpoint_and_after_a_restart(node: NetNamespace, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "source")
    folder.write([WEB, slice_of("web", HERE)])
    with serving(node, tmp_path, folder, *OPTIONS) as agent:
        poll(lambda: answers(agent))
        assert f"{LISTENERS} 1" in agent.get("/metrics")[1]
        assert f"forward to {HERE}:80" in explained(folder)
    with serving(node, tmp_path, folder, *OPTIONS) as agent:
        poll(lambda: answers(agent))
        folder.write([WEB])
        poll(lambda: agent.get("/who", NODE_PORT) == (0, ""))
        assert f"{LISTENERS} 0" in agent.get("/metrics")[1]
        assert ": reject: 80/tcp: there is no endpoint" in explained(folder)
        folder.write([WEB, slice_of("web", HERE)])
        poll(lambda: answers(agent))
        with inside_network(node.descriptor):
            idle = socket.create_connection(("127.0.0.1", NODE_PORT), 30.0)
        with idle:
            agent.end()
        assert agent.process.returncode == 0, "clients that stay keep no agent from ending"
