"""State: everything that one nftables table of one family holds, as a frozen value.

Here: tables, chains, rules, sets, maps and their elements. Not here: text (render.py), differences (diff.py), I/O.
Invariant: a rule's text is written, never parsed back; what is compared is its mark, which the kernel keeps as the
rule's comment: why the rule is there, and a digest of text and reason.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.elements import (
    MEMBER,
    Data,
    Element,
    address,
    address_interval,
    concatenation,
    interval,
    port,
    protocol,
)

COMMENT_BYTES: Final = 128
"""What nft takes as a comment, the closing zero not counted (NFTNL_UDATA_COMMENT_MAXLEN in libnftnl)."""

SRCNAT: Final = 100
"""The standard priority of source NAT at postrouting; nft calls it ``srcnat``."""

DSTNAT: Final = -100
"""The standard priority of destination NAT at prerouting; nft calls it ``dstnat``."""

FILTER: Final = 0
"""The standard priority of packet filters; nft calls it ``filter``."""


def comment_text(text: str, room: int = COMMENT_BYTES) -> str:
    """Give a comment as nft takes it: no double quotes or line breaks, and cut to ``room`` bytes of UTF-8."""
    clean = " ".join(text.replace('"', "'").split())
    return clean.encode()[:room].decode(errors="ignore")


class Rule(Frozen, frozen=True):
    """One rule.

    Attributes:
        text: the rule in nft's language. Empty in a state that was read back from the kernel.
        comment: why the rule is there, for people; in a state that was read back, the whole mark.
    """

    text: str
    comment: str

    @property
    def mark(self) -> str:
        """What the kernel shows as the rule's comment: ``why it is there [1a2b3c4d]``. Equal marks, equal rules."""
        if not self.text:
            return self.comment
        digest = hashlib.sha256(f"{self.text}\0{self.comment}".encode()).hexdigest()[:8]
        return f"{comment_text(self.comment, COMMENT_BYTES - 11)} [{digest}]"


class Hook(Frozen, frozen=True):
    """Where the kernel enters a base chain.

    Attributes:
        type: ``filter``, ``nat`` or ``route``.
        hook: ``prerouting``, ``input``, ``forward``, ``output`` or ``postrouting``.
        priority: chains at one hook run in rising order; see SRCNAT, DSTNAT, FILTER.
        policy: the verdict of a packet that no rule decides, ``accept`` or ``drop``.
    """

    type: str
    hook: str
    priority: int
    policy: str = "accept"


class Chain(Frozen, frozen=True):
    """A chain: a base chain if it has a hook, otherwise one that rules and verdict maps jump to."""

    name: str
    rules: tuple[Rule, ...] = ()
    hook: Hook | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of its rules, in order."""
        return tuple(rule.mark for rule in self.rules)


class Set(Frozen, frozen=True):
    """The declaration of a set, or of a map when it has data types.

    Attributes:
        key: data types of the key by nft's names, several for a concatenation: see ``elements.TYPES``.
        flags: sorted; any of ``constant``, ``dynamic``, ``interval``, ``timeout``. With ``interval`` the elements are
            disjoint intervals, never ``auto-merge``: what the kernel merged could not be compared. The elements of
            a ``dynamic`` set are written by packets: they are neither read, compared nor changed.
        data: data types of a map's values, or ``("verdict",)``.
        timeout: seconds after which an element goes away by itself, 0 for never.
        size: the largest number of elements, 0 for no limit.
        comment: for people.
    """

    name: str
    key: tuple[str, ...]
    flags: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    timeout: int = 0
    size: int = 0
    comment: str = ""

    @property
    def is_interval(self) -> bool:
        """Whether its keys are intervals."""
        return "interval" in self.flags

    @property
    def is_dynamic(self) -> bool:
        """Whether packets write its elements."""
        return "dynamic" in self.flags


class State(Frozen, frozen=True):
    """One table of one family.

    Attributes:
        family: ``ip`` or ``ip6``.
        name: the table's name.
        present: False when the table should not exist (or does not).
        comment: a legend for people; the kernel takes it only when a table is made, so it is not compared.
        dormant: True in a state that was read when somebody put the table to sleep; never wanted.
        chains: in the order in which they are shown.
        sets: sets and maps, in the order in which they are shown.
        elements: for each set that has any; keys and data are made by the functions in ``elements``.
        others: objects in the table that podgate never makes (flow tables, counters), by name; never wanted.
    """

    family: Family
    name: str
    present: bool = True
    comment: str = ""
    dormant: bool = False
    chains: tuple[Chain, ...] = ()
    sets: tuple[Set, ...] = ()
    elements: Mapping[str, Table[Element, Data]] = {}
    others: tuple[str, ...] = ()

    @staticmethod
    def absent(family: Family, name: str) -> "State":
        """Give the state in which the table does not exist."""
        return State(family, name, present=False)

    def elements_of(self, name: str) -> Table[Element, Data]:
        """Give the elements of a set; an unknown or empty one has none."""
        return self.elements.get(name) or Table()


__all__ = [
    "COMMENT_BYTES",
    "DSTNAT",
    "FILTER",
    "MEMBER",
    "SRCNAT",
    "Chain",
    "Data",
    "Element",
    "Hook",
    "Rule",
    "Set",
    "State",
    "address",
    "address_interval",
    "comment_text",
    "concatenation",
    "interval",
    "port",
    "protocol",
]
