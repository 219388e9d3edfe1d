"""Services in a lab that runs: what users see of them, and what becomes of a replica that ends.

Here: the lab's command line and real Pods. Not here: single rules (tests/lab/controllers), packets to Services.
Invariant: no agent runs: nothing here needs rules.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import CLI, TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

EXAMPLE = Path(__file__).parents[2] / "examples" / "services"


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(EXAMPLE) as started:
        yield started


def service(name: str, spec: str) -> str:
    return f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}], {spec}}}}}"


def endpoints(running: TestLab) -> list[Any]:
    return [endpoint for one in running.list("endpointslices") for endpoint in one["endpoints"]]


def test_what_get_shows(running: TestLab) -> None:
    shown = running.run("get", "services").stdout.splitlines()[1].split()
    assert shown == ["default", "hello", "NodePort", "10.96.0.80", "80:30080/TCP"]
    shown = running.run("get", "endpointslices").stdout.splitlines()[1].split()
    assert shown[2:] == ["IPv4", "3/3", "ready"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("clusterIP: 10.96.0.80", "10.96.0.80 is the address of Service/default/hello already"),
        ("type: nodeport", "'nodeport' is not one of ClusterIP, ExternalName, LoadBalancer, NodePort"),
    ],
)
def test_what_an_api_server_would_refuse_is_refused(running: TestLab, spec: str, message: str) -> None:
    done = running.run("apply", "-f", "/dev/stdin", text=service("second", spec), check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert [one["metadata"]["name"] for one in running.list("services")] == ["hello"]


HOLD = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(b"PUT / HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 1\\r\\nExpect: 100-continue\\r\\n\\r\\n")
    connection.recv(1000)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(running: TestLab, address: str, port: int) -> Iterator[None]:
    """Keep a request of the client's open for the body, which keeps the replica from ending."""
    command = [*CLI, "exec", "--name", running.name, "client", "--", sys.executable, "-c", HOLD, address, str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=running.environment
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "held\n"
        yield
        client.communicate("")


def test_a_replica_that_ends_is_told_until_it_is_gone(running: TestLab) -> None:
    (found,) = running.list("endpointslices")
    first, port = found["endpoints"][0], found["ports"][0]["port"]
    name = first["targetRef"]["name"]

    def told() -> dict[str, tuple[bool, bool]]:
        found = {one["targetRef"]["name"]: one["conditions"] for one in endpoints(running)}
        return {name: (conditions["ready"], conditions["terminating"]) for name, conditions in found.items()}

    with held(running, first["addresses"][0], port):
        running.run("delete", "--no-wait", f"pod/{name}")
        poll(lambda: told().get(name) == (False, True))
    poll(lambda: name not in told() and list(told().values()) == [(True, False)] * 3)
