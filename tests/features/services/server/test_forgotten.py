"""Clients of Services with affinity that find no room in the map that remembers them, with real packets."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from ipaddress import ip_address

import pytest

from podgate.features.services import layout
from podgate.features.services.backends import Choice
from podgate.features.services.intent import FAMILIES, FamilyIntent, NodeWide, ServicePort
from podgate.features.services.server.forgotten import CALM, ForgottenTarget
from podgate.features.services.server.packets import packet_readings
from podgate.features.services.sticky import State, Unremembered
from podgate.features.services.to_nftables import TABLE, Writer
from podgate.model.frozen import ObjectRef
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from tests.support.netns import NetNamespace, netns
from tests.support.nftables_target import load_state

pytestmark = pytest.mark.kernel

ROOM = 4
SERVICE: dict[Family, str] = {"ip": "10.96.0.10", "ip6": "fd00:96::a"}
NODE_PORT = 30053
METRIC = "podgate_services_clients_not_remembered_total"

SENDS = """
import socket
import sys
to, port, *clients = sys.argv[1:]
for client in clients:
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.bind((client, 0))
        sending.sendto(b"x", (to, int(port)))
"""


def clients(family: Family, first: int, count: int) -> list[str]:
    base = int(ip_address("10.1.0.0" if family == "ip" else "fd00:1::"))
    return [str(ip_address(base + number)) for number in range(first, first + count)]


def intent(family: Family, *, sticky: int) -> FamilyIntent:
    endpoint = ip_address("10.2.0.1" if family == "ip" else "fd00:2::1").packed + (53).to_bytes(2)
    port = ServicePort(
        *("shop/dns:dns", "udp", 53, ip_address(SERVICE[family]).packed),
        node_port=NODE_PORT,
        cluster=(endpoint,),
        anywhere=True,
        sticky=sticky,
    )
    return FamilyIntent(family, NodeWide(), Table.of({ObjectRef("Service", "dns", "shop"): (port,)}))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[NetNamespace]:
    """Give a node with a Service whose clients stay, room for a few, and their addresses."""
    monkeypatch.setattr(layout, "MOST_CLIENTS", ROOM)
    with netns() as made, ExitStack() as stack:
        made.run("ip", "link", "add", "out", "type", "veth", "peer", "name", "nobody")
        for each in ("out", "nobody"):
            made.run("ip", "link", "set", each, "up")
        for family in FAMILIES:
            for address in clients(family, 1, 12):
                made.run("ip", "addr", "add", address, "dev", "lo")
            wide = ["10.96.0.0/16", "10.2.0.0/16"] if family == "ip" else ["fd00:96::/64", "fd00:2::/64"]
            for each in wide:
                made.run("ip", "route", "add", each, "dev", "out")
            target = stack.enter_context(closing(NftablesTarget(family, TABLE, namespace=made.descriptor)))
            # A Service that has no affinity at first, and none in the end.
            for seconds in (0, 600, 0, 600):
                made.run_async(partial(load_state, target, Writer(family)(intent(family, sticky=seconds))))
        yield made


def forgotten(node: NetNamespace) -> dict[str, object]:
    found = node.call(lambda: list(packet_readings(Choice())))
    return {dict(each.labels)["family"]: each.value for each in found if each.name == METRIC}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_connection_of_a_client_without_room_is_counted(node: NetNamespace, family: Family) -> None:
    other: Family = "ip6" if family == "ip" else "ip"
    node.run("python3", "-c", SENDS, SERVICE[family], "53", *clients(family, 1, ROOM))
    assert forgotten(node) == {family: 0, other: 0}
    node.run("python3", "-c", SENDS, SERVICE[family], "53", *clients(family, ROOM + 1, 3))
    node.run("python3", "-c", SENDS, clients(family, 12, 1)[0], str(NODE_PORT), *clients(family, ROOM + 1, 2))
    assert forgotten(node) == {family: 5, other: 0}
    node.run("python3", "-c", SENDS, SERVICE[family], "53", *clients(family, 1, ROOM))
    assert forgotten(node) == {family: 5, other: 0}, "who was remembered is remembered again"


def test_it_is_told_until_clients_have_found_room_for_a_while(node: NetNamespace) -> None:
    now = 0.0

    def look(target: ForgottenTarget) -> State:
        return node.run_async(target.read)

    def send(first: int, count: int) -> None:
        node.run("python3", "-c", SENDS, SERVICE["ip"], "53", *clients("ip", first, count))

    target = ForgottenTarget(TABLE, lambda: now)
    assert look(target) == State()
    send(1, ROOM + 1)
    full = State(frozenset({Unremembered("ip")}))
    assert look(target) == look(target) == full
    assert look(ForgottenTarget(TABLE)) == State(), "what was before a start is no news"
    now = CALM - 1
    send(ROOM + 2, 1)
    assert look(target) == full
    now = CALM
    assert look(target) == full
    now = 2 * CALM
    assert look(target) == State()


def test_where_there_is_no_table_nobody_was_forgotten() -> None:
    with netns() as bare:
        assert bare.run_async(ForgottenTarget(TABLE).read) == State()
