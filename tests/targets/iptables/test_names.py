"""What a name or a comment holds never becomes a line of iptables-restore: what could is refused."""

import pytest

from podgate.model.packet import InterfaceIn, Jump, Return
from podgate.targets.iptables.diff import diff
from podgate.targets.iptables.render import render, transaction
from podgate.targets.iptables.state import BuiltinRule, Chain, OtherMatch, Rule, State

ODD = {
    "a line break": "x\n-F",
    "a space": "x y",
    "a quote": 'x"',
    "a single quote": "x'",
    "a backslash": "x\\",
    "a zero byte": "x\0",
    "nothing": "",
    "a byte too much": "x" * 29,
}
PLACES = {
    "chain": lambda name: State("ip", "nft", (Chain(name),)),
    "jump": lambda name: State("ip", "nft", (Chain("C", (Rule(Jump(name)),)),)),
    "interface": lambda name: State(
        "ip", "nft", (Chain("C", (Rule(Return(), (InterfaceIn("oifname", frozenset((name,))),)),)),)
    ),
    "built-in chain": lambda name: State("ip", "nft", placed=(BuiltinRule(name, Rule(Return())),)),
}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_is_none_is_refused(place: str, name: str) -> None:
    state = PLACES[place](name)
    with pytest.raises(ValueError, match=r"name|built-in"):
        render(state)
    plan = diff(State("ip", "nft"), state)
    if plan.refusal:  # the chain's own name is looked at before
        return
    with pytest.raises(ValueError, match=r"name|built-in"):
        transaction(plan)


def test_no_rule_becomes_two_lines() -> None:
    with pytest.raises(ValueError, match="is not one line"):
        render(State("ip", "nft", (Chain("C", (Rule(Return(), (OtherMatch("-m x\n-F C"),)),)),)))


def test_a_comment_cannot_leave_its_quotes() -> None:
    odd = 'x"\nCOMMIT\n*filter\n-F\0\x1b[2J'
    shown = render(State("ip", "nft", (Chain("C", (Rule(Return(), (), odd),)),)))
    assert r'-A C -m comment --comment "x\" COMMIT *filter -F??[2J" -j RETURN' in shown.splitlines()
