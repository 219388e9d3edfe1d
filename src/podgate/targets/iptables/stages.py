"""stages: a plan as the transactions in which iptables-nft gets it.

Here: which chains of a large change are written ahead of the rest, and in which order. Not here: the difference itself
(diff.py), text (render.py), running iptables (apply.py). Pure.
Invariant: what is written ahead is chains that are new, and nothing that is in force leads to them before the last
transaction: so no packet ever meets a part of a plan.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from podgate.targets.iptables.diff import Plan

MOST_LINES: Final = 2_000
"""Lines of a transaction above which new chains are written ahead, with about so many lines in each.

iptables-nft-restore (1.8.9) keeps the names of a text in a list and walks it for each line: 30,000 chains in one text
take it 13 s, in parts of this size 2 s.
"""

_TARGET: Final = re.compile(r"(?:^| )-[jg] (\S+)")

NamedChain = tuple[str, tuple[str, ...]]


def stages(plan: Plan, most: int = MOST_LINES) -> tuple[Plan, ...]:
    """Give a plan in parts, each one transaction; the last one puts in force what those before it made.

    Args:
        plan: from a state to another.
        most: lines above which a change is split.
    """
    if sum(map(_lines, plan.named)) <= most:
        return (plan,)
    new = {name: rules for name, rules in plan.named if name not in plan.have.named}
    ahead = tuple(_ahead(new, frozenset(chain.name for chain in plan.filled), most))
    names = {name for name, _ in ahead}
    only_chains = msgspec.structs.replace(plan, notes=(), filled=(), added=(), removed=(), emptied=(), dropped=())
    rest = tuple(each for each in plan.named if each[0] not in names)
    parts = (msgspec.structs.replace(only_chains, named=part) for part in _parts(ahead, most))
    return (*parts, msgspec.structs.replace(plan, named=rest))


def _lines(chain: NamedChain) -> int:
    return 1 + len(chain[1])


def _ahead(new: Mapping[str, tuple[str, ...]], late: frozenset[str], most: int) -> Iterator[NamedChain]:
    """Give chains after those that they lead to; without such as are too large, or lead to what comes late."""
    seen: set[str] = set()
    left = set(late)
    # By their last letters, which are those of a digest: iptables-nft-save sorts chains by a quicksort that takes the
    # first of a list for its middle. 30,000 that were made in the order of their names take it 14 s, so 1 s.
    for first in sorted(new, key=lambda name: name[::-1]):
        for name in _reached(new, first, seen):
            if _lines((name, new[name])) > most or not left.isdisjoint(_targets(new[name])):
                left.add(name)
            else:
                yield name, new[name]


def _reached(new: Mapping[str, tuple[str, ...]], first: str, seen: set[str]) -> Iterator[str]:
    """Give a chain and those that it leads to, those first, without such as were seen before."""
    waiting = [] if first in seen else [(first, iter(_targets(new[first])))]
    seen.add(first)
    while waiting:
        name, targets = waiting[-1]
        found = next((each for each in targets if each in new and each not in seen), None)
        if found is None:
            waiting.pop()
            yield name
        else:
            seen.add(found)
            waiting.append((found, iter(_targets(new[found]))))


def _targets(rules: Iterable[str]) -> list[str]:
    return [target for words in rules for target in _TARGET.findall(words)]


def _parts(chains: Iterable[NamedChain], most: int) -> Iterator[tuple[NamedChain, ...]]:
    part: list[NamedChain] = []
    size = 0
    for chain in chains:
        if part and size + _lines(chain) > most:
            yield tuple(part)
            part, size = [], 0
        part.append(chain)
        size += _lines(chain)
    if part:
        yield tuple(part)
