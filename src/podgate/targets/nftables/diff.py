"""diff: what takes one table from the state it has to the state it should have.

Here: the plan, as data, and how it shows itself to people. Not here: nft's commands (render.py), doing it (apply.py).
Invariant: what did not change is not in the plan, so it keeps its counters; a plan is one transaction.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from heapq import nsmallest
from operator import itemgetter
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.table import Table, changes
from podgate.model.tally import tally
from podgate.targets.nftables import code
from podgate.targets.nftables.elements import Data, Element, data_text, key_texts
from podgate.targets.nftables.state import Chain, Hook, Rule, Set, State, comment_text, is_name

_REFERENCE: Final = re.compile(r"@([\w.-]+)|\b(?:jump|goto)\s+([\w.-]+)")
_SHOWN_ELEMENTS: Final = 5


class ElementChange(Frozen, frozen=True):
    """Elements that leave and enter one set, in no order. A new value of a key is in both."""

    removed: tuple[tuple[Element, Data], ...] = ()
    added: tuple[tuple[Element, Data], ...] = ()


class Plan(Frozen, frozen=True):
    """One transaction on one table. The transaction keeps the order of the fields from ``flushed`` on.

    Attributes:
        have: the state that it starts from.
        want: the state that it leads to.
        whole: why the table is made anew, or taken away, as a whole; empty when only parts change.
        wake: True when the table sleeps and must not.
        flushed: chains that lose their rules.
        elements: changes of sets that stay.
        dropped_sets: sets and maps that go; one that is declared anew is also in ``new_sets``.
        dropped_chains: chains that go; one that is declared anew is also in ``declared``.
        declared: chains that are new or whose policy changes.
        new_sets: sets and maps that come, with all their elements.
        filled: chains that get their rules; each is new or in ``flushed``.
    """

    have: State
    want: State
    whole: str = ""
    wake: bool = False
    flushed: tuple[str, ...] = ()
    elements: Mapping[str, ElementChange] = {}
    dropped_sets: tuple[Set, ...] = ()
    dropped_chains: tuple[str, ...] = ()
    declared: tuple[Chain, ...] = ()
    new_sets: tuple[Set, ...] = ()
    filled: tuple[Chain, ...] = ()

    @property
    def is_structural(self) -> bool:
        """Whether more than elements of sets that stay change."""
        parts = (self.flushed, self.dropped_sets, self.dropped_chains, self.declared, self.new_sets, self.filled)
        return bool(self.whole or self.wake or any(parts))

    def __bool__(self) -> bool:
        return self.is_structural or bool(self.elements)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def brief(self) -> str:
        """Say in one line what it does."""
        want, changed = self.want, self.elements.values()
        filled, sets = (want.chains, want.sets) if self.whole else (self.filled, self.new_sets)
        come = {
            "chain": len({chain.name for chain in (*self.declared, *filled)}),
            "rule": sum(len(chain.rules) for chain in filled),
            "set": len(sets),
            "element": sum(len(want.elements_of(each.name)) for each in sets)
            + sum(len(each.added) for each in changed),
        }
        gone = {
            "chain": len(self.dropped_chains),
            "set": len(self.dropped_sets),
            "element": sum(len(each.removed) for each in changed),
        }
        why = f": {self.whole}" if self.whole else ""
        return f"table {want.family} {want.name}{why}: written {tally(come)}; removed {tally(gone)}"


def same_declaration(have: Set, want: Set) -> bool:
    """Say whether a set that was read is as declared. nft adds the timeout flag and, to dynamic sets, a size."""
    return have == want or (
        (have.key, have.data, have.timeout) == (want.key, want.data, want.timeout)
        and comment_text(have.comment) == comment_text(want.comment)
        and set(have.flags) | _implied(have) == set(want.flags) | _implied(want)
        and want.size in (0, have.size)
    )


def _implied(declared: Set) -> set[str]:
    return {"timeout"} if declared.timeout else set()


def diff(have: State, want: State) -> Plan:
    """Give the plan from one state of a table to another; falsy when they are equal.

    Raises:
        ValueError: the states are of different tables, a name that is wanted is none, or only some rules have code.
    """
    if have is want:
        return Plan(have, want)
    check_names(want)
    _ = want.has_code
    if (have.family, have.name) != (want.family, want.name):
        raise ValueError(f"table {have.family} {have.name} cannot become table {want.family} {want.name}")
    if not want.present:
        return Plan(have, want, whole="" if not have.present else "it should not exist")
    if not have.present:
        return Plan(have, want, whole="it does not exist")
    if have.others:
        return Plan(have, want, whole=f"made anew, since it holds what is not ours: {', '.join(have.others)}")
    unspeakable = next((name for name in have.names if not is_name(name)), None)
    if unspeakable is not None:
        return Plan(have, want, whole=f"made anew, since it holds a name that nft cannot read: {unspeakable!r}")
    return _parts(have, want)


def check_names(want: State) -> None:
    """See that every name may stand in a command; a name from outside must have been looked at before.

    Raises:
        ValueError: one may not.
    """
    for name in want.names:
        if not is_name(name):
            raise ValueError(f"{name!r} cannot be a name in nftables: it must be letters, digits, '.', '_' and '-'")


def _parts(have: State, want: State) -> Plan:
    old_sets = {declared.name: declared for declared in have.sets}
    new_sets = {declared.name: declared for declared in want.sets}
    kept = {name for name, old in old_sets.items() if name in new_sets and same_declaration(old, new_sets[name])}
    old_chains = {chain.name: chain for chain in have.chains}
    new_chains = {chain.name: chain for chain in want.chains}
    moved = {name for name, old in old_chains.items() if name in new_chains and _moved(old.hook, new_chains[name].hook)}
    gone = {name for name in old_chains if name not in new_chains} | moved
    stale = {name for name in old_sets if name not in kept} | gone
    flushed, filled, declared = [], [], []
    for name, chain in new_chains.items():
        old = old_chains.get(name)
        if old is None or name in moved:
            declared.append(chain)
        elif old.hook != chain.hook:
            declared.append(chain)  # only the policy differs, which a declaration changes in place
        if old is None or name in moved or _differ(old, chain) or (stale and references(chain.rules) & stale):
            filled.append(chain)
            if old is not None and old.rules:
                flushed.append(name)
    flushed += [name for name in old_chains if name not in new_chains]
    return Plan(
        have,
        want,
        wake=have.dormant,
        flushed=tuple(flushed),
        elements=_element_changes(have, want, kept),
        dropped_sets=tuple(old for name, old in old_sets.items() if name not in kept),
        dropped_chains=tuple(name for name in old_chains if name in gone),
        declared=tuple(declared),
        new_sets=tuple(new for name, new in new_sets.items() if name not in kept),
        filled=tuple(chain for chain in filled if chain.rules),
    )


def _moved(old: Hook | None, new: Hook | None) -> bool:
    """Whether the kernel must make the chain anew: everything of a hook but the policy is fixed."""
    if old is None or new is None:
        return old is not new
    return (old.type, old.hook, old.priority) != (new.type, new.hook, new.priority)


def _differ(old: Chain, new: Chain) -> bool:
    """Whether the rules of two chains differ. Marks are digests, which take time: equal rules have equal marks."""
    return old.rules != new.rules and old.marks != new.marks


def references(rules: Iterable[Rule]) -> set[str]:
    """Give the names of sets, maps and chains that rules mention."""
    names = set()
    for rule in rules:
        if rule.code:
            names |= code.references(rule.code)
        else:
            names.update(name for pair in _REFERENCE.findall(rule.text) for name in pair if name)
    return names


def _element_changes(have: State, want: State, kept: Iterable[str]) -> dict[str, ElementChange]:
    dynamic = {declared.name for declared in want.sets if declared.is_dynamic}
    found = {}
    for name in sorted(set(kept) - dynamic):
        before, after = have.elements_of(name), want.elements_of(name)
        removed, added = [], []
        for key, old, new in changes(before, after):
            if old is not None:
                removed.append((key, old))
            if new is not None:
                added.append((key, new))
        if removed or added:
            found[name] = ElementChange(tuple(removed), tuple(added))
    return found


def by_key(elements: Iterable[tuple[Element, Data]]) -> list[tuple[Element, Data]]:
    """Sort elements by key: in this order they are shown and, where it matters, written."""
    return sorted(elements, key=itemgetter(0))


def sorted_elements(elements: Table[Element, Data]) -> list[tuple[Element, Data]]:
    """Give a table's elements in the order of their keys."""
    return by_key(elements.items())


