"""The flow matrix and its scenarios, traced through the table that is written for them."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import pytest

from podgate.features.services.intent import Intent
from podgate.features.services.to_nftables import Writer
from podgate.model.machine import Family
from podgate.model.packet import Locality, Packet
from podgate.model.packet import Outcome as AnyOutcome
from podgate.targets.nftables.registers import Memory, Outcome, flow
from podgate.targets.nftables.state import State
from tests.features.services.flows import FAKE, FAMILIES, Flow, Scenario, in_world, read_scenarios
from tests.features.services.test_flows import compiled

SCENARIOS = [(scenario, family) for scenario in read_scenarios() for family in scenario.families]


def written(intent: Intent, family: Family) -> State:
    return Writer(family)(intent.of(family), intent.proxy_name)


def first_packet(found: Flow, family: Family) -> tuple[Packet, Locality]:
    """Give a flow's first packet, and the node that it meets; a client's port is one that no Service has."""
    world = FAKE[family]
    own = frozenset(ip_address(world[name]) for name in ("node", "node-second"))
    packet = Packet(
        source=ip_address(world["node"] if found.sender == "node" else found.sender),
        destination=ip_address(found.to),
        protocol=found.protocol,
        sport=51234,
        dport=found.port,
        in_interface=INTERFACES.get(name_of(found.sender, family), ""),
    )
    return packet, Locality(own)


def traced(state: State, found: Flow, family: Family) -> frozenset[Outcome]:
    """Give all that may come of a flow's first packet."""
    return flow(state, *first_packet(found, family), "output" if found.sender == "node" else "prerouting")


INTERFACES = {"pod": "cbr0", "local-1": "cbr0", "local-2": "cbr0", "outside": "eth0", "blocked": "eth0"}


def name_of(address: str, family: Family) -> str:
    return next((name for name, other in FAKE[family].items() if other == address), "")


def endpoint_text(outcome: AnyOutcome) -> str:
    assert outcome.endpoint is not None
    address, port = outcome.endpoint
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def told(outcomes: Iterable[AnyOutcome]) -> tuple[str, list[str], bool, list[str]]:
    """Give verdict, endpoints, whether all but an endpoint that reaches itself are masqueraded, and that endpoint."""
    outcomes = tuple(outcomes)
    verdicts = {outcome.verdict for outcome in outcomes}
    assert len(verdicts) == 1, outcomes
    (verdict,) = verdicts
    forwarded = [outcome for outcome in outcomes if outcome.endpoint is not None]
    if verdict != "accept" or not forwarded:
        return ("none" if verdict == "accept" else verdict), [], any(each.masqueraded for each in outcomes), []
    masqueraded = {endpoint_text(each) for each in forwarded if each.masqueraded}
    endpoints = sorted(map(endpoint_text, forwarded))
    return "forward", endpoints, masqueraded == set(endpoints), sorted(masqueraded)


@pytest.mark.parametrize(("scenario", "family"), SCENARIOS, ids=str)
def test_flows_through_the_table(scenario: Scenario, family: Family) -> None:
    found = in_world(scenario, FAKE[family])
    intent, _, _ = compiled(found, family)
    state = written(intent, family)
    wrong = {}
    for each in found.flows:
        verdict, endpoints, all_masqueraded, masqueraded = told(traced(state, each, family))
        expected = sorted(each.endpoints if each.masquerade else each.hairpin)
        if (verdict, endpoints, masqueraded) != (each.verdict, sorted(each.endpoints), expected):
            wrong[str(each)] = (verdict, endpoints, masqueraded, all_masqueraded)
    assert wrong == {}


def sticky(name: str, address: str, port: int, endpoint: str, node_port: int = 0) -> list[dict[str, Any]]:
    """Give a Service whose clients stay, and its slice with one endpoint; names are those of a world."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "type": "NodePort",
                "clusterIP": f"${{{address}}}",
                "sessionAffinity": "ClientIP",
                "ports": [{"port": port, **({"nodePort": node_port} if node_port else {})}],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "${address-type}",
            "ports": [{"port": 8080}],
            "endpoints": [{"addresses": [f"${{{endpoint}}}"], "nodeName": "${this}"}],
        },
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_port_of_a_service_and_a_node_port_of_the_same_number_remember_their_clients_apart(family: Family) -> None:
    objects = (*sticky("a", "cluster-ip-1", 80, "local-1", 30080), *sticky("b", "cluster-ip-2", 30080, "local-2"))
    found = in_world(Scenario("one number", {}, objects, ()), FAKE[family])
    state = written(compiled(found, family)[0], family)
    memory: Memory = frozenset()
    world, seen = FAKE[family], []
    for to in ("node", "cluster-ip-2", "node", "cluster-ip-2"):
        packet = first_packet(Flow(world["pod"], world[to], 30080, "tcp", "", (), False, ()), family)
        (outcome,) = flow(state, *packet, memory=memory)
        memory = outcome.memory
        seen.append(endpoint_text(outcome))
    a, b = (f"[{world[name]}]:8080" if family == "ip6" else f"{world[name]}:8080" for name in ("local-1", "local-2"))
    assert seen == [a, b, a, b]
    assert {name for name, _, _ in memory} == {"sticky-clients", "sticky-node-port-clients"}
    assert len(memory) == 2
