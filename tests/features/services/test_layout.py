"""What one Service puts into which maps, as people read elements; and that a history ends where a fresh start does."""

from collections.abc import Mapping
from ipaddress import ip_address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services.intent import FamilyIntent, Guard, LocalTraffic, NodeWide, ServicePort
from podgate.features.services.layout import BUCKETS, CLUSTER_IPS, Bucket, cluster_ips, declarations, items_of
from podgate.features.services.to_nftables import Writer, table_name
from podgate.model.frozen import ObjectRef
from podgate.model.table import Table
from podgate.targets.nftables.diff import diff, element_texts
from podgate.targets.nftables.elements import MEMBER
from podgate.targets.nftables.state import State

REF = ObjectRef("Service", "web", "shop")


def packed(text: str) -> bytes:
    return ip_address(text).packed


def endpoint(text: str) -> bytes:
    address, _, port = text.rpartition(":")
    return packed(address.strip("[]")) + int(port).to_bytes(2, "big")


A, B, C = map(endpoint, ("10.1.0.1:8080", "10.1.0.2:8080", "10.1.1.1:8080"))
PLAIN = ServicePort("shop/web:http", "tcp", 80, packed("10.96.0.1"), cluster=(A, C), anywhere=True)
BALANCER = packed("192.0.2.1")


def having(**changes: object) -> ServicePort:
    return msgspec.structs.replace(PLAIN, **changes)


ELEMENTS: dict[str, tuple[ServicePort, dict[str, list[str]]]] = {
    "a cluster IP": (
        PLAIN,
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00000002"],
            "endpoints": [
                "10.96.0.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080",
                "10.96.0.1 . tcp . 80 . 0x00000001 : 10.1.1.1 . 8080",
            ],
        },
    ),
    "no endpoint anywhere": (
        having(cluster=(), anywhere=False),
        {"cluster-ips": ["10.96.0.1"], "rejected": ["10.96.0.1 . tcp . 80"]},
    ),
    "internalTrafficPolicy Local, one here": (
        having(internal_local=True, local=(A,)),
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00010001"],
            "endpoints": ["10.96.0.1 . tcp . 80 . 0x00010000 : 10.1.0.1 . 8080"],
        },
    ),
    "internalTrafficPolicy Local, none here": (
        having(internal_local=True),
        {"cluster-ips": ["10.96.0.1"], "dropped": ["10.96.0.1 . tcp . 80"]},
    ),
    "a node port": (
        having(node_port=30080, cluster=(A,)),
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00000001"],
            "endpoints": ["10.96.0.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080"],
            "node-ports": ["tcp . 30080 : 0x00020001"],
            "node-port-endpoints": ["tcp . 30080 . 0x00000000 : 10.1.0.1 . 8080"],
        },
    ),
    "externalTrafficPolicy Local, none here": (
        having(external=(BALANCER,), external_local=True, cluster=(C,), node_port=30080),
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00000001", "192.0.2.1 . tcp . 80 : 0x00000001"],
            "endpoints": [
                "10.96.0.1 . tcp . 80 . 0x00000000 : 10.1.1.1 . 8080",
                "192.0.2.1 . tcp . 80 . 0x00000000 : 10.1.1.1 . 8080",
            ],
            "outside-dropped": ["192.0.2.1 . tcp . 80"],
            "node-ports": ["tcp . 30080 : 0x00000001"],
            "node-port-endpoints": ["tcp . 30080 . 0x00000000 : 10.1.1.1 . 8080"],
            "outside-dropped-node-ports": ["tcp . 30080"],
        },
    ),
    "source ranges": (
        having(
            external=(BALANCER,),
            cluster=(A,),
            guard=Guard((BALANCER,), ((packed("198.51.100.0"), packed("198.51.100.255")),)),
        ),
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00000001", "192.0.2.1 . tcp . 80 : 0x00020001"],
            "endpoints": [
                "10.96.0.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080",
                "192.0.2.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080",
            ],
            "guarded-ips": ["192.0.2.1 . tcp . 80"],
            "allowed-sources": ["192.0.2.1 . tcp . 80 . 198.51.100.0/24"],
        },
    ),
    "clients that stay": (
        having(cluster=(A,), sticky=10800),
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00040001"],
            "endpoints": ["10.96.0.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080"],
            "sticky-ips": ["10.96.0.1 . tcp . 80 : 0x00002a30 . tcp . 10.96.0.1 . 80"],
            "sticky-endpoints": ["tcp . 10.96.0.1 . 80 . 10.1.0.1 . 8080"],
        },
    ),
    "clients that stay, whatever they ask": (
        having(cluster=(A,), local=(A,), external_local=True, sticky=60, external=(BALANCER,), node_port=30080),
        {
            "cluster-ips": ["10.96.0.1"],
            "service-ips": ["10.96.0.1 . tcp . 80 : 0x00040001", "192.0.2.1 . tcp . 80 : 0x00040001"],
            "outside-ips": ["192.0.2.1 . tcp . 80 : 0x00050001"],
            "node-ports": ["tcp . 30080 : 0x00040001"],
            "outside-node-ports": ["tcp . 30080 : 0x00050001"],
            "endpoints": [
                "10.96.0.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080",
                "192.0.2.1 . tcp . 80 . 0x00000000 : 10.1.0.1 . 8080",
                "192.0.2.1 . tcp . 80 . 0x00010000 : 10.1.0.1 . 8080",
            ],
            "node-port-endpoints": [
                "tcp . 30080 . 0x00000000 : 10.1.0.1 . 8080",
                "tcp . 30080 . 0x00010000 : 10.1.0.1 . 8080",
            ],
            "sticky-ips": [
                "10.96.0.1 . tcp . 80 : 0x0000003c . tcp . 10.96.0.1 . 80",
                "192.0.2.1 . tcp . 80 : 0x0000003c . tcp . 10.96.0.1 . 80",
            ],
            "sticky-node-ports": ["tcp . 30080 : 0x0000003c . tcp . 10.96.0.1 . 80"],
            "sticky-endpoints": ["tcp . 10.96.0.1 . 80 . 10.1.0.1 . 8080"],
            "sticky-local-endpoints": ["tcp . 10.96.0.1 . 80 . 10.1.0.1 . 8080"],
        },
    ),
}


