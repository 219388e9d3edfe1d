"""``podgate services run`` and UDP flows that changed while it did not look: rules taken away, Services deleted.

Here: open sockets beside the agent, with either back end, and who answers them. Not here: Services that change under
its eyes (test_services_connections.py), another proxy's start (test_services_proxies.py), the judgement
(tests/features/services/test_to_conntrack.py).
Invariant: a flow that stays is the kernel's same entry, by its number, not one that was made anew.
"""

import contextlib
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from podgate.lab.kinds import Object
from podgate.linux.namespaces import inside_network
from tests.support.lasting import Client, Lasting
from tests.support.poll import poll
from tests.support.service_flows import THIS, WORLDS, flow_lab, node_objects, place
from tests.support.service_inputs import service_range
from tests.support.service_lab import ServiceLab
from tests.support.services_agent import PROXY_NAME, Folder, service, serving, slice_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WORLD: Final = WORLDS["ip"]
PORT: Final = 8080
FLAGS: Final = ("--cluster-cidr", WORLD["cluster-cidr"], "--nodeport-addresses", "all", "--backend")
ELSEWHERE: Final = """\
table ip elsewhere {
    chain leaving {
        type nat hook postrouting priority srcnat + 10
        ip saddr 172.17.0.0/16 masquerade
    }
}
"""
"""Another program's table, for which the kernel tracks connections while ours is away."""
TAKEN_AWAY: Final = {
    "nftables": ("nft", "delete", "table", "ip", "podgate-services"),
    "iptables": ("iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES"),
}
SOON: Final = 0.3
"""Seconds until a client asks again."""


@pytest.fixture(scope="module")
def lab() -> Iterator[ServiceLab]:
    with flow_lab() as made:
        made.serve_once(THIS, WORLD["node"], "udp", PORT)
        for name in ("udp_timeout", "udp_timeout_stream"):
            made.namespace(THIS).sysctl(f"netfilter.nf_conntrack_{name}", "600")  # none goes by itself
        yield made


@pytest.fixture(autouse=True)
def _clean(lab: ServiceLab) -> Iterator[None]:
    yield
    lab.run(THIS, "nft", "flush", "ruleset")
    lab.run(THIS, "conntrack", "-F")


def dns(
    name: str, address: str, external: str, node_port: int, labels: dict[str, str] | None = None
) -> tuple[Object, Object]:
    """Give a UDP Service that is reached at three kinds of addresses, and its slice."""
    port: dict[str, Any] = {"port": PORT, "protocol": "UDP", "nodePort": node_port}
    ends = [WORLD[end] for end in ("local-1", "local-2")]
    spec: dict[str, Any] = {"type": "NodePort", "externalIPs": [external]}
    served = slice_of(name, *ends, port=PORT, protocol="UDP", labels=labels)
    return service(name, address, port, labels=labels, **spec), served


def askers(address: str, external: str, node_port: int) -> list[Client]:
    """Give who asks at each kind of address."""
    return [
        Client(place("pod"), address, "udp", PORT),
        Client(place("outside"), external, "udp", PORT),
        Client(place("outside"), WORLD["node"], "udp", node_port),
    ]


FOREIGN: Final = Client(place("outside"), WORLD["node"], "udp", PORT)
"""Who asks a program of the node, which no Service leads to."""


def tracked(lab: ServiceLab) -> dict[str, tuple[str, int]]:
    """Give the kernel's numbers of tracked UDP flows, and where each was first sent to."""
    flow = re.compile(r" dst=(\S+) sport=\d+ dport=(\d+) .* id=(\d+)")
    listed = lab.run(THIS, "conntrack", "-L", "-p", "udp", "-o", "id", check=False).splitlines()
    return {found[3]: (found[1], int(found[2])) for line in listed if (found := flow.search(line))}


@contextlib.contextmanager
def client(lab: ServiceLab, asker: Client) -> Iterator[socket.socket]:
    """Open the socket of one client for the body."""
    with inside_network(lab.descriptors[asker.origin]):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with opened:
        opened.settimeout(SOON)
        opened.connect((asker.address, asker.port))
        yield opened


def answered(opened: socket.socket) -> str:
    """Ask once; who answers, or nothing."""
    with contextlib.suppress(ConnectionRefusedError, TimeoutError):
        opened.send(b"who")
        return opened.recv(100).decode().partition(" ")[0]
    return ""


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_client_that_came_while_rules_were_taken_away_is_led_to_an_endpoint_once_they_are_back(
    lab: ServiceLab, tmp_path: Path, backend: str
) -> None:
    folder, where = Folder(tmp_path / "source"), ("10.96.0.71", WORLD["external-ip"], 30071)
    folder.write([*node_objects(""), service_range("10.96.0.0/16"), *dns("dns", *where)])
    lab.run(THIS, "nft", "-f", "-", text=ELSEWHERE)
    with serving(lab.namespace(THIS), tmp_path, folder, *FLAGS, backend) as agent, contextlib.ExitStack() as stack:
        before = stack.enter_context(contextlib.closing(Lasting(lab, [*askers(*where), FOREIGN])))
        kept = tracked(lab)
        assert len(kept) == 4
        agent.send(signal.SIGSTOP)
        lab.run(THIS, *TAKEN_AWAY[backend])
        came = [stack.enter_context(client(lab, asker)) for asker in askers(*where)[:2]]
        ends = {f"{WORLD[end]}:{PORT}" for end in ("local-1", "local-2")}
        assert not ends & {answered(each) for each in came}
        assert len(tracked(lab)) == 6
        agent.send(signal.SIGCONT)
        for each in came:
            poll(lambda: answered(each) in ends)  # noqa: B023 - called at once
        assert kept.keys() <= tracked(lab).keys(), "what serves keeps its flows"
        before.ask()
        assert before.faults == []


@pytest.mark.parametrize("then", ["nftables", "iptables"])
@pytest.mark.parametrize("first", ["nftables", "iptables"])
def test_flows_of_a_service_that_was_deleted_while_no_agent_ran_go_at_the_next_start(
    lab: ServiceLab, tmp_path: Path, first: str, then: str
) -> None:
    """With another back end too, as after kube-proxy, whose chains of iptables are the same."""
    folder = Folder(tmp_path / "source")
    gone, stays, moves = (
        ("10.96.0.71", "192.0.2.71", 30071),
        ("10.96.0.72", "192.0.2.72", 30072),
        ("10.96.0.73", "192.0.2.73", 30073),
    )
    always = [*node_objects(""), service_range("10.96.0.0/16"), *dns("stays", *stays)]
    folder.write([*always, *dns("gone", *gone), *dns("moves", *moves)])
    with contextlib.ExitStack() as stack:
        with serving(lab.namespace(THIS), tmp_path, folder, *FLAGS, first):
            asking = [*askers(*gone), *askers(*stays), *askers(*moves), FOREIGN]
            stack.enter_context(contextlib.closing(Lasting(lab, asking)))
        before = tracked(lab)
        assert sorted(before.values()) == sorted((each.address, each.port) for each in asking)
        folder.write([*always, *dns("moves", *moves, labels={PROXY_NAME: "mesh"})])
        # A machine too busy to answer itself may be kube-proxy's: that is looked at again soon.
        with serving(lab.namespace(THIS), tmp_path, folder, *FLAGS, then, "--sync-period", "1"):
            to_gone = {(each.address, each.port) for each in askers(*gone)}
            poll(lambda: not to_gone & set(tracked(lab).values()))
            assert tracked(lab) == {number: to for number, to in before.items() if to not in to_gone}
