"""listing: a table as a state, from what iptables-save shows. Pure.

Here: the lines of a listing, and which chains are ours by their comments. Not here: one rule's words (grammar.py),
running the program (apply.py).
Invariant: a chain is ours only if each of its rules carries a comment of ours, or by its name where names are given; of
all other chains, and of those named ones, rules are kept as text, since a node may hold 40,000 of them.
"""

import re
from collections.abc import Iterable
from typing import Final

from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.iptables.grammar import GrammarError, read_rule
from podgate.targets.iptables.state import BUILT_IN, Binary, BuiltinRule, Chain, Jump, Names, State, TableName

_COMMENT: Final = re.compile(r'--comment (?:"(?:\\")?)?(?=(.*))')
NO_NAMES: Final = Names()
_INCOMPATIBLE: Final = re.compile(r"^# Table `(\S+)' is incompatible", re.MULTILINE)


class ListingError(ValueError):
    """A listing that cannot be read; the message names the line and says what to do."""


def is_owned(comment: str, owners: Iterable[str]) -> bool:
    """Say whether a comment begins as ours do; ip-masq-agent 2.10.0 to 2.12.1 wrote it with quotes inside."""
    return comment.removeprefix('"').startswith(tuple(owners))


def read_listing(
    text: str,
    family: Family,
    binary: Binary,
    owners: tuple[str, ...],
    table: TableName = "nat",
    *,
    names: Names = NO_NAMES,
) -> State:
    """Read what ``iptables-save -t TABLE`` shows.

    Args:
        text: the listing; an empty one is a table that does not exist.
        family: of the program that made it.
        binary: which program made it.
        owners: how comments begin that say that a rule is ours, or the old program's.
        table: the table.
        names: chains that are ours by their names.

    Raises:
        ListingError: the table holds what iptables cannot show, or a line is not of a listing.
    """
    if _INCOMPATIBLE.search(text):
        raise ListingError(
            f"the table {table} holds rules that iptables cannot show, made by another program with nft: see "
            f"`nft list table {family} {table}`, and move them to a table of their own"
        )
    chains = _lines(text, table)
    placed: list[BuiltinRule] = []
    ours: list[Chain] = []
    others: dict[str, tuple[str, ...]] = {}
    named: dict[str, tuple[str, ...]] = {}
    for name, rules in chains.items():
        try:
            if name in BUILT_IN:
                placed += [_placed(name, words, family, owners, names) for words in rules]
            elif name in names:
                named[name] = tuple(rules)
            elif rules and all(_has_owner(words, owners) for words in rules):
                ours.append(Chain(name, tuple(read_rule(words, family) for words in rules)))
            else:
                others[name] = tuple(rules)
        except GrammarError as problem:
            raise ListingError(f"chain {name}: {problem}") from problem
    return State(
        family,
        binary,
        tuple(ours),
        tuple(placed),
        others=others,
        strange={name: first for name, rules in others.items() if (first := _first_strange(rules, owners)) is not None},
        table=table,
        named=Table.of(named),
    )


def _placed(chain: str, words: str, family: Family, owners: tuple[str, ...], names: Names) -> BuiltinRule:
    rule = read_rule(words, family)
    leads_to_ours = isinstance(rule.target, Jump) and rule.target.chain in names
    return BuiltinRule(chain, rule, leads_to_ours or is_owned(rule.comment, owners))


def _lines(text: str, table: TableName) -> dict[str, list[str]]:
    """Give the rules of each chain of a table, as text."""
    chains: dict[str, list[str]] = {}
    is_inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("*"):
            is_inside = line == f"*{table}"
        elif line == "COMMIT":
            is_inside = False
        elif not is_inside:
            continue
        elif line.startswith(":"):
            chains.setdefault(line[1:].split(" ", 1)[0], [])
        else:
            words = line.split(" ", 2)
            if words[0] != "-A" or len(words) < 2 or words[1] not in chains:
                raise ListingError(f"line {number} is not of iptables-save: {line}")
            chains[words[1]].append(words[2] if len(words) == 3 else "")
    return chains


def _first_strange(rules: Iterable[str], owners: tuple[str, ...]) -> str | None:
    return next((words for words in rules if not _has_owner(words, owners)), None)


def _has_owner(words: str, owners: tuple[str, ...]) -> bool:
    found = _COMMENT.search(words)
    return found is not None and found[1].startswith(owners)
