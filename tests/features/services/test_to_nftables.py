"""The flow matrix and its scenarios, traced through the table that is written for them."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

import pytest

from podgate.features.services.intent import Intent, Protocol
from podgate.features.services.to_nftables import Writer
from podgate.model.machine import Family
from podgate.model.packet import Locality, Packet
from podgate.model.packet import Outcome as AnyOutcome
from podgate.targets.nftables.elements import concatenation
from podgate.targets.nftables.elements import port as port_field
from podgate.targets.nftables.registers import DynamicElements, Outcome, flow
from podgate.targets.nftables.state import State
from tests.features.services.flows import FAKE, FAMILIES, Flow, Scenario, in_world, read_scenarios
from tests.features.services.test_flows import compiled
from tests.support.slices import endpoint_slice

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


INTERFACES = {
    "pod": "vethpod",
    "local-1": "veth1",
    "local-2": "veth2",
    **dict.fromkeys(("outside", "blocked", "other-pod", "other-node"), "eth0"),
}


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


def sticky(
    name: str, address: str, port: int, endpoints: Mapping[str, str], *, node_port: int = 0, **spec: Any
) -> list[dict[str, Any]]:
    """Give a Service whose clients stay, and its slice; addresses are names of a world, of endpoints to nodes."""
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
                **spec,
            },
        },
        endpoint_slice(
            name,
            "${address-type}",
            ((f"${{{endpoint}}}", f"${{{node}}}") for endpoint, node in endpoints.items()),
            ("", 8080, "TCP"),
            metadata={"name": f"{name}-1", "namespace": "shop"},
        ),
    ]


class Node:
    """A node with some objects, which remembers."""

    def __init__(self, family: Family, *objects: dict[str, Any]) -> None:
        self._family: Family = family
        found = in_world(Scenario("clients that stay", {}, objects, ()), FAKE[family])
        self._state = written(compiled(found, family)[0], family)
        self.memory: DynamicElements = frozenset()

    def led(self, sender: str, to: str, port: int, protocol: Protocol = "tcp") -> set[str]:
        """Give the endpoints, by name, that a connection may be led to; remember one of them."""
        world = FAKE[self._family]
        packet = first_packet(Flow(world[sender], world[to], port, protocol, "", (), False, ()), self._family)
        outcomes = sorted(flow(self._state, *packet, memory=self.memory), key=lambda each: str(each.endpoint))
        self.memory = outcomes[0].memory
        return {name_of(str(each.endpoint[0]), self._family) for each in outcomes if each.endpoint}

    def remember_all_at(self, endpoint: str) -> None:
        """Make the endpoint of every client that is remembered another one, at port 8080."""
        there = ip_address(FAKE[self._family][endpoint]).packed + concatenation(port_field(8080))
        self.memory = frozenset(
            (name, key, there if name == "sticky-clients" else data) for name, key, data in self.memory
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_port_of_a_service_and_a_node_port_of_the_same_number_remember_their_clients_apart(family: Family) -> None:
    node = Node(
        family,
        *sticky("a", "cluster-ip-1", 80, {"local-1": "this"}, node_port=30080),
        *sticky("b", "cluster-ip-2", 30080, {"local-2": "this"}),
    )
    seen = [node.led("pod", to, 30080) for to in ("node", "cluster-ip-2", "node", "cluster-ip-2")]
    assert seen == [{"local-1"}, {"local-2"}, {"local-1"}, {"local-2"}]
    assert len(node.memory) == 2


EVERYWHERE = {"local-1": "this", "local-2": "this", "remote-1": "other"}
WAYS = {"cluster-ip-1": 80, "external-ip": 80, "node": 30080}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("first", WAYS)
def test_a_client_stays_with_its_endpoint_whatever_address_of_the_service_it_asks(first: str, family: Family) -> None:
    web = sticky("web", "cluster-ip-1", 80, EVERYWHERE, node_port=30080, externalIPs=["${external-ip}"])
    node = Node(family, *web)
    assert node.led("pod", first, WAYS[first]) == set(EVERYWHERE)
    (chosen,) = node.led("pod", first, WAYS[first])
    assert [node.led("pod", to, port) for to, port in WAYS.items()] == [{chosen}] * len(WAYS)
    assert len(node.memory) == 1
    assert node.led("outside", first, WAYS[first]) == set(EVERYWHERE), "another client chooses by itself"


@pytest.mark.parametrize("family", FAMILIES)
def test_where_a_policy_keeps_a_client_from_its_endpoint_another_one_is_remembered(family: Family) -> None:
    endpoints = {"local-1": "this", "remote-1": "other"}
    web = sticky("web", "cluster-ip-1", 80, endpoints, node_port=30080, externalTrafficPolicy="Local")
    node = Node(family, *web)
    assert node.led("outside", "cluster-ip-1", 80) == set(endpoints)
    node.remember_all_at("remote-1")
    assert node.led("outside", "cluster-ip-1", 80) == {"remote-1"}
    assert node.led("outside", "node", 30080) == {"local-1"}
    assert node.led("outside", "cluster-ip-1", 80) == {"local-1"}
    assert len(node.memory) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_client_does_not_stay_with_an_endpoint_that_serves_only_another_protocol_of_its_port(family: Family) -> None:
    service, over_tcp = sticky("dns", "cluster-ip-1", 53, {"local-1": "this", "local-2": "this"})
    _, over_udp = sticky("dns", "cluster-ip-1", 53, {"local-2": "this"})
    service["spec"]["ports"] = [{"name": each, "port": 53, "protocol": each} for each in ("TCP", "UDP")]
    over_tcp["ports"] = [{"name": "TCP", "port": 8080}]
    over_udp["ports"] = [{"name": "UDP", "port": 8080, "protocol": "UDP"}]
    over_udp["metadata"]["name"] = "dns-2"
    node = Node(family, service, over_tcp, over_udp)
    assert node.led("pod", "cluster-ip-1", 53) == {"local-1", "local-2"}
    assert node.led("pod", "cluster-ip-1", 53, "udp") == {"local-2"}
    node.remember_all_at("local-1")  # which served both
    assert node.led("pod", "cluster-ip-1", 53, "udp") == {"local-2"}
    assert node.led("pod", "cluster-ip-1", 53) == {"local-1"}
    assert len(node.memory) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_an_endpoint_in_the_range_of_services_is_an_endpoint(family: Family) -> None:
    web = sticky("web", "cluster-ip-1", 80, {"unallocated": "other"})
    assert Node(family, *web).led("pod", "cluster-ip-1", 80) == {"unallocated"}
