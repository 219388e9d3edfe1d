"""The default proxy starts on a node where another one, with a name, has Services: it leaves their flows alone.

Here: tracked UDP flows of both, with either back end of the default one. Not here: how the two share addresses and
clients (test_services_connections.py), the judgement (tests/features/services/test_to_conntrack.py).
Invariant: a flow that is to go is there too, and has gone before anything is said of those that stay.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.agent import started
from tests.support.lasting import Client, Lasting
from tests.support.poll import poll
from tests.support.service_flows import THIS, WORLDS, flow_lab, node_objects, place
from tests.support.service_inputs import service_range
from tests.support.service_lab import ServiceLab
from tests.support.services_agent import PROXY_NAME, Folder, service, serving, slice_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WORLD: Final = WORLDS["ip"]
PORT: Final = 8080
FLAGS: Final = ("--cluster-cidr", WORLD["cluster-cidr"])
MESH: Final = {PROXY_NAME: "mesh"}
OF_MESH: Final = ("--service-proxy-name", "mesh", "--metrics-addr", "127.0.0.1:10351", "--health-addr", "")
THEIRS, OURS, NOBODYS = "10.96.0.61", "10.96.0.62", "10.96.7.7"
"""The addresses of a Service of each proxy, and one of their range that no Service has."""


@pytest.fixture(scope="module")
def lab() -> Iterator[ServiceLab]:
    with flow_lab() as made:
        yield made


def objects() -> list[dict[str, object]]:
    """Give both Services, and the range of their addresses."""
    port, served = {"port": PORT, "protocol": "UDP"}, [WORLD["local-2"], WORLD["remote-1"], WORLD["remote-2"]]
    return [
        service_range("10.96.0.0/16"),
        service("theirs", THEIRS, port, labels=MESH),
        slice_of("theirs", *served, port=PORT, protocol="UDP", labels=MESH),
        service("ours", OURS, port),
        slice_of("ours", WORLD["local-1"], port=PORT, protocol="UDP"),
    ]


def track(lab: ServiceLab, address: str, client_port: str) -> None:
    """Have a UDP flow from a Pod to an address tracked, which an endpoint of the other proxy's Service answers."""
    first = ("-s", WORLD["pod"], "-d", address, "--sport", client_port, "--dport", str(PORT))
    reply = ("-r", WORLD["local-2"], "-q", WORLD["pod"], "--reply-port-src", str(PORT), "--reply-port-dst", client_port)
    lab.run(THIS, "conntrack", "-I", "-p", "udp", "-t", "600", *first, *reply)


def tracked(lab: ServiceLab, address: str) -> set[tuple[str, str]]:
    """Give the client's port, and who answers it, of each tracked UDP flow that was first sent to an address."""
    found: set[tuple[str, str]] = set()
    for line in lab.run(THIS, "conntrack", "-L", "-p", "udp", "-d", address, check=False).splitlines():
        values = [word.partition("=") for word in line.split()]
        _, answerer = (value for name, _, value in values if name == "src")
        found.add((next(value for name, _, value in values if name == "sport"), answerer))
    return found


@pytest.mark.parametrize(("backend", "knows_ranges"), [("nftables", True), ("iptables", False)])
def test_a_start_of_the_default_proxy_cuts_no_flow_of_another_one(
    lab: ServiceLab, tmp_path: Path, backend: str, *, knows_ranges: bool
) -> None:
    folder = Folder(tmp_path / "source")
    folder.write([*node_objects(""), *objects()])
    source, node = ("--source", str(folder.path), *FLAGS), lab.namespace(THIS)
    with started(node, tmp_path / "mesh", *source, *OF_MESH, feature="services") as mesh:
        poll(lambda: mesh.is_alive() and THEIRS in lab.run(THIS, "nft", "list", "ruleset"))
        with contextlib.closing(Lasting(lab, [Client(place("pod"), THEIRS, "udp", PORT)] * 4)) as clients:
            flows = tracked(lab, THEIRS)
            assert len(flows) == 4
            for _ in ("start", "restart"):
                track(lab, NOBODYS, "40000")
                track(lab, OURS, "40001")
                with serving(node, tmp_path, folder, *FLAGS, "--backend", backend):
                    poll(lambda: not tracked(lab, OURS))
                    assert bool(tracked(lab, NOBODYS)) is not knows_ranges
                    assert tracked(lab, THEIRS) == flows
                    clients.ask()
                    lab.run(THIS, "conntrack", "-D", "-d", NOBODYS, check=False)
            assert clients.faults == []
    lab.run(THIS, "nft", "flush", "ruleset")
    lab.run(THIS, "conntrack", "-F")
