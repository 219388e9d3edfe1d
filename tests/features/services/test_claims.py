"""Contested destinations: no two ports share one, whatever came first, and memory changes nothing."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services import claims
from podgate.features.services.claims import Contests, claims_of
from podgate.features.services.ports import ServiceFacts, read_service
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.services import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from podgate.model.table import Table

addresses = st.sampled_from(["10.96.0.1", "10.96.0.2", "fd00::1", "192.0.2.1"])
services = st.builds(
    lambda cluster, external, ingress, ports, health, created: Service(
        ServiceMeta("x", "shop", creation_timestamp=created),
        ServiceSpec(
            type="LoadBalancer",
            cluster_ips=tuple(cluster),
            external_ips=tuple(external),
            ports=tuple(ServicePort("", "TCP", port, node) for port, node in ports),
            external_traffic_policy="Local",
            health_check_node_port=health,
        ),
        ServiceStatus(LoadBalancerStatus(tuple(LoadBalancerIngress(each) for each in ingress))),
    ),
    st.lists(addresses, min_size=1, max_size=2),
    st.lists(addresses, max_size=2),
    st.lists(addresses, max_size=1),
    st.lists(st.tuples(st.sampled_from([80, 81]), st.sampled_from([0, 30080])), min_size=1, max_size=2),
    st.sampled_from([30080, 30099]),
    st.sampled_from([None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
)
worlds = st.dictionaries(st.sampled_from("abcd"), services, max_size=4)


def facts_of(world: Mapping[str, Service]) -> Table[ObjectRef, ServiceFacts]:
    found = {}
    for name, service in world.items():
        ref = ObjectRef("Service", name, "shop")
        facts = read_service(ref, service)
        assert facts is not None
        found[ref] = facts
    return Table.of(found)


@given(st.lists(worlds, min_size=1, max_size=6))
def test_no_two_ports_share_a_destination_and_history_does_not_matter(history: list[dict[str, Service]]) -> None:
    contests = Contests()
    table: Table[ObjectRef, ServiceFacts] = Table()
    for world in history:
        wanted = facts_of(world)
        table = table.updated(wanted, [ref for ref in table if ref not in wanted])
        settled = contests(table)
        assert settled == Contests()(wanted)
        assert settled.keys() == wanted.keys()
        taken = [claim[0] for facts in settled.values() for claim in claims_of(facts)]
        assert len(taken) == len(set(taken))
        # Who loses a cluster IP loses the whole port, so only cluster IPs are sure to belong to somebody.
        assert {claim[0] for facts in wanted.values() for claim in claims_of(facts) if claim[1] == 0} <= set(taken)


def test_without_a_contest_nothing_is_made_anew() -> None:
    table = facts_of({"a": Service(spec=ServiceSpec(cluster_ip="10.96.0.1", ports=(ServicePort(port=80),)))})
    assert Contests()(table) is table


def test_a_contest_is_settled_once_however_many_other_services_come_and_go() -> None:
    ports = tuple(ServicePort(f"p{port}", "TCP", port) for port in range(1000, 1020))
    world = {
        f"a{index}": Service(
            spec=ServiceSpec(cluster_ip=f"10.96.0.{index + 1}", external_ips=("192.0.2.1",), ports=ports)
        )
        for index in range(20)
    }
    contests = Contests()
    before = contests(facts_of(world))
    other = Service(spec=ServiceSpec(cluster_ip="10.96.1.1", external_ips=("192.0.2.9",), ports=ports))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(claims, "_without", None)  # nobody's loss is worked out again
        after = contests(facts_of({**world, "z": other}))
    assert {ref: after[ref] for ref in before} == dict(before)
    assert after.keys() - before.keys() == {ObjectRef("Service", "z", "shop")}
