"""``podgate services run`` and connections: UDP clients that keep their socket, clients that stay with an endpoint, and
what load balancers are told.

Here: real sockets in the network of the flows (tests/support/service_flows.py). Not here: single flows
(test_services_flows.py), the table (test_services.py).
Invariant: who answered is what the answer says; endpoints are told apart by that.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from podgate.features.services.intent import Protocol
from podgate.lab.kinds import Object
from podgate.linux.namespaces import inside_network
from tests.support.agent import Agent, started
from tests.support.poll import poll
from tests.support.service_flows import THIS, WORLDS, flow_lab, node_objects, place
from tests.support.service_inputs import service_range
from tests.support.service_lab import Probe, ServiceLab
from tests.support.services_agent import PROXY_NAME, Folder, service, serving, slice_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WORLD: Final = WORLDS["ip"]
ENDPOINTS: Final = [WORLD[name] for name in ("local-1", "local-2", "remote-1", "remote-2")]
ADDRESS: Final = "10.96.0.53"
PORT: Final = 8080
OTHER_PORT: Final = 9090
HEALTH: Final = 32000
FLAGS: Final = ("--cluster-cidr", WORLD["cluster-cidr"], "--nodeport-addresses", "all")
_AGAIN_SECONDS: Final = 1.0
"""How long an answer may take before a client asks again, as resolvers do."""
_TRIES: Final = 20
_ANSWER_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 1.0


@pytest.fixture(scope="module")
def lab() -> Iterator[ServiceLab]:
    with flow_lab() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path / "source")
    found.write(node_objects(""), "nodes")
    return found


@contextlib.contextmanager
def proxy(lab: ServiceLab, folder: Folder, tmp_path: Path, *flags: str) -> Iterator[Agent]:
    """Run an agent on node-1; what it wrote is gone afterwards."""
    with serving(lab.namespace(THIS), tmp_path, folder, *FLAGS, *flags) as agent:
        yield agent


@pytest.fixture(autouse=True)
def _clean(lab: ServiceLab) -> Iterator[None]:
    yield
    lab.run(THIS, "nft", "flush", "ruleset")
    lab.run(THIS, "conntrack", "-F")


class Client:
    """A UDP client that never closes its socket."""

    def __init__(self, lab: ServiceLab, name: str = "pod") -> None:
        with inside_network(lab.descriptors[place(name)]):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(_AGAIN_SECONDS)
        self._socket.connect((ADDRESS, PORT))

    def ask(self) -> str:
        """Give the endpoint that answers, or ``refused`` or ``silent``."""
        for _ in range(_TRIES):
            try:
                self._socket.send(b"who")
                return self._socket.recv(100).decode().partition(" ")[0]
            except ConnectionRefusedError:
                return "refused"
            except TimeoutError:
                continue
        return "silent"

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def clients(lab: ServiceLab, count: int) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as stack:
        found = [Client(lab) for _ in range(count)]
        for one in found:
            stack.callback(one.close)
        yield found


def udp(*endpoints: str, port: int = PORT, ready: bool = True) -> list[Object]:
    """Give a UDP Service with these endpoints."""
    found = slice_of("dns", *endpoints, port=port, protocol="UDP")
    for each in found["endpoints"]:
        each["conditions"] = {"ready": ready, "serving": ready}
    return [service("dns", ADDRESS, {"port": PORT, "protocol": "UDP"}), found]


def at(*endpoints: str, port: int = PORT) -> set[str]:
    return {f"{each}:{port}" for each in endpoints}


def test_a_client_that_keeps_its_socket_follows_the_endpoints(lab: ServiceLab, folder: Folder, tmp_path: Path) -> None:
    first, second, third, _ = ENDPOINTS
    lab.serve_once(place("local-1"), first, "udp", OTHER_PORT)
    folder.write(udp(first, ready=False))
    with proxy(lab, folder, tmp_path), clients(lab, 4) as asking:
        assert {one.ask() for one in asking} == {"refused"}
        folder.write(udp(first))
        for one in asking:
            poll(lambda: one.ask() in at(first))  # noqa: B023 - called at once
        folder.write(udp(first, port=OTHER_PORT))
        for one in asking:
            poll(lambda: one.ask() in at(first, port=OTHER_PORT))  # noqa: B023 - called at once
        folder.write(udp(second))
        for one in asking:
            poll(lambda: one.ask() in at(second))  # noqa: B023 - called at once
        folder.write(udp())  # nobody is left: not even the one that was there
        for one in asking:
            poll(lambda: one.ask() == "refused")  # noqa: B023 - called at once
        folder.write(udp(third))
        for one in asking:
            poll(lambda: one.ask() in at(third))  # noqa: B023 - called at once
        folder.write([])  # the Service is gone: its flows too, although the Pod still answers
        for one in asking:
            poll(lambda: one.ask() not in at(third))  # noqa: B023 - called at once


def test_flows_that_are_served_survive_changes_and_restarts(lab: ServiceLab, folder: Folder, tmp_path: Path) -> None:
    folder.write(udp(*ENDPOINTS[:3]))
    with clients(lab, 64) as asking:  # that one of three endpoints gets none of them happens once in 10^11 times
        with proxy(lab, folder, tmp_path) as agent:
            before = [one.ask() for one in asking]
            assert set(before) == at(*ENDPOINTS[:3])
            folder.write(udp(*ENDPOINTS))
            poll(lambda: ENDPOINTS[3] in lab.run(THIS, "nft", "list", "map", "ip", "podgate-services", "endpoints"))
            assert [one.ask() for one in asking] == before
            assert agent.stop() == 0
        assert [one.ask() for one in asking] == before
        folder.write(udp(*ENDPOINTS[1:]))  # while nobody looks
        with proxy(lab, folder, tmp_path):
            for one, endpoint in zip(asking, before, strict=True):
                if endpoint in at(ENDPOINTS[0]):
                    poll(lambda: one.ask() in at(*ENDPOINTS[1:]))  # noqa: B023 - called at once
                else:
                    assert one.ask() == endpoint


KINDS: Final[tuple[Protocol, ...]] = ("tcp", "udp")


def drawn(
    lab: ServiceLab, name: str, count: int = 12, address: str = ADDRESS, port: int = PORT, *, protocol: Protocol = "tcp"
) -> set[str]:
    """Give who answers connections of one client."""
    probes = [Probe(place(name), address, protocol, port) for _ in range(count)]
    seen = lab.ask(probes, _ANSWER_SECONDS)
    assert {one.verdict for one in seen} == {"answered"}
    return {one.endpoint for one in seen}


NODE_PORT: Final = 30080


def sticky(endpoints: Sequence[str]) -> list[Object]:
    """Give a Service whose clients stay with their endpoint, at three addresses."""
    spec: dict[str, Any] = {"type": "NodePort", "sessionAffinity": "ClientIP", "externalIPs": [WORLD["external-ip"]]}
    found = service("sticky", ADDRESS, {"port": PORT, "nodePort": NODE_PORT}, **spec)
    return [found, slice_of("sticky", *endpoints, port=PORT)]


def test_a_client_stays_with_its_endpoint_until_that_leaves(lab: ServiceLab, folder: Folder, tmp_path: Path) -> None:
    names = ("pod", "local-1", "local-2", "outside", "other-pod")
    folder.write(sticky(ENDPOINTS))
    with proxy(lab, folder, tmp_path) as agent:
        first = {name: drawn(lab, name) for name in names}
        assert {len(found) for found in first.values()} == {1}
        # Whatever address of the Service they ask.
        for address, port in ((WORLD["node"], NODE_PORT), (WORLD["external-ip"], PORT)):
            assert {name: drawn(lab, name, 4, address, port) for name in ("pod", "outside")} == {
                name: first[name] for name in ("pod", "outside")
            }
        lab.run(THIS, "nft", "list", "table", "ip", "podgate-services")
        (gone,) = first["pod"]
        left = [each for each in ENDPOINTS if gone not in at(each)]
        folder.write(sticky(left))
        poll(lambda: drawn(lab, "pod", 1) <= at(*left))
        second = {name: drawn(lab, name) for name in names}
        assert {len(found) for found in second.values()} == {1}
        stayed = {name for name in names if first[name] != {gone}}
        assert {name: second[name] for name in stayed} == {name: first[name] for name in stayed}
        folder.write(sticky(ENDPOINTS))  # it comes back, and was forgotten
        poll(lambda: gone.partition(":")[0] in lab.run(THIS, "nft", "list", "ruleset"))
        assert {name: drawn(lab, name) for name in names} == second
        assert agent.stop() == 0
    with proxy(lab, folder, tmp_path):
        assert {name: drawn(lab, name) for name in names} == second


def dns(over_tcp: Sequence[str], over_udp: Sequence[str]) -> list[Object]:
    """Give a Service of one port for both protocols, whose clients stay with their endpoint."""
    protocols = {"TCP": over_tcp, "UDP": over_udp}
    found = service(
        "dns",
        ADDRESS,
        *({"name": each, "port": PORT, "protocol": each} for each in protocols),
        sessionAffinity="ClientIP",
    )
    slices = [slice_of("dns", *endpoints, port=PORT, protocol=each) for each, endpoints in protocols.items()]
    for each, name in zip(slices, protocols, strict=True):
        each["metadata"]["name"] = f"dns-{name.lower()}"
        each["ports"][0]["name"] = name
    return [found, *slices]


def test_a_client_leaves_an_endpoint_that_serves_only_the_other_protocol_of_its_port(
    lab: ServiceLab, folder: Folder, tmp_path: Path
) -> None:
    first, second, *_ = ENDPOINTS
    folder.write(dns([first], [first]))
    with proxy(lab, folder, tmp_path):
        assert {kind: drawn(lab, "pod", protocol=kind) for kind in KINDS} == dict.fromkeys(KINDS, at(first))
        folder.write(dns([first], [second]))
        poll(lambda: drawn(lab, "pod", 1, protocol="udp") == at(second))
        assert {kind: drawn(lab, "pod", protocol=kind) for kind in KINDS} == {"tcp": at(first), "udp": at(second)}


def test_a_client_is_forgotten_after_the_time_of_its_service(lab: ServiceLab, folder: Folder, tmp_path: Path) -> None:
    seconds = 1
    found = sticky(ENDPOINTS)
    found[0]["spec"]["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": seconds}}
    folder.write(found)

    def after_a_while() -> str:
        last = time.monotonic()
        poll(lambda: time.monotonic() > last + seconds + 0.3)  # nobody tells when the kernel forgets
        return str(drawn(lab, "pod", 1))

    for backend in ("nftables", "iptables"):
        with proxy(lab, folder, tmp_path, "--backend", backend):
            # On a busy machine a client may be forgotten between two of its connections.
            first = poll(lambda: len(found := drawn(lab, "pod")) == 1 and str(found))
            poll(lambda: after_a_while() != first)  # noqa: B023 - called at once
        lab.run(THIS, "nft", "flush", "ruleset")


SIZE: Final = 100_000
"""Bytes of a large request: many segments over TCP; over UDP a fifth of it goes in fragments."""


def test_large_requests_arrive_whole(lab: ServiceLab, folder: Folder, tmp_path: Path) -> None:
    both = [service("large", ADDRESS, {"name": "t", "port": 80}, {"name": "u", "port": 80, "protocol": "UDP"})]
    ports = [{"name": "t", "port": 7000}, {"name": "u", "port": 7000, "protocol": "UDP"}]
    folder.write([*both, {**slice_of("large", ENDPOINTS[2]), "ports": ports}])
    with proxy(lab, folder, tmp_path, "--masquerade-all"), counting(lab, "remote-1", ENDPOINTS[2]) as counted:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            sent = bytes(SIZE if kind == socket.SOCK_STREAM else SIZE // 5)
            with inside_network(lab.descriptors[place("pod")]):
                client = socket.socket(socket.AF_INET, kind)
            with client:
                client.connect((ADDRESS, 80))
                client.sendall(sent)
            poll(lambda: len(sent) in counted)  # noqa: B023 - called at once


@contextlib.contextmanager
def counting(lab: ServiceLab, name: str, address: str) -> Iterator[list[int]]:
    """Serve at port 7000 over TCP and UDP for the body; gives the sizes of what came."""
    counted: list[int] = []
    with contextlib.ExitStack() as stack:
        with inside_network(lab.descriptors[place(name)]):
            over_tcp, over_udp = (
                stack.enter_context(socket.socket(socket.AF_INET, kind))
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            )
        for listening in (over_tcp, over_udp):
            listening.settimeout(60.0)
            listening.bind((address, 7000))
        over_tcp.listen()

        def serve() -> None:
            connection, _ = over_tcp.accept()
            with connection:
                counted.append(sum(len(data) for data in iter(lambda: connection.recv(1 << 16), b"")))
            counted.append(len(over_udp.recv(1 << 16)))

        thread = threading.Thread(target=serve)
        thread.start()
        yield counted
        thread.join()


MESH: Final = {PROXY_NAME: "mesh"}
MESHED: Final = "10.96.0.61"


def test_two_proxies_serve_beside_one_another(lab: ServiceLab, folder: Folder, tmp_path: Path) -> None:
    """Neither drops what the other one leads to its endpoints, and both remember clients whom one masquerades."""
    spec: dict[str, Any] = {"sessionAffinity": "ClientIP", "externalIPs": [WORLD["external-ip"]]}
    meshed = service("meshed", MESHED, {"port": PORT}, labels=MESH, **spec)
    plain = [service("plain", ADDRESS, {"port": PORT}), slice_of("plain", ENDPOINTS[0], port=PORT)]
    folder.write(
        [service_range("10.96.0.0/16"), *plain, meshed, slice_of("meshed", *ENDPOINTS[1:], port=PORT, labels=MESH)]
    )
    words = ("--service-proxy-name", "mesh", "--metrics-addr", "127.0.0.1:10351", "--health-addr", "")
    with proxy(lab, folder, tmp_path):
        assert drawn(lab, "pod") == at(ENDPOINTS[0])
        source = ("--source", str(folder.path), *FLAGS, *words)
        with started(lab.namespace(THIS), tmp_path / "mesh", *source, feature="services"):
            poll(lambda: MESHED in lab.run(THIS, "nft", "list", "ruleset"))
            assert drawn(lab, "pod") == at(ENDPOINTS[0])
            for name, address in (("pod", MESHED), ("outside", WORLD["external-ip"])):
                found = drawn(lab, name, address=address)
                assert len(found) == 1
                assert found <= at(*ENDPOINTS[1:])
            nobody = [Probe(place("pod"), "10.96.7.7", "tcp", PORT)]
            assert {one.verdict for one in lab.ask(nobody, _SILENCE_SECONDS)} == {"silent"}


def balanced(*local: bool) -> list[Object]:
    """Give a Service of a load balancer with endpoints on this node, each ready or terminating, and one elsewhere."""
    ports = {"port": PORT, "nodePort": 30080}
    spec: dict[str, Any] = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": HEALTH,
    }
    found = slice_of("lb", *ENDPOINTS[: len(local)], ENDPOINTS[2], port=PORT)
    for each, ready in zip(found["endpoints"], local, strict=False):
        each["conditions"] = {"ready": ready, "serving": True, "terminating": not ready}
    found["endpoints"][-1]["nodeName"] = "node-2"
    return [service("lb", ADDRESS, ports, **spec), found]


def health(lab: ServiceLab) -> tuple[str, int]:
    """Ask the health check node port: its code, and how many endpoints it tells of."""
    url = f"http://{WORLD['node']}:{HEALTH}/"
    body, _, code = lab.run(THIS, "curl", "-s", "--max-time", "5", "-w", "\n%{http_code}", url, check=False).rpartition(
        "\n"
    )
    return code, json.loads(body)["localEndpoints"] if body.startswith("{") else 0


def test_a_health_check_node_port_tells_of_endpoints_that_are_ready_here(
    lab: ServiceLab, folder: Folder, tmp_path: Path
) -> None:
    folder.write(balanced(True, True))
    with proxy(lab, folder, tmp_path):
        poll(lambda: health(lab) == ("200", 2))
        folder.write(balanced(True, False))
        poll(lambda: health(lab) == ("200", 1))
        folder.write(balanced(False, False))  # they serve on, and nobody new shall come
        poll(lambda: health(lab) == ("503", 0))
        probe = Probe(place("outside"), WORLD["node"], "tcp", 30080)
        assert {one.endpoint for one in lab.ask([probe] * 12, _ANSWER_SECONDS)} <= at(*ENDPOINTS[:2])
        folder.write([])
        poll(lambda: health(lab) == ("000", 0))
