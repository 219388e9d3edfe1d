"""render: states and plans as text that ``iptables-restore --noflush`` takes in one transaction.

Here: the language of iptables-restore. Not here: one rule's words (words.py), what changes and how a plan shows itself
(diff.py).
Invariant: equal states give equal text; a transaction holds whole chains, so no packet ever meets a part of one; what a
name, a rule or a comment holds never becomes a line of its own: what could is a ValueError.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import BUILT_IN, BuiltinRule, Chain, State, TableName, chain_name_mistake
from podgate.targets.iptables.words import rule_words


def _names(state: State, named: Iterable[str]) -> None:
    """See that every chain may have its name; a name from outside must have been looked at before."""
    for name in (*(chain.name for chain in state.chains), *named):
        if mistake := chain_name_mistake(name):
            raise ValueError(mistake)
    for placed in state.placed:
        if placed.is_ours and placed.chain not in BUILT_IN:
            raise ValueError(f"{placed.chain!r} is no built-in chain of a table")


def _placed_words(placed: BuiltinRule) -> str:
    return f"{placed.chain} {rule_words(placed.rule)}"


def _added(placed: BuiltinRule) -> str:
    return f"-{'I' if placed.is_first else 'A'} {_placed_words(placed)}"


def render(state: State) -> str:
    """Give the text that makes the state in a table where it is not yet, empty when nothing of it should be there.

    Raises:
        ValueError: a name is none, or iptables cannot say a rule.
    """
    _names(state, state.named)
    named = sorted(state.named.items())
    lines = [f":{name} - [0:0]" for name in (*(chain.name for chain in state.chains), *(name for name, _ in named))]
    lines += [f"-A {chain.name} {rule_words(rule)}" for chain in state.chains for rule in chain.rules]
    lines += [f"-A {name} {words}" for name, rules in named for words in rules]
    lines += [_added(placed) for placed in state.placed if placed.is_ours]
    return _transaction(state.table, lines)


def transaction(plan: Plan) -> str:
    """Give the text that does what the plan says, empty when there is nothing to do.

    One transaction, so that no packet meets a part of it. Ours comes first all the same, for people who read it.

    Raises:
        ValueError: a name is none, or iptables cannot say a rule.
    """
    _names(plan.want, (name for name, _ in plan.named))
    gone = (*plan.emptied, *plan.dropped)
    return _transaction(
        plan.want.table,
        (
            *(f":{chain.name} - [0:0]" for chain in plan.filled),
            *(f":{name} - [0:0]" for name, _ in plan.named),
            *(f"-A {chain.name} {rule_words(rule)}" for chain in plan.filled for rule in chain.rules),
            *(f"-A {name} {words}" for name, rules in plan.named for words in rules),
            *(_added(placed) for placed in plan.added),
            *(f"-D {_placed_words(placed)}" for placed in plan.removed),
            *(f"-F {name}" for name in gone),
            *(f"-X {name}" for name in plan.dropped),
        ),
    )


def _transaction(table: TableName, lines: Iterable[str]) -> str:
    body = list(lines)
    for line in body:
        if "\n" in line or "\0" in line:
            raise ValueError(f"{line!r} is not one line of iptables-restore: a name or a rule holds an odd character")
    return "\n".join((f"*{table}", *body, "COMMIT")) + "\n" if body else ""


def _named(state: State) -> Iterator[Chain]:
    for name, rules in sorted(state.named.items()):
        yield Chain(name, tuple(read_rule(words, state.family) for words in rules))


def state_json(state: State) -> dict[str, Any]:
    """Give the state as values for programs."""
    return {
        "family": state.family,
        "program": state.program,
        "table": state.table,
        "chains": [
            {
                "name": chain.name,
                "rules": [{"rule": rule_words(rule), "comment": rule.comment} for rule in chain.rules],
            }
            for chain in (*state.chains, *_named(state))
        ],
        "built_in": [
            {"chain": placed.chain, "rule": rule_words(placed.rule), "comment": placed.rule.comment}
            for placed in state.placed
            if placed.is_ours
        ],
    }
