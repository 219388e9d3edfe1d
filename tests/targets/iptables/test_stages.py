"""A large plan in parts: new chains come first, each after what it leads to, and packets meet none of them yet."""

from collections.abc import Mapping

import pytest

from podgate.model.table import Table
from podgate.targets.iptables.diff import diff
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.render import render, transaction
from podgate.targets.iptables.stages import stages
from podgate.targets.iptables.state import BuiltinRule, Names, State

NAMES = Names(frozenset(("MAIN",)), ("SVC-", "SEP-"))
JUMP = BuiltinRule("PREROUTING", read_rule('-m comment --comment "all of it" -j MAIN', "ip"), is_first=True)


def services(numbers: range, port: int = 80) -> Mapping[str, tuple[str, ...]]:
    """Give chains as Services have them: one of all, which leads to one each, which leads to two endpoints' each."""
    chains: dict[str, tuple[str, ...]] = {"MAIN": tuple(f"-d 10.96.0.{each}/32 -j SVC-{each}" for each in numbers)}
    for each in numbers:
        chains[f"SVC-{each}"] = (f"-j SEP-{each}A", f"-j SEP-{each}B")
        for end in "AB":
            chains[f"SEP-{each}{end}"] = (f"-p tcp -m tcp -j DNAT --to-destination 10.0.0.{each}:{port}",)
    return chains


def state(chains: Mapping[str, tuple[str, ...]]) -> State:
    return State("ip", "nft", placed=(JUMP,) if chains else (), named=Table.of(chains))


def reached(made: FakeIptables) -> dict[str, list[str]]:
    """Give the rules of the chains that packets can be in."""
    found: dict[str, list[str]] = {}
    waiting = ["PREROUTING"]
    while waiting:
        name = waiting.pop()
        found[name] = [rule.text for rule in made.chains[name]]
        waiting += [target for target in made.chains if any(f"-j {target}" in text for text in found[name])]
    return found


@pytest.mark.parametrize("most", [6, 10, 25, 100])
@pytest.mark.parametrize(
    ("have", "want"),
    [
        ({}, services(range(8))),
        (services(range(4)), services(range(8))),
        (services(range(8)), services(range(4, 12))),
        (services(range(8)), services(range(8), 8080)),
        (services(range(8)), {}),
    ],
    ids=["all", "more", "others", "changed", "none"],
)
def test_packets_meet_nothing_new_before_the_last_part(
    have: Mapping[str, tuple[str, ...]], want: Mapping[str, tuple[str, ...]], most: int
) -> None:
    made = FakeIptables("ip", "nft", (), names=NAMES)
    if have:
        made.restore(render(state(have)))
    parts = stages(diff(state(have), state(want)), most)
    before = reached(made)
    for part in parts[:-1]:
        made.restore(transaction(part))
        assert reached(made) == before
    made.restore(transaction(parts[-1]))
    fresh = FakeIptables("ip", "nft", (), names=NAMES)
    if want:
        fresh.restore(render(state(want)))
    assert {name: [rule.text for rule in rules] for name, rules in made.chains.items()} == {
        name: [rule.text for rule in rules] for name, rules in fresh.chains.items()
    }


def test_a_large_plan_is_split_and_a_small_one_is_not() -> None:
    plan = diff(state({}), state(services(range(8))))
    assert stages(plan, 100) == (plan,)
    parts = stages(plan, 20)
    assert [sum(1 + len(rules) for _, rules in part.named) for part in parts] == [18, 19, 19, 9, 0]
    assert [len(part.added) for part in parts] == [0, 0, 0, 0, 1]


def test_what_stays_is_never_written_ahead() -> None:
    parts = stages(diff(state(services(range(8))), state(services(range(8), 8080))), 5)
    assert len(parts) == 1


def test_a_chain_that_is_too_large_waits_and_so_does_what_leads_to_it() -> None:
    large = {
        "SEP-large": ("-j ACCEPT",) * 30,
        "SVC-1": ("-j SEP-large",),
        "SVC-2": ("-j SEP-2",),
        "SEP-2": ("-j DROP",),
    }
    parts = stages(diff(state({}), state(large)), 20)
    assert [[name for name, _ in part.named] for part in parts] == [["SEP-2", "SVC-2"], ["SEP-large", "SVC-1"]]
