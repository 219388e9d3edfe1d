"""The flow matrix and its scenarios, traced through the table that is written for them."""

from collections.abc import Iterable
from ipaddress import ip_address

import pytest

from podgate.features.services.intent import Intent
from podgate.features.services.to_nftables import Writer
from podgate.model.machine import Family
from podgate.model.packet import Locality, Packet
from podgate.model.packet import Outcome as AnyOutcome
from podgate.targets.nftables.registers import Outcome, flow
from podgate.targets.nftables.state import State
from tests.features.services.flows import FAKE, Flow, Scenario, in_world, read_scenarios
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
