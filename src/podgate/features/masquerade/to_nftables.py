"""to_nftables: the masquerade intent as one nftables table per family.

Here: the rules, their order and their comments. Not here: what is kept and why (compile.py), how it is written.
Invariant: a packet meets the rules in the order of the intent (never-list, own Pods, configured list, masquerade), and
only set elements change when the configuration or the Pods do.
"""

from typing import Final

from podgate.features.masquerade.intent import FamilyIntent, Intent, Spans
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.state import (
    MEMBER,
    SRCNAT,
    Chain,
    Data,
    Element,
    Hook,
    Rule,
    Set,
    State,
    address_interval,
)

TABLE: Final = "podgate-masquerade"
KEEP: Final = "keep"
OWN_PODS: Final = "own-pods"

_LEGEND: Final = "made by podgate masquerade; remove it with: podgate masquerade clean"
_ADDRESS: Final[dict[Family, str]] = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}


class Writer:
    """Writes the state of one family; remembers the elements that it made last (see ``Table``)."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._tables: dict[str, tuple[Spans, Table[Element, Data]]] = {}

    def __call__(self, intent: Intent) -> State:
        """Give the state; a family that is off has no table."""
        part = intent.of(self._family)
        if part is None:
            return State.absent(self._family, TABLE)
        return State(
            family=self._family,
            name=TABLE,
            comment=_LEGEND,
            sets=(
                self._set(OWN_PODS, "Pods of this node: they see who their clients are"),
                self._set(KEEP, "destinations that see the Pod's own address"),
            ),
            chains=(Chain("postrouting", _rules(part, intent), Hook("nat", "postrouting", SRCNAT)),),
            elements={OWN_PODS: self._elements(OWN_PODS, part.own_pods), KEEP: self._elements(KEEP, part.keep)},
        )

    def _set(self, name: str, comment: str) -> Set:
        return Set(name, key=(_ADDRESS[self._family],), flags=("interval",), comment=comment)

    def _elements(self, name: str, spans: Spans) -> Table[Element, Data]:
        known = self._tables.get(name)
        if known is not None and known[0] is spans:
            return known[1]
        elements = {address_interval(self._family, span.first, span.last): MEMBER for span in spans}
        before = known[1] if known is not None else Table[Element, Data]()
        table = before.updated(elements, removed=[element for element in before if element not in elements])
        self._tables[name] = (spans, table)
        return table


def _rules(part: FamilyIntent, intent: Intent) -> tuple[Rule, ...]:
    family = part.family
    return (
        Rule(f"fib saddr type {_types(part.never.source_types)} return", "the node's own sockets keep their address"),
        Rule(
            f"fib daddr type {_types(part.never.destination_types)} return",
            "the node itself, broadcast and multicast are never masqueraded",
        ),
        Rule(f"{family} daddr @{OWN_PODS} return", "this node's Pods see who their clients are"),
        Rule(f"{family} daddr @{KEEP} return", "these destinations see the Pod's own address"),
        Rule(
            "masquerade fully-random" if intent.random_fully else "masquerade",
            "everything else sees the node's address",
        ),
    )


def _types(types: tuple[str, ...]) -> str:
    return types[0] if len(types) == 1 else "{ " + ", ".join(types) + " }"
