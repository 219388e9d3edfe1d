"""The steps that write rules: all back ends have some, in an order without a gap."""

from collections.abc import Mapping
from typing import Any

import pytest

from podgate.engine.reconcile import Board
from podgate.features.services.backends import NFTABLES, Choice, last_step
from podgate.features.services.intent import FAMILIES
from podgate.features.services.server.passes import Passes
from podgate.features.services.server.rules import rule_steps
from podgate.features.services.settings import Settings
from podgate.joints import Step
from podgate.targets.iptables.state import Binary


async def nobody() -> str:
    return ""


def steps(choice: Choice, settings: Settings) -> Mapping[str, Step[Any, Any, Any]]:
    return {step.name: step for step in rule_steps(settings, choice, nobody, Passes("nftables"))}


CHOICES = [Choice(), Choice("nft"), Choice("legacy")]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.backend)
def test_what_is_not_chosen_waits_for_what_is_and_the_feature_does_not_wait_for_it(choice: Choice) -> None:
    found = steps(choice, Settings())
    assert len(found) == len(FAMILIES) * (1 + 2 * 3)
    assert not any(step.recovers for step in found.values()), "a start reads each table once, not twice"
    for family in FAMILIES:
        last = last_step(choice, family)
        chosen = {name for name in found if name.startswith(last.partition("/")[0]) and f"/{family}" in f"{name}/"}
        chosen = {name for name in chosen if name.split("/")[1] == family}
        for name, step in found.items():
            if name.split("/")[1] == family:
                assert step.essential is (name in chosen), name
                if name not in chosen:
                    assert step.after == (last,), name
        assert [bool(found[name].followers) for name in sorted(chosen)] == [name == last for name in sorted(chosen)]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.backend)
def test_no_step_waits_for_the_other_family_or_for_itself(choice: Choice) -> None:
    found = steps(choice, Settings())
    board: Board[Any] = Board(tuple(found.values()))
    for name, step in found.items():
        assert {each.split("/")[1] for each in step.after} <= {name.split("/")[1]}
        assert set(step.after) <= set(board.committed)
    done: set[str] = set()
    while len(done) < len(found):
        ready = {name for name, step in found.items() if set(step.after) <= done} - done
        assert ready, "steps wait for each other"
        done |= ready


def test_a_proxy_with_a_name_of_its_own_leaves_iptables_alone() -> None:
    assert list(steps(Choice(), Settings(service_proxy_name="mine"))) == list(NFTABLES.values())


def test_what_nobody_tells_of_is_looked_at_each_sync_period() -> None:
    class States:
        settings = Settings(sync_period=7.0)

    def looked_at(program: Binary) -> set[str]:
        found = {name: step.resync(States) for name, step in steps(Choice(program), Settings()).items()}
        return {
            name for name, seconds in found.items() if seconds == 7.0 and name.startswith(f"iptables-{program}/ip/")
        }

    assert looked_at("legacy") == {f"iptables-legacy/ip/{table}" for table in ("mangle", "filter", "nat")}
    assert looked_at("nft") == {"iptables-nft/ip/mangle"}


def test_a_pass_over_rules_of_iptables_is_told_of_when_it_commits() -> None:
    passes = Passes("iptables")
    found = {step.name: step for step in rule_steps(Settings(), Choice("nft"), nobody, passes)}
    passes.wrote("ip6", "nat", 3)
    for name in ("iptables-nft/ip6/nat", "iptables-nft/ip/nat", "iptables-legacy/ip/filter"):
        found[name].committed(1, 0.1, True)
    last = [(dict(each.labels)["ip_family"], each.value) for each in passes.readings() if each.name.endswith("_last")]
    assert last == [("IPv6", 3), ("IPv4", 0)], "but for those of a back end that is not chosen"
