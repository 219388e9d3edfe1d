"""rivals: other programs' rules that a packet meets before our jump, and that may translate its source. Pure.

Here: following POSTROUTING up to our jump, through other programs' chains. Not here: whether a rule competes with what
is kept (the feature judges), rules of other tables (sources/netfilter.py).
Invariant: the first rule that translates wins, so only what stands before our jump counts; without a jump, all does.
"""

from collections.abc import Iterator
from typing import Final

from podgate.joints import ForeignRule
from podgate.model.packet import Jump, Masquerade, Snat
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import OtherTarget, Rule, State
from podgate.targets.iptables.words import rule_words

_TRANSLATING: Final = frozenset(("MASQUERADE", "NETMAP", "SNAT"))


def rivals(state: State) -> tuple[ForeignRule, ...]:
    """Give them in the order in which a packet meets them, from a state that was read."""
    found: list[ForeignRule] = []
    table = f"{state.family} nat"
    for placed in state.placed:
        if placed.chain != "POSTROUTING":
            continue
        if placed.is_ours:
            break
        if _translates(placed.rule):
            found.append(ForeignRule(table, placed.chain, rule_words(placed.rule)))
        elif isinstance(placed.rule.target, Jump):
            found += _inside(placed.rule.target.chain, state, table, set())
    return tuple(found)


def _inside(name: str, state: State, table: str, seen: set[str]) -> Iterator[ForeignRule]:
    if name in seen:
        return
    seen.add(name)
    for text in state.others.get(name, ()):
        rule = read_rule(text, state.family)
        if _translates(rule):
            yield ForeignRule(table, name, text)
        elif isinstance(rule.target, Jump):
            yield from _inside(rule.target.chain, state, table, seen)


def _translates(rule: Rule) -> bool:
    if isinstance(rule.target, OtherTarget):
        return rule.target.name in _TRANSLATING
    return isinstance(rule.target, Masquerade | Snat)