def element_texts(declared: Set, elements: Sequence[tuple[Element, Data]]) -> list[str]:
    """Show elements as nft reads them: ``10.0.0.0/8``, ``10.0.0.1 . tcp . 80 : goto bucket-2``."""
    keys = key_texts(declared.key, [key for key, _ in elements], is_interval=declared.is_interval)
    if not declared.data:
        return keys
    return [f"{key} : {data_text(declared.data, data)}" for key, (_, data) in zip(keys, elements, strict=True)]


def set_text(declared: Set) -> str:
    """Show a declaration in a few words for people."""
    kind = "map" if declared.data else "set"
    types = " . ".join(declared.key) + (f" : {' . '.join(declared.data)}" if declared.data else "")
    return f"{kind} {declared.name} ({', '.join((types, *declared.flags))})"


def _lines(plan: Plan) -> Iterator[str]:
    want = plan.want
    if not plan:
        yield f"table {want.family} {want.name}: no change"
        return
    if plan.whole and not want.present:
        yield f"- table {want.family} {want.name}: {plan.whole}"
        return
    sign = "~" if plan.have.present else "+"
    yield f"{sign} table {want.family} {want.name}{': ' if plan.whole else ''}{plan.whole}"
    if plan.wake:
        yield "  ~ wakes: it is dormant, so its rules are not in force"
    for declared in plan.dropped_sets:
        yield f"  - {set_text(declared)}"
    for declared in want.sets if plan.whole else plan.new_sets:
        yield f"  + {set_text(declared)}"
        yield from _some_elements("+", declared, want.elements_of(declared.name).items())
    sets = {declared.name: declared for declared in want.sets}
    for name, change in plan.elements.items():
        yield from _element_lines(sets[name], change)
    yield from _chain_lines(plan)


