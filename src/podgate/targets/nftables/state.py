"""State: everything that one nftables table of one family holds, as a frozen value.

Here: tables, chains, rules, sets, maps and their elements. Not here: text (render.py), differences (diff.py), I/O.
Invariant: a rule's text is written, never parsed back; what is compared is its mark, which the kernel keeps as the
rule's comment: why the rule is there, and a digest of text and reason.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.code import Code
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


NAME_BYTES: Final = 255
"""The longest name of a table, chain, set or map (NFT_NAME_MAXLEN, one byte is the closing zero)."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*+")
_VERDICT: Final = re.compile(r"accept|drop|continue|return|(?:jump|goto) (.+)", re.DOTALL)
# One line of whole words, where braces and quotes are closed again: no rule can end before its comment does.
_PLAIN: Final = r"[A-Za-z0-9 _.:,/@\[\]()!=<>&|^~*-]"
_QUOTED: Final = r'"[^"\x00-\x1f\x7f-\xa0\u2028\u2029]*+"'
_RULE: Final = re.compile(rf"(?:{_PLAIN}++|{_QUOTED}|\{{(?:{_PLAIN}++|{_QUOTED})*+\}})++")


def is_name(name: str) -> bool:
    """Say whether nft reads this as one name, of a table, a chain, a set or a map."""
    return len(name) <= NAME_BYTES and _NAME.fullmatch(name) is not None


def is_rule(text: str) -> bool:
    """Say whether this is the text of one rule and nothing else."""
    return _RULE.fullmatch(text) is not None


def is_verdict(text: str) -> bool:
    """Say whether this is a verdict, as ``drop`` or ``goto NAME``."""
    found = _VERDICT.fullmatch(text)
    return found is not None and (found[1] is None or is_name(found[1]))


def comment_text(text: str, room: int = COMMENT_BYTES) -> str:
    """Give a comment as nft takes it: one line without double quotes, cut to ``room`` bytes of UTF-8.

    A character that cannot be shown, as a zero byte, becomes a question mark.
    """
    clean = " ".join(text.replace('"', "'").split())
    if not clean.isprintable():
        clean = "".join(each if each.isprintable() else "?" for each in clean)
    return clean.encode()[:room].decode(errors="ignore")


class Rule(Frozen, frozen=True):
    """One rule.

    Attributes:
        text: the rule in nft's language. Empty in a state that was read back from the kernel.
        comment: why the rule is there, for people; in a state that was read back, the whole mark.
        code: what the rule does as expressions, where nft's language cannot say it: then the text is for people only.
            In one table either all rules have code or none has.
    """

    text: str
    comment: str
    code: Code = ()

    @property
    def mark(self) -> str:
        """What the kernel shows as the rule's comment: ``why it is there [1a2b3c4d]``. Equal marks, equal rules."""
        if not self.text:
            return self.comment
        code = f"\0{self.code!r}" if self.code else ""
        digest = hashlib.sha256(f"{self.text}\0{self.comment}{code}".encode()).hexdigest()[:8]
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
        last: maps that send packets on to what other maps hold: where a change is too large for one transaction they
            gain elements after all others, and lose them before. Not compared.
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
    last: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @staticmethod
    def absent(family: Family, name: str) -> "State":
        """Give the state in which the table does not exist."""
        return State(family, name, present=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the table and of what is in it: those that stand in commands."""
        return (self.name, *(chain.name for chain in self.chains), *(declared.name for declared in self.sets))

    @property
    def has_code(self) -> bool:
        """Whether its rules are code, which goes to the kernel over netlink, instead of text, which goes to nft.

        Raises:
            ValueError: some are and some are not.
        """
        rules = [rule for chain in self.chains for rule in chain.rules]
        coded = sum(1 for rule in rules if rule.code)
        if coded and coded != len(rules):
            text = next(rule.text for rule in rules if not rule.code)
            raise ValueError(f"table {self.family} {self.name} has rules with code, so all must have it: {text!r}")
        return coded > 0

    def elements_of(self, name: str) -> Table[Element, Data]:
        """Give the elements of a set; an unknown or empty one has none."""
        return self.elements.get(name) or Table()


__all__ = [
    "COMMENT_BYTES",
    "DSTNAT",
    "FILTER",
    "MEMBER",
    "NAME_BYTES",
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
    "is_name",
    "is_rule",
    "is_verdict",
    "port",
    "protocol",
]
