"""Which node ports the agent answers on loopback addresses, and whose they are."""

import msgspec
import pytest

from podgate.features.services.intent import FamilyIntent, Intent, NodeWide, ServicePort
from podgate.features.services.loopback_ports import LoopbackPorts, Owners
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table
from podgate.targets.listeners.state import ListenAddress

ONE = bytes((10, 0, 0, 1, 0, 80))
PORT = ServicePort("shop/web:", "tcp", 80, bytes((10, 96, 0, 7)), node_port=30080, cluster=(ONE,), anywhere=True)
SIX = msgspec.structs.replace(PORT, cluster_ip=bytes(16), cluster=(bytes(18),))
OURS = NodeWide(localhost=True, proxied=True)
WEB, DNS = ObjectRef("Service", "web", "shop"), ObjectRef("Service", "dns", "shop")
FOUR, FOR_SIX = (
    ListenAddress("127.0.0.1", 30080, "IPv4 node port 30080"),
    ListenAddress("::1", 30080, "IPv6 node port 30080"),
)


def part(*ports: ServicePort, node: NodeWide = OURS, ref: ObjectRef = WEB) -> FamilyIntent:
    return FamilyIntent("ip", node, Table.of({ref: ports}))


def changed(**fields: object) -> ServicePort:
    return msgspec.structs.replace(PORT, **fields)


LISTENS = {
    "TCP with an endpoint": (part(PORT), True),
    "UDP": (part(changed(protocol="udp")), False),
    "SCTP": (part(changed(protocol="sctp")), False),
    "TCP beside UDP of the same number": (part(changed(protocol="udp"), PORT), True),
    "no endpoint": (part(changed(cluster=())), False),
    "no node port": (part(changed(node_port=0)), False),
    "policy Local with an endpoint here": (part(changed(external_local=True, local=(ONE,))), True),
    "policy Local without": (part(changed(external_local=True)), False),
    "localhost is not asked for": (part(PORT, node=NodeWide()), False),
    "rules lead there": (part(PORT, node=NodeWide(localhost=True)), False),
}


@pytest.mark.parametrize(("given", "listens"), LISTENS.values(), ids=LISTENS)
def test_where_somebody_listens_connections_lead_somewhere(given: FamilyIntent, listens: bool) -> None:
    found, intent = LoopbackPorts(), Intent(given)
    assert found.addresses(intent) == (frozenset({FOUR}) if listens else frozenset())
    assert (found.port(intent, "ip", 30080) is not None) is listens


def test_each_family_has_its_own_address() -> None:
    intent = Intent(part(PORT), FamilyIntent("ip6", OURS, Table.of({WEB: (SIX,)})))
    found = LoopbackPorts()
    assert found.addresses(intent) == {FOUR, FOR_SIX}
    assert (found.port(intent, "ip", 30080), found.port(intent, "ip6", 30080)) == (PORT, SIX)


def test_changes_of_endpoints_change_nothing_where_it_listens() -> None:
    found = LoopbackPorts()
    before = found.addresses(Intent(part(PORT)))
    other = changed(cluster=(ONE, bytes((10, 0, 0, 2, 0, 80))))
    assert found.addresses(Intent(part(other))) == before
    assert found.port(Intent(part(other)), "ip", 30080) == other
    assert found.addresses(Intent()) == frozenset()


def test_whose_a_node_port_is() -> None:
    ports = Table[ObjectRef, tuple[ServicePort, ...]].of({DNS: (changed(node_port=30081),), WEB: (PORT,)})
    intent = Intent(FamilyIntent("ip", OURS, ports))
    owners = Owners(LoopbackPorts(), intent)
    assert owners(FOUR) == WEB
    assert owners(FOR_SIX) is None
    assert owners(ListenAddress("0.0.0.0", 30080, "IPv4 health check 30080")) is None
    assert owners == Owners(LoopbackPorts(), intent)
    assert owners != Owners(LoopbackPorts(), Intent())
