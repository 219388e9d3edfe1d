"""The order of the steps around the proxy's listening. What they do to packets is in tests/agent/test_metadata.py."""

import pytest

from podgate.commandline.options import settings_from
from podgate.features.metadata.intent import Backend, NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.server.node import BEFORE_LISTENING, addresses_of, node_steps, trial_of
from podgate.features.metadata.server.running import SERVER
from podgate.features.metadata.server.trial import Trial
from podgate.features.metadata.settings import Settings
from podgate.model.machine import Machine
from podgate.observe.logs import stderr_log
from podgate.targets.addresses.state import State as Addresses

RULES = node_rules(Settings(), Machine())


def after(**options: object) -> dict[str, tuple[str, ...]]:
    steps = SERVER.steps(settings_from(Settings, options), stderr_log({}))
    return {step.name: step.after for step in steps}


def test_refusing_waits_for_nothing_listening_for_that_and_redirecting_for_an_answer() -> None:
    waits = after()
    assert waits["nftables/ip"] == waits["nftables/ip6"] == ()
    assert set(BEFORE_LISTENING) <= set(waits["listeners"])
    assert waits["self-request"] == ("listeners",)
    assert waits["nftables/redirect"] == ("self-request",)
    assert waits["iptables-nft"] == waits["iptables-legacy"] == ("nftables/redirect",)


def test_without_the_firewall_there_is_no_step_of_the_nodes() -> None:
    assert after(firewall=False, addr="127.0.0.1:988") == {"policy": (), "listeners": ("policy",)}


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_the_chosen_back_end_comes_first_and_the_others_want_nothing(backend: Backend) -> None:
    chosen, *others = node_steps(lambda rules: rules, backend=backend).after
    assert chosen.name.startswith(backend)
    assert chosen.want(RULES) != chosen.empty
    assert [step.want(RULES) == step.empty for step in others] == [True, True]
    assert {step.after for step in others} == {(chosen.name,)}
    assert [len(step.followers) for step in (chosen, *others)] == [1, 0, 0]


def test_with_iptables_the_rule_against_forged_packets_holds_up_nobody() -> None:
    (forged,) = (step for step in node_steps(lambda rules: rules, backend="iptables").before if "mangle" in step.name)
    assert (forged.after, forged.essential) == ((), False)
    assert forged.want(RULES) != forged.empty
    assert not [step for step in node_steps(lambda rules: rules).before if "mangle" in step.name]


def test_without_rules_there_is_no_address_and_nothing_to_ask() -> None:
    none = NodeRules(why="a test")
    assert addresses_of(none) == Addresses()
    assert trial_of(none) == Trial()
    assert [str(each) for each in addresses_of(RULES).assigned] == ["169.254.169.252/32 on lo, scope host"]
    assert trial_of(RULES) == Trial("169.254.169.252", (987, 988))
