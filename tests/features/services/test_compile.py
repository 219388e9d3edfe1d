"""Compiling again and again gives what compiling afresh gives, and leaves alone what did not change."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services.compile import Compiler, watches
from podgate.features.services.intent import FAMILIES, Intent
from podgate.features.services.settings import Settings
from podgate.joints import Inputs
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.discovery import (
    ENDPOINT_SLICE,
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Hints,
    NamedHint,
    SliceLabels,
    SliceMeta,
    TargetRef,
)
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.kinds.services import SERVICE, Service, ServiceMeta, ServicePort, ServiceSpec
from podgate.model.machine import Machine
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table, changes

SETTINGS = Settings(node_name="node-1", cluster_cidr="10.244.0.0/16")

addresses = st.sampled_from(["10.244.1.1", "10.244.1.2", "10.244.2.1", "fd00:244::1", "10.244.01.1", "bad"])
services = st.builds(
    lambda **spec: Service(ServiceMeta(creation_timestamp=spec.pop("created")), ServiceSpec(**spec)),
    created=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
    cluster_ips=st.lists(st.sampled_from(["10.96.0.1", "10.96.0.2", "10.96.0.3", "fd00:96::1"]), max_size=2).map(tuple),
    external_ips=st.lists(st.sampled_from(["192.0.2.1", "10.96.0.1"]), max_size=1).map(tuple),
    ports=st.lists(
        st.builds(
            ServicePort,
            st.sampled_from(["", "http"]),
            st.sampled_from(["TCP", "UDP"]),
            st.sampled_from([80, 81]),
            st.sampled_from([0, 30080]),
        ),
        max_size=2,
    ).map(tuple),
    external_traffic_policy=st.sampled_from(["", "Local"]),
    internal_traffic_policy=st.sampled_from(["Cluster", "Local"]),
    health_check_node_port=st.sampled_from([0, 32000]),
    session_affinity=st.sampled_from(["None", "ClientIP"]),
)
endpoints = st.builds(
    Endpoint,
    addresses.map(lambda address: (address,)),
    st.builds(Conditions, st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from(["", "node-1", "node-2"]),
    st.sampled_from([Hints(), Hints((NamedHint("a"),)), Hints((), (NamedHint("node-1"),))]),
    st.sampled_from([None, TargetRef(uid="p"), TargetRef(uid="q")]),
)
slices = st.builds(
    lambda service, type_, found, ports: EndpointSlice(
        SliceMeta(labels=SliceLabels(service)), type_, tuple(found), tuple(ports)
    ),
    st.sampled_from(["a", "b", "c", ""]),
    st.sampled_from(["IPv4", "IPv4", "IPv6", "FQDN"]),
    st.lists(endpoints, max_size=3),
    st.lists(
        st.builds(EndpointPort, st.sampled_from(["", "http"]), st.just("TCP"), st.sampled_from([0, 8080])), max_size=2
    ),
)
nodes = st.builds(
    lambda zone: Node(ObjectMeta("node-1", labels={"topology.kubernetes.io/zone": zone})), st.sampled_from(["a", "b"])
)
steps = st.one_of(
    st.tuples(st.just(SERVICE.kind), st.sampled_from("abc"), st.none() | services),
    st.tuples(st.just(ENDPOINT_SLICE.kind), st.sampled_from("uvw"), st.none() | slices),
    st.tuples(st.just(NODE.kind), st.just("node-1"), nodes),
)
Step = tuple[str, str, Any]


def compiler() -> Compiler[Intent]:
    return Compiler(SETTINGS, lambda intent: intent)


def snapshot(tables: Mapping[str, Table[ObjectRef, Any]]) -> Inputs:
    return Inputs(Snapshot({kind: Listed(table) for kind, table in tables.items()}))


@given(st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=8))
def test_any_history_ends_where_a_fresh_compile_does(history: list[list[Step]]) -> None:
    remembering = compiler()
    tables: dict[str, Table[ObjectRef, Any]] = {SERVICE.kind: Table(), ENDPOINT_SLICE.kind: Table(), NODE.kind: Table()}
    for batch in history:
        for kind, name, value in batch:
            ref = ObjectRef(kind, name, "" if kind == NODE.kind else "shop")
            tables[kind] = tables[kind].updated({ref: value} if value else {}, [] if value else [ref])
        again = remembering(snapshot(tables))
        fresh = compiler()(snapshot({kind: Table.of(dict(table)) for kind, table in tables.items()}))
        assert again == fresh
        assert_no_conflict(again.states)


def assert_no_conflict(intent: Intent) -> None:
    for family in FAMILIES:
        part = intent.of(family)
        assert part is not None
        ports = [port for found in part.ports.values() for port in found]
        taken = [
            *((port.cluster_ip, port.protocol, port.port) for port in ports),
            *((address, port.protocol, port.port) for port in ports for address in port.external),
            *((port.protocol, port.node_port) for port in ports if port.node_port),
        ]
        assert len(taken) == len(set(taken))


def many(count: int) -> dict[str, Table[ObjectRef, Any]]:
    refs = [f"s{number}" for number in range(count)]
    return {
        SERVICE.kind: Table.of(
            {
                ObjectRef("Service", name, "shop"): Service(
                    spec=ServiceSpec(cluster_ip=f"10.96.{number >> 8}.{number & 255}", ports=(ServicePort(port=80),))
                )
                for number, name in enumerate(refs)
            }
        ),
        ENDPOINT_SLICE.kind: Table.of({ObjectRef("EndpointSlice", name, "shop"): one_slice(name, 1) for name in refs}),
        NODE.kind: Table.of({ObjectRef("Node", "node-1"): Node(ObjectMeta("node-1"))}),
    }


def one_slice(service: str, last: int) -> EndpointSlice:
    return EndpointSlice(
        SliceMeta(labels=SliceLabels(service)), "IPv4", (Endpoint((f"10.244.2.{last}",)),), (EndpointPort(port=8080),)
    )


def test_one_changed_slice_changes_its_service_and_leaves_all_others_the_same_objects() -> None:
    remembering, tables = compiler(), many(300)
    before = remembering(snapshot(tables)).states
    tables[ENDPOINT_SLICE.kind] = tables[ENDPOINT_SLICE.kind].updated(
        {ObjectRef("EndpointSlice", "s7", "shop"): one_slice("s7", 2)}
    )
    after = remembering(snapshot(tables)).states
    assert before.ip is not None
    assert after.ip is not None
    assert [change.key.name for change in changes(before.ip.ports, after.ip.ports)] == ["s7"]
    same = [ref for ref in after.ip.ports if after.ip.ports[ref] is before.ip.ports[ref]]
    assert len(same) == 299
    assert after.ip6 == before.ip6


def test_what_says_nothing_new_gives_the_same_states() -> None:
    remembering, tables = compiler(), many(3)
    before = remembering(snapshot(tables)).states
    heartbeat = Node(ObjectMeta("node-1", annotations={"beat": "2"}))
    tables[NODE.kind] = Table.of({ObjectRef("Node", "node-1"): heartbeat})
    assert remembering(snapshot(tables)).states is before


def test_while_a_kind_is_absent_the_intent_says_so_and_the_feature_is_not_ready() -> None:
    tables = many(3)
    inputs = snapshot(tables)
    for kind in (SERVICE.kind, ENDPOINT_SLICE.kind):
        lost = Inputs(Snapshot({**inputs.objects.kinds, kind: Absent("forbidden")}))
        compiled = compiler()(lost)
        assert compiled.states.unknown
        assert compiled.degraded == compiled.states.unknown
    assert compiler()(Inputs()).states.unknown.endswith(": give --kubeconfig or --source")
    fault = Problem(file_ref("away"), "error", "Unreadable", "", "there is no such folder")
    assert compiler()(Inputs(Snapshot(faults=(fault,)))).states.unknown.endswith(": away: there is no such folder")
    assert not compiler()(inputs).states.unknown
    assert compiler()(inputs).isolates


def test_a_file_that_cannot_be_used_makes_the_feature_not_ready_and_an_object_does_not() -> None:
    inputs = snapshot(many(3))
    faults = [Problem(file_ref(name), "error", "Syntax", "", "not YAML") for name in ("web.yaml", "api.yaml")]
    faults.append(Problem(ObjectRef("Service", "web", "shop"), "error", "Invalid", "spec", "expected a map"))
    degraded = [
        compiler()(Inputs(Snapshot(inputs.objects.kinds, tuple(some)))).degraded
        for some in (faults, faults[:1], faults[2:])
    ]
    assert degraded == [
        "api.yaml and 1 more cannot be used, so what was read there last counts: the log says why",
        "web.yaml cannot be used, so what was read there last counts: the log says why",
        "",
    ]


def test_a_node_whose_kernel_runs_without_ipv6_wants_nothing_there() -> None:
    inputs = Inputs(snapshot(many(3)).objects, machine=Machine("node-1", lacks=frozenset({"ip6"})))
    intent = compiler()(inputs).states
    assert intent.ip6 is None
    assert intent.ip is not None
    assert len(intent.ip.ports) == 3


def test_watches_are_for_the_default_proxy_or_for_one_with_a_name() -> None:
    selectors = {watch.kind.kind: (watch.label_selector, watch.field_selector) for watch in watches(SETTINGS, "n")}
    assert selectors == {
        # Others' too, to know which addresses are theirs.
        "Service": ("", ""),
        "EndpointSlice": ("!service.kubernetes.io/headless", ""),
        "Node": ("", "metadata.name=n"),
        "ServiceCIDR": ("", ""),
    }
    named = watches(Settings(service_proxy_name="mesh"), None)
    theirs = "service.kubernetes.io/service-proxy-name=mesh"
    assert [watch.label_selector for watch in named] == [theirs, f"{theirs},!service.kubernetes.io/headless", "", ""]
    assert named[2].field_selector == ""
