"""The flow matrix and its scenarios, asked of ``explain``."""

from collections.abc import Iterator
from typing import Any

import pytest

from podgate.commandline.options import settings_from
from podgate.features.services.compile import Compiler
from podgate.features.services.endpoints import Here
from podgate.features.services.explain import Asker, answer_json
from podgate.features.services.intent import Intent
from podgate.features.services.node import here_of
from podgate.features.services.settings import Settings
from podgate.joints import Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.machine import Family
from tests.features.services.flows import FAKE, Flow, Scenario, World, in_world, read_scenarios
from tests.support.service_inputs import inputs_of, machine_of, node_object, service_range

SCENARIOS = [(scenario, family) for scenario in read_scenarios() for family in scenario.families]


def pods(world: World) -> Iterator[dict[str, Any]]:
    """Give the Pods of this node: where interfaces tell Pods apart, only objects say whose an address is."""
    for name in ("pod", "local-1", "local-2"):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"nodeName": world["this"]},
            "status": {"podIPs": [{"ip": world[name]}]},
        }


def compiled(scenario: Scenario, family: Family) -> tuple[Intent, Inputs, Settings]:
    world = FAKE[family]
    settings = settings_from(Settings, {"node_name": world["this"], **scenario.settings})
    node = node_object(world["this"], world["node"], zone=scenario.zone, pod_ranges=(world["pod-range"],))
    objects = [node, service_range(world["service-cidr"]), *pods(world), *scenario.objects]
    bits = "/24" if family == "ip" else "/64"
    inputs = inputs_of(objects, settings, machine_of(world["node"] + bits, world["node-second"] + bits))
    return Compiler(settings, lambda intent: intent)(inputs).states, inputs, settings


@pytest.mark.parametrize(("scenario", "family"), SCENARIOS, ids=str)
def test_flows_as_explain_tells_them(scenario: Scenario, family: Family) -> None:
    found = in_world(scenario, FAKE[family])
    intent, inputs, settings = compiled(found, family)
    name = settings.node_name or ""
    here = here_of(name, inputs.objects.objects(NODE).get(ObjectRef("Node", name)), inputs.machine)
    assert {str(flow): told(intent, inputs, here, flow) for flow in found.flows} == {
        str(flow): (flow.verdict, list(flow.endpoints), flow.masquerade, list(flow.hairpin)) for flow in found.flows
    }


def told(intent: Intent, inputs: Inputs, here: Here, flow: Flow) -> tuple[str, list[str], bool, list[str]]:
    address = f"[{flow.to}]" if ":" in flow.to else flow.to
    (found,) = Asker(intent, inputs, here, flow.sender).answers(f"{address}:{flow.port}/{flow.protocol}")
    answer = answer_json(found)
    return answer["verdict"], answer["endpoints"], answer["masquerade"], answer["hairpin"]
