"""render: states and plans as text that ``iptables-restore --noflush`` takes in one transaction.

Here: the language of iptables-restore. Not here: one rule's words (words.py), what changes and how a plan shows itself
(diff.py).
Invariant: equal states give equal text; a transaction holds whole chains, so no packet ever meets a part of one; what a
name, a rule or a comment holds never becomes a line of its own: what could is a ValueError.
"""

from collections.abc import Iterable
from typing import Any

from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.state import BUILT_IN, Placed, State, TableName, chain_name_mistake
from podgate.targets.iptables.words import rule_words


def _names(state: State) -> None:
    """See that every chain may have its name; a name from outside must have been looked at before."""
    for chain in state.chains:
        if mistake := chain_name_mistake(chain.name):
            raise ValueError(mistake)
    for placed in state.placed:
        if placed.is_ours and placed.chain not in BUILT_IN:
            raise ValueError(f"{placed.chain!r} is no built-in chain of a table")


def _placed_words(placed: Placed) -> str:
    return f"{placed.chain} {rule_words(placed.rule)}"


def _added(placed: Placed) -> str:
    return f"-{'I' if placed.is_first else 'A'} {_placed_words(placed)}"


def render(state: State) -> str:
    """Give the text that makes the state in a table where it is not yet, empty when nothing of it should be there.

    Raises:
        ValueError: a name is none, or iptables cannot say a rule.
    """
    _names(state)
    lines = [f":{chain.name} - [0:0]" for chain in state.chains]
    lines += [f"-A {chain.name} {rule_words(rule)}" for chain in state.chains for rule in chain.rules]
    lines += [_added(placed) for placed in state.placed if placed.is_ours]
    return _transaction(state.table, lines)


def transaction(plan: Plan) -> str:
    """Give the text that does what the plan says, empty when there is nothing to do.

    One transaction, so that no packet meets a part of it. Ours comes first all the same, for people who read it.

    Raises:
        ValueError: a name is none, or iptables cannot say a rule.
    """
    _names(plan.want)
    gone = (*plan.emptied, *plan.dropped)
    return _transaction(
        plan.want.table,
        (
            *(f":{chain.name} - [0:0]" for chain in plan.filled),
            *(f"-A {chain.name} {rule_words(rule)}" for chain in plan.filled for rule in chain.rules),
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


def state_json(state: State) -> dict[str, Any]:
    """Give the state as values for programs."""
    return {
        "family": state.family,
        "program": state.program,
        "chains": [
            {
                "name": chain.name,
                "rules": [{"rule": rule_words(rule), "comment": rule.comment} for rule in chain.rules],
            }
            for chain in state.chains
        ],
        "built_in": [
            {"chain": placed.chain, "rule": rule_words(placed.rule), "comment": placed.rule.comment}
            for placed in state.placed
            if placed.is_ours
        ],
    }
