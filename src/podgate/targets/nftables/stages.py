"""stages: a plan as the transactions in which the kernel gets it.

Here: what goes together, what goes first, and where a change is split since it is too large for one transaction.
Not here: the difference itself (diff.py), messages (messages.py), text for nft (render.py). Pure.
Invariant: an element that is in both states of a plan is in the table after every stage, with its old data or its new;
whatever a stage refers to is there by then, and nothing goes while something refers to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from podgate.model.frozen import Frozen
from podgate.targets.nftables.diff import ElementChange, Plan
from podgate.targets.nftables.elements import Data, Element
from podgate.targets.nftables.state import Chain, Set

MOST_ELEMENTS: Final = 20_000
"""Elements above which a change is split: the kernel holds up others' changes for as long as a transaction takes."""

Pairs = tuple[tuple[Element, Data], ...]


class Stage(Frozen, frozen=True):
    """One transaction, which does what its fields say in their order.

    Attributes:
        table: ``anew``: it is made, without anything of one that was there; ``emptied``: all its rules go; ``gone``: it
            is taken away; ``woken``: it must not sleep any more.
        flushed: chains that lose their rules.
        removed: elements that leave, by set.
        dropped_sets, dropped_chains: what goes.
        declared: chains that come, or whose policy changes; without their rules.
        new_sets: sets and maps that come, without their elements.
        added: elements that come, by set.
        filled: chains that get their rules.
    """

    table: Literal["", "anew", "emptied", "gone", "woken"] = ""
    flushed: tuple[str, ...] = ()
    removed: Mapping[str, Pairs] = {}
    dropped_sets: tuple[Set, ...] = ()
    dropped_chains: tuple[str, ...] = ()
    declared: tuple[Chain, ...] = ()
    new_sets: tuple[Set, ...] = ()
    added: Mapping[str, Pairs] = {}
    filled: tuple[Chain, ...] = ()

    def __bool__(self) -> bool:
        return self != _NOTHING

    @property
    def only_drops(self) -> bool:
        """Whether it takes away sets and chains and does nothing else."""
        return self == Stage(dropped_sets=self.dropped_sets, dropped_chains=self.dropped_chains)


_NOTHING: Final = Stage()


def in_one(plan: Plan) -> Stage:
    """Give a plan as one transaction."""
    want = plan.want
    if not want.present:
        return Stage("gone") if plan else _NOTHING
    if plan.whole:
        elements = {name: tuple(found.items()) for name, found in want.elements.items() if found}
        filled = tuple(chain for chain in want.chains if chain.rules)
        return Stage("anew", declared=want.chains, new_sets=want.sets, added=elements, filled=filled)
    fresh = {declared.name: tuple(want.elements_of(declared.name).items()) for declared in plan.new_sets}
    added = {name: change.added for name, change in plan.elements.items()}
    return Stage(
        "woken" if plan.wake else "",
        plan.flushed,
        {name: change.removed for name, change in plan.elements.items() if change.removed},
        plan.dropped_sets,
        plan.dropped_chains,
        plan.declared,
        plan.new_sets,
        {name: found for name, found in (fresh | added).items() if found},
        plan.filled,
    )


def stages(plan: Plan, most: int = MOST_ELEMENTS) -> tuple[Stage, ...]:
    """Give the transactions of a plan for a state with code: one for all that comes, one for what goes.

    What goes has one of its own, since Linux before 6.2 notes only after a transaction that the last reference to a
    chain was lost. A table goes after its rules: for a packet that is in them while they go with it, its maps are empty
    already and its sets are not (the kernel switches off elements of maps alone, as they may hold references).

    Args:
        plan: from a state to another.
        most: elements in one transaction; a change of more is split.
    """
    whole = in_one(plan)
    if not whole:
        return ()
    if whole.table == "gone":
        return Stage("emptied"), whole
    first, going = _without_going(whole)
    found = tuple(_split(plan, first, most)) if _is_splittable(plan, first, most) else (first,)
    return tuple(stage for stage in (*found, going) if stage)