def _element_lines(declared: Set, change: ElementChange) -> Iterator[str]:
    yield from _some_elements("-", declared, change.removed)
    yield from _some_elements("+", declared, change.added)


def _some_elements(sign: str, declared: Set, elements: Collection[tuple[Element, Data]]) -> Iterator[str]:
    """Show the first few elements, by their keys; the data have no order, as a verdict and bytes."""
    if elements:
        shown = element_texts(declared, nsmallest(_SHOWN_ELEMENTS, elements, key=itemgetter(0)))
        if len(elements) > _SHOWN_ELEMENTS:
            shown.append("…")
        noun = "element" if len(elements) == 1 else "elements"
        yield f"  {sign} {len(elements)} {noun} in {declared.name}: {', '.join(shown)}"


def _chain_lines(plan: Plan) -> Iterator[str]:
    old_chains = {} if plan.whole else {chain.name: chain for chain in plan.have.chains}
    for name, old in old_chains.items():
        if name in plan.flushed and name in plan.dropped_chains and name not in {c.name for c in plan.declared}:
            yield f"  - chain {name} ({len(old.rules)} rules)"
    touched = {chain.name for chain in (*plan.declared, *plan.filled)} | set(plan.flushed)
    for chain in plan.want.chains:
        previous = old_chains.get(chain.name)
        if not plan.whole and chain.name not in touched:
            continue
        line = f"  {'~' if previous else '+'} chain {chain.name} {_place(chain.hook)}".rstrip()
        moved = previous is not None and previous.hook != chain.hook
        yield f"{line}, was {_place(previous.hook) or '(no base chain)'}" if previous and moved else line
        yield from _rule_lines(previous.rules if previous else (), chain.rules)


def _place(hook: Hook | None) -> str:
    return f"({hook.type}, {hook.hook} {hook.priority}, policy {hook.policy})" if hook else ""


def _rule_lines(old: tuple[Rule, ...], new: tuple[Rule, ...]) -> Iterator[str]:
    matcher = SequenceMatcher(None, [rule.mark for rule in old], [rule.mark for rule in new], autojunk=False)
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind == "equal":
            continue
        for rule in old[first:last]:
            # Of a rule that was read only the mark is known.
            why = rule.comment or "a rule that is not ours"
            yield f"    - {rule.text}  # {why}" if rule.text else f"    - # {why}"
        for rule in new[new_first:new_last]:
            yield f"    + {rule.text}  # {rule.comment}"
