"""What a name, a rule or a comment holds never becomes a command: what could is refused."""

import msgspec
import pytest

from podgate.model.table import Table
from podgate.targets.nftables.diff import diff
from podgate.targets.nftables.render import listing, render, transaction
from podgate.targets.nftables.state import Chain, Rule, Set, State

NOT_NAMES = {
    "a line break": "x\nflush ruleset",
    "a line break at its end": "x\n",
    "a space": "x y",
    "an opening brace": "x{",
    "a closing brace": "x}",
    "a quote": 'x"',
    "a semicolon": "x;",
    "a hash": "x#",
    "an at sign": "@x",
    "a zero byte": "x\0",
    "another alphabet": "x\u00e9",
    "a digit first": "1x",
    "nothing": "",
    "a byte too much": "x" * 256,
}
PLACES = {
    "table": lambda name: State("ip", name),
    "chain": lambda name: State("ip", "t", chains=(Chain(name),)),
    "set": lambda name: State("ip", "t", sets=(Set(name, ("ipv4_addr",)),)),
}


@pytest.mark.parametrize("name", NOT_NAMES.values(), ids=NOT_NAMES)
@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_is_none_is_refused(place: str, name: str) -> None:
    state = PLACES[place](name)
    for write in (render, listing, lambda state: diff(State.absent("ip", state.name), state)):
        with pytest.raises(ValueError, match="cannot be a name in nftables"):
            write(state)


@pytest.mark.parametrize("place", PLACES)
def test_the_longest_name_is_taken(place: str) -> None:
    assert "x" * 255 in render(PLACES[place]("x" * 255))


NOT_RULES = {
    "a line break": "accept\nflush ruleset",
    "a semicolon": "accept; drop",
    "a comment sign": "accept # more",
    "an open brace": "ip daddr { 10.0.0.1 return",
    "a brace too much": "accept } }",
    "an open quote": 'oifname "eth0 return',
    "a quote that ends early": 'oifname "a" accept"',
    "a line break in quotes": 'oifname "a\nb" accept',
    "a zero byte": "accept\0",
    "a variable": "ip daddr $x return",
    "nothing": "",
}


@pytest.mark.parametrize("text", NOT_RULES.values(), ids=NOT_RULES)
def test_a_rule_that_is_more_or_less_than_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the text of one rule"):
        render(State("ip", "t", chains=(Chain("c", (Rule(text, "why"),)),)))


def test_a_verdict_that_is_more_than_one_is_refused() -> None:
    verdicts = Set("m", ("inet_service",), data=("verdict",))
    state = State("ip", "t", sets=(verdicts,), elements={"m": Table.of({b"\0\x50": "goto x }\nflush ruleset"})})
    with pytest.raises(ValueError, match="is not a verdict"):
        render(state)


def test_an_interface_cannot_leave_its_quotes() -> None:
    names = Set("s", ("ifname",))
    state = State("ip", "t", sets=(names,), elements={"s": Table.of({b'a" }; flush'.ljust(16, b"\0"): b""})})
    with pytest.raises(ValueError, match="cannot stand in nft's quotes"):
        render(state)


def test_a_comment_cannot_leave_its_quotes() -> None:
    odd = 'x"\n}\nflush ruleset\0\x1b[2J'
    state = State("ip", "t", comment=odd, chains=(Chain("c", (Rule("accept", odd),)),), sets=(Set("s", ("mark",)),))
    state = msgspec.structs.replace(state, sets=(Set("s", ("mark",), comment=odd),))
    shown = render(state)
    assert "\0" not in shown
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if "flush" in line] == [
        line for line in shown.splitlines() if "comment \"x' } flush ruleset??[2J" in line
    ]
    assert shown.count("flush") == 3


def test_a_name_that_others_made_is_taken_away_with_the_table() -> None:
    """The kernel takes any bytes as a name from those who write to it without nft."""
    have = State("ip", "t", chains=(Chain("x\nflush ruleset"),))
    plan = diff(have, State("ip", "t"))
    assert plan.whole == "made anew, since it holds a name that nft cannot read: 'x\\nflush ruleset'"
    assert "flush" not in transaction(plan)