def _without_going(stage: Stage) -> tuple[Stage, Stage]:
    """Part what goes for good from what comes; what is declared anew goes and comes at once."""
    sets = {declared.name for declared in stage.new_sets}
    chains = {chain.name for chain in stage.declared}
    first = msgspec.structs.replace(
        stage,
        dropped_sets=tuple(declared for declared in stage.dropped_sets if declared.name in sets),
        dropped_chains=tuple(name for name in stage.dropped_chains if name in chains),
    )
    gone_sets = tuple(declared for declared in stage.dropped_sets if declared.name not in sets)
    gone_chains = tuple(name for name in stage.dropped_chains if name not in chains)
    return first, Stage(dropped_sets=gone_sets, dropped_chains=gone_chains)


def _is_splittable(plan: Plan, stage: Stage, most: int) -> bool:
    """Whether a change is large, and no set or chain is declared anew: what such a one holds may never be missing."""
    count = sum(map(len, stage.added.values())) + sum(map(len, stage.removed.values()))
    holds = any(plan.have.elements.values())
    return (
        count > most and not stage.dropped_sets and not stage.dropped_chains and not (stage.table == "anew" and holds)
    )


def _split(plan: Plan, stage: Stage, most: int) -> Iterator[Stage]:
    """Give the stages of a large change.

    New sets, and chains that packets do not enter by themselves; then what is looked up last gains what it leads to;
    then the maps that lead there; then base chains, and rules of chains that packets are in; and last, what nobody
    leads to any more.
    """
    intervals = {declared.name for declared in plan.want.sets if declared.is_interval}
    inner = tuple(chain for chain in stage.declared if chain.hook is None)
    entered = tuple(chain for chain in stage.declared if chain.hook is not None)
    is_new = stage.table == "anew"
    early = () if is_new else tuple(c for c in stage.filled if c in inner and c.name not in stage.flushed)
    late = tuple(chain for chain in stage.filled if chain not in early)
    yield Stage("anew" if is_new else "", declared=inner, new_sets=stage.new_sets, filled=early)
    names = sorted(stage.added.keys() | stage.removed.keys())
    leading = [name for name in plan.want.last if name in names]
    led_to = [name for name in names if name not in leading]
    parts = {name: _parts(stage, name, most, is_interval=name in intervals) for name in names}
    yield from _packed(((name, part) for name in led_to for part in parts[name].coming), most)
    yield from _packed(((name, part) for name in leading for part in (*parts[name].coming, *parts[name].going)), most)
    yield Stage("" if is_new else stage.table, flushed=stage.flushed, declared=entered, filled=late)
    yield from _packed(((name, part) for name in led_to for part in parts[name].going), most)


class _Parts(Frozen, frozen=True):
    """A change of one set in parts: new and replaced elements, then those that go."""

    coming: tuple[ElementChange, ...] = ()
    going: tuple[ElementChange, ...] = ()


def _parts(stage: Stage, name: str, most: int, *, is_interval: bool) -> _Parts:
    removed, added = stage.removed.get(name, ()), stage.added.get(name, ())
    if is_interval and removed:
        # Other intervals may cover the same addresses, and two that overlap cannot be there at once.
        return _Parts((ElementChange(removed, added),))
    new = dict(added) if removed else {}
    old = {key: data for key, data in removed if key in new}
    coming = tuple(
        ElementChange(tuple((key, old[key]) for key, _ in part if key in old) if old else (), part)
        for part in _chunks(added, most)
    )
    gone = tuple(pair for pair in removed if pair[0] not in new)
    return _Parts(coming, tuple(ElementChange(part) for part in _chunks(gone, most)))


def _chunks(elements: Pairs, most: int) -> Iterator[Pairs]:
    return (elements[start : start + most] for start in range(0, len(elements), most))


def _packed(parts: Iterable[tuple[str, ElementChange]], most: int) -> Iterator[Stage]:
    """Put parts into as few stages as may be, in their order."""
    waiting: list[tuple[str, ElementChange]] = []
    size = 0
    for name, part in parts:
        count = len(part.added)
        if waiting and (size + count > most or any(name == other for other, _ in waiting)):
            yield _stage(waiting)
            waiting, size = [], 0
        waiting.append((name, part))
        size += count
    if waiting:
        yield _stage(waiting)


def _stage(parts: Sequence[tuple[str, ElementChange]]) -> Stage:
    return Stage(
        removed={name: part.removed for name, part in parts if part.removed},
        added={name: part.added for name, part in parts if part.added},
    )
