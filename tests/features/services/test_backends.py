"""The states of the feature: one for each step, and nothing of ours where a family is off."""

from podgate.features.services.backends import States, StatesWriter
from podgate.features.services.feature import FEATURE
from podgate.features.services.intent import FamilyIntent, Intent
from podgate.features.services.settings import Settings
from podgate.model.options import settings_from

INTENT = Intent(FamilyIntent("ip"), None)


def test_the_feature_has_a_step_for_all_of_it_and_states_for_each() -> None:
    settings = settings_from(Settings, {"oom_score_adj": -5, "service_proxy_name": "mine"})
    steps = {step.name: step for step in FEATURE.steps(settings)}
    assert list(steps) == ["nftables/ip", "nftables/ip6", "cell", "listeners", "sysctl", "oom"]
    assert {name for name, step in steps.items() if step.transient} == {"cell", "listeners", "oom"}
    assert {name for name, step in steps.items() if step.essential} == {"nftables/ip", "nftables/ip6"}
    states: States = StatesWriter(settings)(INTENT)
    assert steps["nftables/ip"].want(states).present
    assert not steps["nftables/ip6"].want(states).present
    assert FEATURE.instance(settings) == "services-mine"
