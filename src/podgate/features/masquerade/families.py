"""families: one family's part of the intent.

Here: the configured list and the own Pods as disjoint intervals and as spans for a set. Not here: policies
(resolving.py), which configuration is in force (compile.py).
Invariant: what did not change is not computed again and stays the same object: a Pod that comes or goes leaves the
configured list alone, however long it is.
"""

from collections.abc import Iterable
from typing import Literal

from podgate.features.masquerade.config import Config
from podgate.features.masquerade.intent import (
    FamilyIntent,
    NeverList,
    NodeFacts,
    PolicyIntent,
    Spans,
    Translation,
)
from podgate.features.masquerade.prefixes import Entry, Interval, Span, family_of, kept, resolve
from podgate.model.machine import Family
from podgate.model.remembering import Remembered


class Fallback(Translation, frozen=True):
    """What happens to everything else, and the words that explain has for it."""

    rule: str = "everything else"


class FamilyCompiler:
    """Makes one family's part, again and again. Tables are updated, so that unchanged shards stay the same objects."""

    def __init__(self, family: Family, never: NeverList) -> None:
        self._family: Family = family
        self._never = never
        self._own = _Set(family)
        self._listed = _Set(family)
        self._made = Remembered(self._make)

    def __call__(
        self,
        listed: tuple[Entry, ...],
        own: tuple[Entry, ...],
        facts: NodeFacts,
        policies: tuple[PolicyIntent, ...],
        fallback: Fallback,
    ) -> FamilyIntent:
        """Give the family's part.

        Args:
            listed: what is kept, of both families, in the order in which equal prefixes are looked at.
            own: this node's own Pods, of both families.
            facts: of both families.
            policies: of this family.
            fallback: what happens to everything else.
        """
        return self._made(self._listed(listed), self._own(own), facts, policies, fallback)

    def _make(
        self,
        listed: tuple[tuple[Interval, ...], Spans],
        own: tuple[tuple[Interval, ...], Spans],
        facts: NodeFacts,
        policies: tuple[PolicyIntent, ...],
        fallback: Fallback,
    ) -> FamilyIntent:
        return FamilyIntent(
            family=self._family,
            never=self._never,
            own_pods=own[1],
            policies=policies,
            keep=listed[1],
            fallback=Translation(fallback.action, fallback.address, fallback.ports),
            fallback_rule=fallback.rule,
            own_intervals=own[0],
            intervals=listed[0],
            facts=_facts_of(self._family, facts),
        )


class _Set:
    """Entries as intervals and as spans; remembers what it gave last."""

    def __init__(self, family: Family) -> None:
        self._family: Family = family
        self._spans = Spans()
        self._made = Remembered(self._make)

    def __call__(self, entries: tuple[Entry, ...]) -> tuple[tuple[Interval, ...], Spans]:
        return self._made(entries)

    def _make(self, entries: tuple[Entry, ...]) -> tuple[tuple[Interval, ...], Spans]:
        intervals = resolve(entry for entry in entries if family_of(entry.network) == self._family)
        self._spans = updated(self._spans, kept(intervals))
        return intervals, self._spans


def updated(before: Spans, spans: Iterable[Span]) -> Spans:
    """Give a table of spans that shares what it can with an earlier one."""
    wanted: dict[Span, Literal[True]] = dict.fromkeys(spans, True)
    return before.updated(wanted, removed=[span for span in before if span not in wanted])


def listed_entries(config: Config, family: Family) -> tuple[Entry, ...]:
    """Give what a configuration keeps in a family, link-local ranges included."""
    link_local = config.link_local(family)
    return (*config.entries, *(() if link_local is None else (link_local,)))


def _facts_of(family: Family, facts: NodeFacts) -> NodeFacts:
    return NodeFacts(
        tuple(address for address in facts.local if family_of(address) == family),
        tuple(address for address in facts.broadcast if family_of(address) == family),
        tuple(route for route in facts.routes if family_of(route[0]) == family),
    )
