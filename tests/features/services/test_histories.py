"""Whatever happens to Services and slices, in whatever order: the table ends as a fresh start writes it, and no Service
that has endpoints before and after a change is lost in between.

Here: random histories through compile, writers and the fake kernel, which shows the table after each transaction.
Not here: the same of iptables (test_iptables_histories.py), a single flow (test_to_nftables.py).
Invariant: who had endpoints is told by packets, before, between and after.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.features.services.compile import Compiler
from podgate.features.services.intent import FAMILIES, Intent
from podgate.features.services.settings import Settings
from podgate.features.services.to_nftables import TABLE, Writer
from podgate.model.machine import Family
from podgate.targets.nftables.fake import FakeNftables
from podgate.targets.nftables.state import State
from tests.features.services.flows import FAKE, Flow
from tests.features.services.test_to_nftables import told, traced
from tests.support.service_inputs import inputs_of, machine_of, node_object

PLACES: Final = {"local-1": "node-1", "local-2": "node-1", "remote-1": "node-2", "remote-2": "node-2"}
STATES: Final[list[dict[str, bool]]] = [
    {"ready": True, "serving": True, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": False},
]
RANGES: Final = ",".join(FAKE[family]["cluster-cidr"] for family in FAMILIES)
SETTINGS: Final = Settings(node_name="node-1", cluster_cidr=RANGES)
NUMBERS: Final = (1, 2, 3)
NODE_PORT: Final = 30080
HEALTH_PORT: Final = NODE_PORT + 1  # a node port of another Service


class World(msgspec.Struct):
    """One Service as it stands: what a history changes."""

    there: bool = False
    families: tuple[Family, ...] = FAMILIES
    address: int = 0
    """Whose cluster IP it has; 0 for its own."""
    port: int = 80
    port_name: str = "a"
    protocol: str = "TCP"
    target: int = 8080
    internal: str = "Cluster"
    external: str = "Cluster"
    affinity: str = "None"
    node_port: bool = False
    external_ip: bool = False
    balancer: int = 0
    """Which load balancer's address it was given; 0 for none."""
    ranges: bool = False
    health_port: bool = False
    endpoints: dict[str, tuple[int, int]] = {}
    """Endpoints by place: the slice that each stands in, and its state."""


def changed(field: str, values: list[Any]) -> st.SearchStrategy[tuple[int, str, Any]]:
    return st.tuples(st.sampled_from(NUMBERS), st.just(field), st.sampled_from(values))


endpoints = st.dictionaries(
    st.sampled_from(sorted(PLACES)), st.tuples(st.sampled_from((1, 2)), st.sampled_from((0, 0, 0, 1, 2))), max_size=4
)
events = st.one_of(
    changed("there", [True, True, False]),
    changed("families", [("ip",), ("ip6",), FAMILIES]),
    changed("address", [0, 0, *NUMBERS]),
    changed("port", [80, 81]),
    changed("port_name", ["a", "b"]),
    changed("protocol", ["TCP", "UDP"]),
    changed("target", [8080, 9090]),
    changed("internal", ["Cluster", "Local"]),
    changed("external", ["Cluster", "Local"]),
    changed("affinity", ["None", "ClientIP"]),
    changed("node_port", [True, False]),
    changed("external_ip", [True, False]),
    changed("balancer", [0, 1, 2]),
    changed("ranges", [True, False]),
    changed("health_port", [True, False]),
    st.tuples(st.sampled_from(NUMBERS), st.just("endpoints"), endpoints),
    st.tuples(st.sampled_from(NUMBERS), st.just("endpoints"), endpoints),
)
"""Endpoints that two Services share are addresses that are used again; ports that lose their name join no slice. An
address that two Services have is contested, or shared where their ports differ."""


def objects(number: int, found: World) -> Iterator[dict[str, Any]]:
    if not found.there:
        return
    metadata = {"name": f"s{number}", "namespace": "shop", "creationTimestamp": f"2026-01-0{number}T00:00:00Z"}
    port: dict[str, Any] = {"name": found.port_name, "port": found.port, "protocol": found.protocol}
    if found.node_port:
        port["nodePort"] = NODE_PORT + number
    addresses = [FAKE[family][f"cluster-ip-{found.address or number}"] for family in found.families]
    spec: dict[str, Any] = {
        "type": "LoadBalancer" if found.balancer else "NodePort" if found.node_port else "ClusterIP",
        "clusterIP": addresses[0],
        "clusterIPs": addresses,
        "ports": [port],
        "internalTrafficPolicy": found.internal,
        "externalTrafficPolicy": found.external,
        "sessionAffinity": found.affinity,
    }
    if found.external_ip:
        spec["externalIPs"] = [FAKE[family]["external-ip"] for family in found.families]
    if found.ranges:
        spec["loadBalancerSourceRanges"] = [FAKE[family]["outside-range"] for family in found.families]
    if found.health_port:
        spec["healthCheckNodePort"] = HEALTH_PORT
    ingress = [{"ip": FAKE[family][f"balancer-{found.balancer}"]} for family in found.families if found.balancer]
    status = {"loadBalancer": {"ingress": ingress}}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": status}
    for family in found.families:
        for part in (1, 2):
            yield {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"s{number}-{family}-{part}",
                    "namespace": "shop",
                    "labels": {"kubernetes.io/service-name": f"s{number}"},
                },
                "addressType": FAKE[family]["address-type"],
                "ports": [{"name": "a", "port": found.target, "protocol": found.protocol}],
                "endpoints": [
                    {"addresses": [FAKE[family][place]], "nodeName": PLACES[place], "conditions": STATES[state]}
                    for place, (where, state) in found.endpoints.items()
                    if where == part
                ],
            }


