"""kube-proxy's tables: left alone while it may be at work, gone once it is not; and where a start is refused."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from podgate.features.services.server.predecessor import (
    IGNORED,
    NOTHING_LEFT,
    Left,
    Plan,
    PredecessorTarget,
    at_work,
    neighbours,
    obstacle,
)
from podgate.observe.listen import parse_listen
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

LEFT = """
table ip kube-proxy {
    chain c { counter; }
    map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : goto c }; }
}
table ip6 kube-proxy { chain c { counter; }; }
"""
OTHERS = "table ip other { chain c { counter; }; }"
NAMED = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"kube-proxy", 0, 0, 0)
print("named", flush=True)
sys.stdin.read()
"""
HEALTH = "127.0.0.1:10256"


async def stopped() -> str:
    return ""


async def working() -> str:
    return "it is at work"


@contextmanager
def named_process(namespace: NetNamespace) -> Iterator[int]:
    """Have a process of kube-proxy's name in a namespace."""
    process = namespace.start(sys.executable, "-c", NAMED)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "named\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def answering(line: bytes) -> Iterator[None]:
    """Answer requests at HEALTH with one line, in this thread's namespace."""
    program = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 10256)); print('ready', flush=True)\n"
        f"while True:\n    c, _ = s.accept(); c.recv(1000); c.sendall({line!r}); c.close()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("have", "want", "plan"),
    [
        (Left(("ip", "ip6")), NOTHING_LEFT, Plan(("ip", "ip6"))),
        (Left(), NOTHING_LEFT, Plan()),
        (Left(("ip",)), IGNORED, Plan()),
    ],
)
def test_plans(have: Left, want: Left, plan: Plan) -> None:
    found = PredecessorTarget(stopped).diff(have, want)
    assert (found, bool(found)) == (plan, bool(plan.families))


@pytest.mark.kernel
def test_its_tables_go_once_it_has_stopped_and_others_stay() -> None:
    async def take_over(target: PredecessorTarget) -> tuple[str, dict[object, str], Left]:
        plan = target.diff(await target.read(), NOTHING_LEFT)
        refused = await target.apply(plan)
        return str(plan), dict(refused), await target.read()

    with netns() as namespace:
        namespace.run("nft", "-f", "-", text=LEFT + OTHERS)
        _, refused, left = namespace.run_async(lambda: take_over(PredecessorTarget(working)))
        assert refused == {"kube-proxy": "its tables stay beside ours: it is at work; stop it, and they go"}
        assert left == Left(("ip", "ip6"))
        plan, refused, left = namespace.run_async(lambda: take_over(PredecessorTarget(stopped)))
        assert plan == "- table ip kube-proxy: left by kube-proxy\n- table ip6 kube-proxy: left by kube-proxy"
        assert (refused, left) == ({}, NOTHING_LEFT)
        assert namespace.run("nft", "list", "tables") == "table ip other\n"


@pytest.mark.kernel
def test_a_process_of_its_name_counts_on_its_own_node_alone() -> None:
    with netns() as here, netns() as elsewhere, named_process(here) as pid:
        poll(lambda: pid in here.call(lambda: neighbours("kube-proxy")))
        assert here.call(lambda: asyncio.run(at_work(None))) == f"process {pid} (kube-proxy) runs on this node"
        assert elsewhere.call(lambda: neighbours("kube-proxy")) == []
        assert elsewhere.call(lambda: asyncio.run(at_work(None))) == ""


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("line", "counts"),
    [(b"HTTP/1.0 404 Not Found\r\n\r\n", True), (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", False), (b"", True)],
    ids=["kube-proxy has no readyz", "we have", "nobody knows"],
)
def test_who_answers_where_it_tells_its_health(line: bytes, counts: bool) -> None:
    def ask() -> str:
        with answering(line):
            return asyncio.run(at_work(parse_listen(HEALTH)))

    with netns() as namespace:
        assert bool(namespace.call(ask)) is counts
        assert namespace.call(lambda: asyncio.run(at_work(parse_listen(HEALTH)))) == ""


@pytest.mark.kernel
def test_a_node_without_rules_needs_the_api_servers_own_address() -> None:
    own = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    def served() -> str:
        with socket.create_server(("127.0.0.1", 443)):
            return obstacle(own, has_source=False)

    with netns() as namespace:
        assert "give --kubeconfig" in namespace.call(lambda: obstacle(own, has_source=False))
        assert namespace.call(served) == ""
        assert namespace.call(lambda: obstacle(own, has_source=True)) == ""
        assert namespace.call(lambda: obstacle({}, has_source=False)) == ""
