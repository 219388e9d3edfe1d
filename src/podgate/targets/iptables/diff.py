"""diff: what takes a table from the state it has to the state it should have.

Here: the plan, as data, and how it shows itself to people; what is refused before anything is touched. Not here: the
text of iptables-restore (render.py), doing it (apply.py).
Invariant: what did not change is not in the plan, so it keeps its counters; nothing that is not ours by comment or by
our record is ever changed; a plan is one transaction.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import SequenceMatcher
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.packet import Jump
from podgate.model.table import changes
from podgate.model.tally import tally
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import BuiltinRule, Chain, Form, Rule, State, chain_name_mistake
from podgate.targets.iptables.words import rule_words

_TARGET: Final = re.compile(r"(?:^| )-[jg] (\S+)")
_SHOWN_RULES: Final = 40
_SHOWN_CHAINS: Final = 40


class Plan(Frozen, frozen=True):
    """One transaction on one table of one program, in the order of the fields from ``filled`` on.

    Attributes:
        have: the state that it starts from.
        want: the state that it leads to.
        refusal: why nothing may be touched; then the other fields are empty.
        notes: what is left alone and should be known, one line each.
        filled: chains that come, or are emptied and get all their rules.
        added: rules that come at the end of built-in chains.
        removed: rules of ours or of the old program that go from built-in chains.
        emptied: chains of ours that lose their rules and stay, since others jump to them.
        dropped: chains of ours that go.
        named: chains that are ours by their names and come, or get other rules.
    """

    have: State
    want: State
    refusal: str = ""
    notes: tuple[str, ...] = ()
    filled: tuple[Chain, ...] = ()
    added: tuple[BuiltinRule, ...] = ()
    removed: tuple[BuiltinRule, ...] = ()
    emptied: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    named: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        chains = self.filled or self.named or self.emptied or self.dropped
        return bool(self.refusal or chains or self.added or self.removed)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    @property
    def rules_written(self) -> int:
        """How many rules it writes: all of each chain that comes or changes, and those in built-in chains."""
        chains = sum(len(chain.rules) for chain in self.filled) + sum(len(rules) for _, rules in self.named)
        return chains + len(self.added)

    def brief(self) -> str:
        """Say in one line what it does."""
        where = f"table {self.want.table} ({self.want.program})"
        if self.refusal:
            return f"{where}: {self.refusal}"
        written = {"chain": len(self.filled) + len(self.named), "rule": self.rules_written}
        removed = {"chain": len(self.emptied) + len(self.dropped), "built-in rule": len(self.removed)}
        return f"{where}: written {tally(written)}; removed {tally(removed)}"

    def touches(self) -> Collection[str]:
        """Give no keys: iptables refuses a transaction as a whole."""
        return ()

    def without(self, _refused: Collection[str], /) -> "Plan":
        """Give it as it is: no key of it is refused by itself."""
        return self


def diff(have: State, want: State) -> Plan:
    """Give the plan from one state to another; falsy when they are equal.

    Raises:
        ValueError: the states are of different families, programs or tables.
    """
    if have is want:
        return Plan(have, want)
    if (have.family, have.binary, have.table) != (want.family, want.binary, want.table):
        raise ValueError(f"table {have.table} of {have.program} cannot become table {want.table} of {want.program}")
    refusal = next((reason for chain in want.chains if (reason := _refusal(have, want, chain.name))), "")
    if refusal:
        return Plan(have, want, refusal)
    added, removed = _placed(have, want)
    wanted = {chain.name for chain in want.chains}
    owned = {chain.name: chain for chain in have.chains}
    recorded = have.recorded | want.recorded
    taken = {name: rules for name, rules in have.others.items() if name in recorded}
    named, left = _named(have, want)
    gone = [*(name for name in (*owned, *taken) if name not in wanted), *left]
    holding = _holders(have, removed, frozenset(gone)) if gone else {}
    held = {name: holding[name] for name in gone if name in holding}
    full = {name for name in gone if taken.get(name) or (name in owned and owned[name].rules) or have.named.get(name)}
    return Plan(
        have,
        want,
        notes=tuple(_notes(have, wanted, held)),
        filled=tuple(chain for chain in want.chains if not _is_same(owned.get(chain.name), chain)),
        added=added,
        removed=removed,
        emptied=tuple(name for name in gone if name in held and name in full),
        dropped=tuple(name for name in gone if name not in held),
        named=named,
    )


def _named(have: State, want: State) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], list[str]]:
    """Give the named chains to write, and those to take away, both by name. What is the same object costs nothing."""
    written: dict[str, tuple[str, ...]] = {}
    gone: list[str] = []
    for name, old, new in changes(have.named, want.named):
        if new is None:
            gone.append(name)
        elif old is None or not _says_the_same(old, new, have.family):
            written[name] = new
    return tuple(sorted(written.items())), sorted(gone)


def _says_the_same(have: tuple[str, ...], want: tuple[str, ...], family: Family) -> bool:
    """Whether rules differ in words alone: programs of other versions show them in another order."""
    return len(have) == len(want) and all(
        one == other or read_rule(one, family).form == read_rule(other, family).form
        for one, other in zip(have, want, strict=True)
    )


def _refusal(have: State, want: State, name: str) -> str:
    mistake = chain_name_mistake(name)
    if mistake:
        return mistake
    if name not in have.strange or name in have.recorded | want.recorded:
        return ""
    return (
        f"chain {name} holds a rule that is not ours, so it is not touched: `{have.strange[name]}`; "
        "choose another name for our chain, or remove that rule"
    )


def _is_same(have: Chain | None, want: Chain) -> bool:
    if have is None:
        return False
    return have.rules == want.rules or _forms(have.rules) == _forms(want.rules)


def _forms(rules: Iterable[Rule]) -> list[Form]:
    return [rule.form for rule in rules]


def _placed(have: State, want: State) -> tuple[tuple[BuiltinRule, ...], tuple[BuiltinRule, ...]]:
    """Give the rules of built-in chains that come and those that go. Of several equal ones the last stays."""
    missing = Counter((placed.chain, placed.rule.form) for placed in want.placed)
    surplus = Counter((placed.chain, placed.rule.form) for placed in have.placed)
    surplus.subtract(missing)
    added, removed = [], []
    for placed in have.placed:
        key = placed.chain, placed.rule.form
        if surplus[key] > 0 and (placed.is_ours or key in missing):
            surplus[key] -= 1
            removed.append(placed)
    there = Counter((placed.chain, placed.rule.form) for placed in have.placed)
    for placed in want.placed:
        key = placed.chain, placed.rule.form
        if there[key] > 0:
            there[key] -= 1
        else:
            added.append(placed)
    return tuple(added), tuple(removed)


def _holders(have: State, removed: Collection[BuiltinRule], gone: Collection[str]) -> dict[str, str]:
    """Give for each chain that rules jump to which stay one chain that holds such a rule."""
    found: dict[str, str] = {}
    for placed in have.placed:
        if isinstance(placed.rule.target, Jump) and placed not in removed:
            found.setdefault(placed.rule.target.chain, placed.chain)
    for other, rules in have.others.items():
        if other not in gone:
            for text in rules:
                for target in _TARGET.finditer(text):
                    found.setdefault(target[1], other)
    return found


def _notes(have: State, wanted: Collection[str], held: dict[str, str]) -> Iterator[str]:
    for name, by in held.items():
        yield f"chain {name} stays, empty: a rule of chain {by} that is not ours jumps to it"
    for placed in have.placed:
        if not placed.is_ours and isinstance(placed.rule.target, Jump) and placed.rule.target.chain in wanted:
            yield f"chain {placed.chain} holds a rule that is not ours and jumps to our chain: {placed.rule.text}"


def _lines(plan: Plan) -> Iterator[str]:
    want = plan.want
    if plan.refusal:
        yield f"! table {want.table} ({want.program}): {plan.refusal}"
        return
    if not plan:
        yield f"table {want.table} ({want.program}): no change"
    else:
        yield f"~ table {want.table} ({want.program})"
    old = {chain.name: chain.rules for chain in plan.have.chains}
    for chain in plan.filled:
        if chain.name in plan.have.others:
            yield f"  ~ chain {chain.name} ({_count(plan, chain.name)} in it now)"
        else:
            yield f"  {'~' if chain.name in old else '+'} chain {chain.name}"
        yield from _rule_lines(old.get(chain.name, ()), chain.rules)
    yield from _named_lines(plan)
    yield from (f"  + {placed.chain}: {_shown(placed.rule)}" for placed in plan.added)
    yield from (f"  - {placed.chain}: {_shown(placed.rule)}{_again(placed, plan)}" for placed in plan.removed)
    yield from (f"  - chain {name} ({_count(plan, name)}), which stays empty" for name in plan.emptied)
    yield from (f"  - chain {name} ({_count(plan, name)})" for name in plan.dropped)
    yield from (f"  ! {note}" for note in plan.notes)


def _named_lines(plan: Plan) -> Iterator[str]:
    """Show the first chains; a start writes thousands of them, and one may have as many rules."""
    for name, rules in plan.named[:_SHOWN_CHAINS]:
        old = plan.have.named.get(name)
        yield f"  {'+' if old is None else '~'} chain {name}"
        had, has = frozenset(old or ()), frozenset(rules)
        lines = [("-", words) for words in old or () if words not in has]
        lines += [("+", words) for words in rules if words not in had]
        if not lines and rules:
            yield "    the same rules, in another order"
        for sign, words in lines[:_SHOWN_RULES]:
            rule = read_rule(words, plan.want.family)
            yield f"    {sign} {_shown(rule) if rule.comment else words}"
        if len(lines) > _SHOWN_RULES:
            yield f"    and {len(lines) - _SHOWN_RULES} more changes"
    if len(plan.named) > _SHOWN_CHAINS:
        yield f"  and {len(plan.named) - _SHOWN_CHAINS} more chains"


def _again(placed: BuiltinRule, plan: Plan) -> str:
    wanted = {(each.chain, each.rule.form) for each in plan.want.placed}
    return " (it is there more than once)" if (placed.chain, placed.rule.form) in wanted else ""


def _count(plan: Plan, name: str) -> str:
    rules = next((chain.rules for chain in plan.have.chains if chain.name == name), None)
    count = len(plan.have.named.get(name) or plan.have.others.get(name, ()) if rules is None else rules)
    return f"{count} rule{'' if count == 1 else 's'}"


def _rule_lines(old: tuple[Rule, ...], new: tuple[Rule, ...]) -> Iterator[str]:
    matcher = SequenceMatcher(None, _forms(old), _forms(new), autojunk=False)
    lines = []
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind != "equal":
            lines += [f"    - {_shown(rule)}" for rule in old[first:last]]
            lines += [f"    + {_shown(rule)}" for rule in new[new_first:new_last]]
    yield from lines[:_SHOWN_RULES]
    if len(lines) > _SHOWN_RULES:
        yield f"    and {len(lines) - _SHOWN_RULES} more changes"


def _shown(rule: Rule) -> str:
    """Show a rule for people: its comment last."""
    words = rule_words(Rule(rule.target, rule.matches))
    return f"{words}  # {rule.comment or 'a rule that is not ours'}"