class Node:
    """A node whose agent never stops."""

    def __init__(self, most: int) -> None:
        self._compile: Callable[[Any], Any] = Compiler(SETTINGS, lambda intent: intent)
        self._writers = {family: Writer(family) for family in FAMILIES}
        self.kernel = {family: FakeNftables(family, TABLE, most) for family in FAMILIES}
        self.wanted = {family: State.absent(family, TABLE) for family in FAMILIES}

    def want(self, worlds: dict[int, World]) -> dict[Family, State]:
        """Say what some objects ask for."""
        nodes = [node_object("node-1", *(FAKE[family]["node"] for family in FAMILIES))]
        machine = machine_of(
            *(f"{FAKE[family]['node']}/{bits}" for family, bits in zip(FAMILIES, (24, 64), strict=True))
        )
        made = [each for number, found in worlds.items() for each in objects(number, found)]
        intent: Intent = self._compile(inputs_of([*nodes, *made], SETTINGS, machine)).states
        return {family: self._writers[family](intent.of(family), "") for family in FAMILIES}

    async def serve(self, worlds: dict[int, World]) -> None:
        """Serve some objects; the agent compares what it wants with what it wrote last."""
        wanted = self.want(worlds)
        for family, fake in self.kernel.items():
            fake.history.clear()
            if plan := fake.diff(self.wanted[family], wanted[family]):
                assert await fake.apply(plan) == {}
        self.wanted = wanted


def flows(worlds: dict[int, World], family: Family) -> Iterator[Flow]:
    """Give packets to every Service: of a Pod to its address, and from outside to all that it has."""
    world = FAKE[family]
    for number, found in worlds.items():
        protocol = found.protocol.lower()
        for sender in (world["pod"], "node"):
            yield Flow(sender, world[f"cluster-ip-{found.address or number}"], found.port, protocol, "", (), False, ())
        yield Flow(world["outside"], world["node"], NODE_PORT + number, protocol, "", (), False, ())
        for address in ("external-ip", "balancer-1", "balancer-2"):
            yield Flow(world["outside"], world[address], found.port, protocol, "", (), False, ())


def led(state: State, found: Flow, family: Family) -> frozenset[str]:
    """Give the endpoints that a packet may be led to; none where it is not forwarded."""
    if not state.present:
        return frozenset()
    verdict, reached, _, _ = told(traced(state, found, family))
    return frozenset(reached) if verdict == "forward" else frozenset()


@settings(max_examples=settings().max_examples // 2)
@given(
    history=st.lists(st.lists(events, min_size=1, max_size=4), min_size=1, max_size=4),
    most=st.sampled_from([4, 30]),
    share=st.booleans(),
)
def test_any_history_ends_in_a_fresh_start_and_loses_nobody(
    history: list[list[tuple[int, str, Any]]], most: int, *, share: bool
) -> None:
    async def walk() -> None:
        alone = World(there=True, endpoints={"local-1": (1, 0)})
        worlds = {
            number: msgspec.structs.replace(alone, address=NUMBERS[0], port=79 + number) if share else alone
            for number in NUMBERS
        }
        node = Node(most)
        await node.serve(worlds)
        for batch in history:
            for number, field, value in batch:
                worlds[number] = msgspec.structs.replace(worlds[number], **{field: value})
            before = {family: node.kernel[family].state for family in FAMILIES}
            await node.serve(worlds)
            fresh = Node(most).want(worlds)
            for family in FAMILIES:
                kernel = node.kernel[family]
                assert node.wanted[family] == fresh[family]
                assert not kernel.diff(await kernel.read(), fresh[family])
                lost(kernel, before[family], worlds, family)

    asyncio.run(walk())


def lost(kernel: FakeNftables, before: State, worlds: dict[int, World], family: Family) -> None:
    """See that who has endpoints before and after a change has some of these after each of its transactions."""
    states = kernel.history[:-1]  # the last one is what a fresh start gives
    for found in flows(worlds, family) if states else ():
        first, last = led(before, found, family), led(kernel.state, found, family)
        if first and last:
            between = [led(state, found, family) for state in states]
            assert all(each and each <= first | last for each in between), (str(found), first, last, between)
