"""What this process itself answers: pages by address, and health check node ports on real sockets."""

import asyncio
import json
import socket
from collections.abc import Iterable
from ipaddress import ip_address

import pytest

from podgate.commandline.options import settings_from
from podgate.features.services.health import Taken
from podgate.features.services.intent import FamilyIntent, HealthCheck, Intent, NodeWide
from podgate.features.services.server.serving import Serving, cell_of, listeners_of
from podgate.features.services.settings import Settings
from podgate.joints import Key
from podgate.model.problems import Problem
from podgate.model.table import Table
from podgate.observe.answers import Answer
from podgate.observe.metrics import Measured, Reading
from podgate.targets.listeners.state import ListenAddress
from podgate.targets.listeners.state import State as ListenersState

CHECKS = Table.of({32000: HealthCheck("shop", "web", 2, 1), 32001: HealthCheck("shop", "dns", 0)})
NODE = NodeWide(node_port_ips=(ip_address("127.0.0.1").packed,))
INTENT = Intent(FamilyIntent("ip", NODE), None, CHECKS)


class Host:
    """What the host knows, as a test says it."""

    def __init__(self) -> None:
        self.late = 0.0

    def behind(self) -> float:
        return self.late

    def readings(self) -> Iterable[Reading]:
        return [Measured("podgate_services_sync_age_seconds", 1.0, (("step", "nftables/ip"),))]

    def now(self) -> float:
        return 1000.0


def serving() -> tuple[Serving, Host]:
    host, made = Host(), Serving(settings_from(Settings, {}))
    made.cell.swap(cell_of(INTENT))
    made.pages(host)
    return made, host


def parts(answer: Answer) -> tuple[int, str]:
    return answer[0], answer[2].decode()


def test_the_pages_are_where_kube_proxys_are() -> None:
    made, host = serving()
    assert {address: set(pages) for address, pages in made.pages(host).items()} == {
        "127.0.0.1:10249": {"/metrics", "/proxyMode", "/configz"},
        "0.0.0.0:10256": {"/healthz", "/livez"},
    }


def test_pages_say_how_it_is_and_count_what_they_said() -> None:
    made, host = serving()
    pages = made.pages(host)
    health, metrics = pages["0.0.0.0:10256"], pages["127.0.0.1:10249"]
    assert parts(metrics["/proxyMode"]()) == (200, "nftables")
    assert json.loads(parts(metrics["/configz"]())[1])["podgate.dev/services"]["masquerade_bit"] == 14
    assert [health[page]()[0] for page in ("/healthz", "/livez")] == [200, 200]
    host.late = 61.0
    assert [health[page]()[0] for page in ("/healthz", "/livez")] == [503, 503]
    made.cell.swap(cell_of(Intent(node_eligible=False)))
    host.late = 0.0
    assert [health[page]()[0] for page in ("/healthz", "/livez")] == [503, 200]
    text = parts(metrics["/metrics"]())[1]
    assert 'kubeproxy_proxy_healthz_total{code="503"} 2' in text
    assert 'kubeproxy_proxy_livez_total{code="200"} 2' in text
    assert 'kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 0' in text


@pytest.mark.parametrize(("port", "status"), [(32000, 200), (32001, 503), (32002, 404)])
def test_a_health_check_node_port(port: int, status: int) -> None:
    made, _ = serving()
    assert made.health_check("ip", port)[0] == status


def test_it_listens_where_node_ports_are_open() -> None:
    everywhere = Intent(FamilyIntent("ip"), FamilyIntent("ip6"), CHECKS)
    assert {str(each) for each in listeners_of(INTENT).addresses} == {
        "127.0.0.1:32000 (IPv4 health check 32000)",
        "127.0.0.1:32001 (IPv4 health check 32001)",
    }
    assert {(each.address, each.port) for each in listeners_of(everywhere).addresses} == {
        *(("0.0.0.0", 32000), ("0.0.0.0", 32001)),
        ("::", 32000),  # the other one has no cluster IP of IPv6
    }


def test_a_client_is_answered_by_what_is_known_at_that_moment() -> None:
    made, host = serving()

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    async def story() -> tuple[bytes, bytes]:
        target = made.target
        want = ListenersState(frozenset({ListenAddress("127.0.0.1", 0, "IPv4 health check 32000")}))
        assert await target.apply(target.diff(await target.read(), want)) == {}
        (port,) = target.ports().values()
        first = await ask(port)
        host.late = 100.0
        second = await ask(port)
        await target.apply(target.diff(want, ListenersState()))
        return first, second

    first, second = asyncio.run(story())
    assert first.startswith(b"HTTP/1.1 200")
    assert b"X-Load-Balancing-Endpoint-Weight: 2" in first
    assert b'"localEndpoints": 2' in first
    assert second.startswith(b"HTTP/1.1 503")


def test_a_port_that_somebody_else_holds_is_its_services_problem() -> None:
    async def story() -> list[Problem | None]:
        made, _ = serving()
        target = made.target
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            checks = Table.of({port: HealthCheck("shop", "web", 2)})
            want = listeners_of(Intent(FamilyIntent("ip", NODE), None, checks))
            refused = await target.apply(target.diff(ListenersState(), want))
        return [Taken("node-1", checks)(key, why) for key, why in refused.items()]

    (found,) = asyncio.run(story())
    assert found is not None
    assert (str(found.ref), found.reason) == ("Service/shop/web", "FailedToStartServiceHealthcheck")
    assert found.message.startswith("node node-1: port ")
    assert "is in use by" in found.message


NOT_OURS = {
    "a socket of another kind": ListenAddress("0.0.0.0", 32002, "IPv4 health check 32002"),
    "no socket": "10.96.0.10",
}


@pytest.mark.parametrize("key", NOT_OURS.values(), ids=NOT_OURS)
def test_what_is_no_health_check_is_nobodys_problem(key: Key) -> None:
    assert Taken("node-1", CHECKS)(key, "it is taken") is None