@pytest.mark.parametrize(("port", "expected"), ELEMENTS.values(), ids=ELEMENTS)
def test_elements_of_a_service(port: ServicePort, expected: Mapping[str, list[str]]) -> None:
    declared = {each.name: each for each in declarations("ip")}
    found: dict[str, list[str]] = {}
    shared = [(CLUSTER_IPS, each, MEMBER) for each in cluster_ips(REF, (port,))]
    for name, key, data in sorted((*items_of(masquerade_all=False)(REF, (port,)), *shared), key=lambda item: item[1]):
        found.setdefault(name, []).extend(element_texts(declared[name], [(key, data)]))
    assert found == expected


def test_masquerade_all_is_in_the_bucket_of_cluster_ips() -> None:
    (item,) = [item for item in items_of(masquerade_all=True)(REF, (PLAIN,)) if item[0] == "service-ips"]
    assert item[2] == Bucket(2, masqueraded=True).data


def test_a_bucket_has_a_chain_of_its_own() -> None:
    names = {
        Bucket(size, local, masqueraded, sticky).chain
        for size in (1, 2)
        for local in (False, True)
        for masqueraded in (False, True)
        for sticky in (False, True)
    }
    assert len(names) == 16
    assert Bucket(2, local=True, masqueraded=True, sticky=True).chain == "masq-to-2-local-sticky"


def test_a_proxy_with_a_name_has_tables_of_that_name() -> None:
    assert (table_name(""), table_name("mine")) == ("podgate-services", "podgate-services-mine")
    assert Writer("ip")(FamilyIntent("ip"), "mine").name == "podgate-services-mine"
    assert Writer("ip")(None, "mine") == State.absent("ip", "podgate-services-mine")


ENDPOINTS = st.lists(st.sampled_from([A, B, C]), unique=True, max_size=3).map(lambda found: tuple(sorted(found)))
PORTS = st.builds(
    lambda number, cluster, local, flags, sticky, own: ServicePort(
        f"shop/s{number}:http",
        "tcp",
        80,
        packed(f"10.96.0.{number + 1}"),
        external=(packed(f"192.0.2.{number + 1}"),) if flags[0] else (),
        node_port=30000 + number if flags[1] else 0,
        cluster=cluster or local,
        local=local,
        internal_local=flags[2],
        external_local=flags[3],
        anywhere=bool(cluster or local),
        sticky=sticky,
        own=tuple(each[:4] for each in own),
    ),
    st.integers(0, 3),
    ENDPOINTS,
    ENDPOINTS,
    st.tuples(*[st.booleans()] * 4),
    st.sampled_from([0, 60, 10800]),
    ENDPOINTS,
)
NODES = st.sampled_from(
    [
        NodeWide(),
        NodeWide(LocalTraffic(("10.1.0.0/16",)), service_ranges=("10.96.0.0/16",)),
        NodeWide(LocalTraffic(interface="cbr0"), masquerade_all=True, node_port_ips=(packed("192.0.2.99"),)),
    ]
)


@given(st.lists(st.tuples(NODES, st.lists(PORTS, max_size=4, unique_by=lambda port: port.name)), max_size=5))
def test_a_history_of_states_ends_in_that_of_a_fresh_writer(
    history: list[tuple[NodeWide, list[ServicePort]]],
) -> None:
    writer = Writer("ip")
    table: Table[ObjectRef, tuple[ServicePort, ...]] = Table()
    for node, ports in history:
        wanted = {ObjectRef("Service", port.name, "shop"): (port,) for port in ports}
        table = table.updated(wanted, removed=[ref for ref in table if ref not in wanted])
        intent = FamilyIntent("ip", node, table)
        state = writer(intent)
        assert state == Writer("ip")(intent)
        assert not diff(state, Writer("ip")(intent))
        chains = {chain.name for chain in state.chains}
        led = {str(data).removeprefix("goto ") for data in state.elements_of(BUCKETS).values()}
        assert led <= chains
