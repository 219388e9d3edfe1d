"""Chains that are ours by their names: taken over, compared as text, written one by one, and others' left alone."""

import asyncio

import pytest

from podgate.model.table import Table
from podgate.targets.iptables.diff import Plan, diff
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.listing import read_listing
from podgate.targets.iptables.render import render, state_json, transaction
from podgate.targets.iptables.state import BuiltinRule, Names, State

NAMES = Names(frozenset(("MAIN",)), ("MANY-",))
JUMP = BuiltinRule("PREROUTING", read_rule('-m comment --comment "all of it" -j MAIN', "ip"), is_first=True)


def held(**chains: tuple[str, ...]) -> State:
    named = {name.replace("_", "-"): rules for name, rules in chains.items()}
    return State("ip", "nft", placed=(JUMP,) if named else (), named=Table.of(named))


def fake(state: State) -> FakeIptables:
    made = FakeIptables("ip", "nft", (), names=NAMES)
    if text := render(state):
        made.restore(text)
    return made


def done(made: FakeIptables, wanted: State) -> Plan:
    async def run() -> Plan:
        plan = made.diff(await made.read(), wanted)
        await made.apply(plan)
        assert not made.diff(await made.read(), wanted)
        return plan

    return asyncio.run(run())


WANTED = held(MAIN=("-p tcp -j MANY-A", "-j MANY-B"), MANY_A=("-j ACCEPT",), MANY_B=("-j DROP",))


def test_only_chains_that_differ_are_written() -> None:
    made = fake(WANTED)
    changed = held(MAIN=WANTED.named["MAIN"], MANY_A=("-s 10.0.0.0/8 -j ACCEPT", "-j DROP"), MANY_B=("-j DROP",))
    plan = done(made, changed)
    assert [name for name, _ in plan.named] == ["MANY-A"]
    assert made.restored[-1] == (
        "*nat\n:MANY-A - [0:0]\n-A MANY-A -s 10.0.0.0/8 -j ACCEPT\n-A MANY-A -j DROP\nCOMMIT\n"
    )


def test_chains_come_before_what_leads_to_them_and_go_after_it() -> None:
    made = fake(held())
    done(made, WANTED)
    plan = done(made, held(MAIN=("-j MANY-C",), MANY_C=()))
    assert transaction(plan) == (
        "*nat\n:MAIN - [0:0]\n:MANY-C - [0:0]\n-A MAIN -j MANY-C\n-F MANY-A\n-F MANY-B\n-X MANY-A\n-X MANY-B\nCOMMIT\n"
    )
    done(made, held())
    assert not any(name in NAMES for name in made.chains)
    assert made.chains["PREROUTING"] == ()


def test_words_in_another_order_are_the_same_rule() -> None:
    one = held(MAIN=("-p tcp -m comment --comment why -m tcp --dport 80 -j ACCEPT",))
    other = held(MAIN=('-m comment --comment "why" -p tcp --dport 80 -j ACCEPT',))
    assert not diff(one, other)
    assert diff(one, held(MAIN=('-m comment --comment "why" -p tcp --dport 81 -j ACCEPT',)))


def test_chains_of_others_stay_and_so_does_one_of_ours_that_they_lead_to() -> None:
    made = fake(WANTED)
    made.restore("*nat\n:OTHER - [0:0]\n-A OTHER -j MANY-A\n-A PREROUTING -j OTHER\nCOMMIT\n")
    plan = asyncio.run(made.read())
    assert "chain MANY-A stays, empty: a rule of chain OTHER that is not ours jumps to it" in str(diff(plan, held()))
    asyncio.run(made.apply(diff(plan, held())))
    assert {name: len(rules) for name, rules in made.chains.items() if rules or name in NAMES or name == "OTHER"} == {
        "PREROUTING": 1,
        "MANY-A": 0,
        "OTHER": 1,
    }


def test_what_leads_to_a_chain_of_ours_is_ours_whatever_its_comment() -> None:
    read = read_listing(
        "*nat\n:PREROUTING ACCEPT\n:MAIN -\n-A PREROUTING -j MAIN\nCOMMIT\n", "ip", "nft", (), names=NAMES
    )
    assert [placed.is_ours for placed in read.placed] == [True]
    assert read.named == Table.of({"MAIN": ()})


def test_a_plan_shows_what_changes_in_a_chain() -> None:
    rules = tuple(f"-s 10.0.{index // 256}.{index % 256}/32 -j ACCEPT" for index in range(5_000))
    plan = diff(held(MAIN=rules), held(MAIN=(*rules[1:], "-s 192.0.2.1/32 -j DROP")))
    assert str(plan).splitlines() == [
        "~ table nat (iptables-nft)",
        "  ~ chain MAIN",
        "    - -s 10.0.0.0/32 -j ACCEPT",
        "    + -s 192.0.2.1/32 -j DROP",
    ]
    turned = diff(held(MAIN=rules), held(MAIN=rules[::-1]))
    assert str(turned).splitlines()[1:] == ["  ~ chain MAIN", "    the same rules, in another order"]
    many = diff(held(), held(**{f"MANY_{index:02}": ("-j ACCEPT",) for index in range(50)}))
    assert "  and 10 more chains" in str(many)


def test_values_for_programs_show_named_chains_too() -> None:
    assert state_json(WANTED)["chains"][1] == {"name": "MANY-A", "rules": [{"rule": "-j ACCEPT", "comment": ""}]}


@pytest.mark.parametrize("name", ["A B", "PREROUTING", "X" * 29])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"chain|built-in"):
        render(State("ip", "nft", named=Table.of({name: ()})))
