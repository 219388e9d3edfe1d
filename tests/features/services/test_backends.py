"""The states of the feature: which each step wants by the chosen back end, and which step waits for which."""

import pytest

from podgate.commandline.options import settings_from
from podgate.features.services.backends import Choice, States, StatesWriter, iptables_step, last_step, steps_before
from podgate.features.services.feature import FEATURE
from podgate.features.services.intent import FAMILIES, FamilyIntent, Intent
from podgate.features.services.iptables_names import TABLES
from podgate.features.services.settings import Settings
from podgate.targets.iptables.state import Binary

BOTH = Intent(FamilyIntent("ip"), FamilyIntent("ip6"))
INTENT = Intent(FamilyIntent("ip"), None)


def test_the_feature_has_a_step_for_all_of_it_and_states_for_each() -> None:
    settings = settings_from(Settings, {"oom_score_adj": -5, "service_proxy_name": "mine"})
    steps = {step.name: step for step in FEATURE.steps(settings)}
    assert list(steps) == ["nftables/ip", "nftables/ip6", "pages", "listeners", "affinity", "sysctl", "oom"]
    assert {name for name, step in steps.items() if step.transient} == {"pages", "listeners", "affinity", "oom"}
    assert {name for name, step in steps.items() if step.essential} == {"nftables/ip", "nftables/ip6"}
    states: States = StatesWriter(settings)(INTENT)
    assert steps["nftables/ip"].want(states).present
    assert not steps["nftables/ip6"].want(states).present
    assert FEATURE.instance(settings) == "services-mine"


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_writes_are_as_far_apart_as_was_asked_for_and_what_takes_away_waits_for_nothing(backend: str) -> None:
    settings = settings_from(Settings, {"backend": backend, "min_sync_period": 5.0})
    states: States = StatesWriter(settings)(INTENT)
    apart = {step.name.partition("/")[0] for step in FEATURE.steps(settings) if step.gap(states) == 5.0}
    assert len(apart) == 1
    assert apart.pop().startswith(backend)
    assert {step.gap(states) for step in FEATURE.steps(settings)} == {0.0, 5.0}


def test_with_nftables_iptables_holds_nothing() -> None:
    states = StatesWriter(Settings())(BOTH)
    assert [states.nftables_of(family).present for family in FAMILIES] == [True, True]
    assert states.iptables == {}
    assert not states.iptables_of("legacy", "ip6", "filter").named


@pytest.mark.parametrize("binary", ["nft", "legacy"])
def test_with_iptables_the_chosen_program_alone_holds_something(binary: Binary) -> None:
    states = StatesWriter(Settings(backend="iptables"), Choice(binary, "1.8.9"))(BOTH)
    assert [states.nftables_of(family).present for family in FAMILIES] == [False, False]
    assert list(states.iptables) == [iptables_step(binary, family, table) for family in FAMILIES for table in TABLES]
    assert {state.binary for state in states.iptables.values()} == {binary}
    assert all("KUBE-PROXY-CANARY" in state.named for state in states.iptables.values())


def test_a_family_that_is_off_has_nothing() -> None:
    states = StatesWriter(Settings(backend="iptables"), Choice("nft"))(Intent(FamilyIntent("ip")))
    assert not any(states.iptables_of("nft", "ip6", table).named for table in TABLES)
    assert not any(states.iptables_of("nft", "ip6", table).placed for table in TABLES)


@pytest.mark.parametrize(("version", "fully"), [("1.8.9", True), ("1.6.1", False), ("", True)])
def test_ports_are_drawn_where_the_program_can(version: str, fully: bool) -> None:
    states = StatesWriter(Settings(backend="iptables"), Choice("nft", version))(BOTH)
    rules = states.iptables_of("nft", "ip", "nat").named["KUBE-POSTROUTING"]
    assert rules[-1].endswith("-j MASQUERADE --random-fully") is fully


@pytest.mark.parametrize(("liberal", "drops"), [(False, True), (True, False)])
def test_packets_outside_of_a_window_are_dropped_unless_they_count(liberal: bool, drops: bool) -> None:
    settings = Settings(backend="iptables", conntrack_tcp_be_liberal=liberal)
    rules = StatesWriter(settings, Choice("nft"))(BOTH).iptables_of("nft", "ip", "filter").named["KUBE-FORWARD"]
    assert any("INVALID" in rule for rule in rules) is drops


def test_refusing_comes_before_translating_and_taking_away_comes_last() -> None:
    chosen = Choice("legacy")
    assert last_step(chosen, "ip") == "iptables-legacy/ip/nat"
    assert [steps_before(chosen, "legacy", "ip", table) for table in TABLES] == [
        (),
        ("iptables-legacy/ip/mangle",),
        ("iptables-legacy/ip/filter",),
    ]
    assert steps_before(chosen, "nft", "ip", "filter") == ("iptables-legacy/ip/nat",)
    assert steps_before(Choice(), "nft", "ip6", "nat") == ("nftables/ip6",)
