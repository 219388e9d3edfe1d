"""The flow matrix and its scenarios, traced through the chains that are written for them."""

import asyncio
from collections.abc import Mapping

import pytest

from podgate.features.services.intent import Intent
from podgate.features.services.iptables_names import NAMES, TABLES
from podgate.features.services.node import here_of
from podgate.features.services.to_iptables import Writer
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.machine import Family
from podgate.model.packet import Outcome
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.flows import Tables, flow
from podgate.targets.iptables.state import State, TableName
from tests.features.services.flows import FAKE, Flow, Scenario, for_iptables, in_world, read_scenarios
from tests.features.services.test_flows import compiled
from tests.features.services.test_flows import told as explained
from tests.features.services.test_to_nftables import first_packet, told

SCENARIOS = [(for_iptables(scenario), family) for scenario in read_scenarios() for family in scenario.families]


def fakes(family: Family) -> dict[TableName, FakeIptables]:
    return {table: FakeIptables(family, "nft", (), table, names=NAMES[table]) for table in TABLES}


async def apply(held: Mapping[TableName, FakeIptables], wanted: Mapping[TableName, State]) -> None:
    for table, fake in held.items():
        plan = fake.diff(await fake.read(), wanted[table])
        await fake.apply(plan)
        assert not fake.diff(await fake.read(), wanted[table])


def in_force(intent: Intent, family: Family) -> Tables:
    held = fakes(family)
    asyncio.run(apply(held, Writer(family, "nft")(intent)))
    return {table: fake.chains for table, fake in held.items()}


def traced(tables: Tables, found: Flow, family: Family) -> frozenset[Outcome]:
    return flow(tables, *first_packet(found, family), "OUTPUT" if found.sender == "node" else "PREROUTING")


@pytest.mark.parametrize(("scenario", "family"), SCENARIOS, ids=str)
def test_flows_through_the_chains(scenario: Scenario, family: Family) -> None:
    found = in_world(scenario, FAKE[family])
    found = found._replace(settings={**found.settings, "backend": "iptables"})
    intent, inputs, settings = compiled(found, family)
    tables = in_force(intent, family)
    name = settings.node_name or ""
    here = here_of(name, inputs.objects.objects(NODE).get(ObjectRef("Node", name)), inputs.machine)
    wrong = {}
    for each in found.flows:
        verdict, endpoints, all_masqueraded, masqueraded = told(traced(tables, each, family))
        expected = sorted(each.endpoints if each.masquerade else each.hairpin)
        if (verdict, endpoints, masqueraded) != (each.verdict, sorted(each.endpoints), expected):
            wrong[str(each)] = (verdict, endpoints, masqueraded, all_masqueraded)
        assert explained(intent, inputs, here, each)[0] == each.verdict
    assert wrong == {}
