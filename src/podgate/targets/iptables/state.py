"""State: what is ours in one table of one family, as one of the two iptables programs sees it.

Here: rules, chains, rules in built-in chains, which names a chain may have, and which are ours. Not here: text
(render.py, words.py, grammar.py), differences (diff.py), I/O.
Invariant: two rules are equal if their forms are, however they were written: order of words, quotes, implied modules
and rounded probabilities do not count.
"""

from collections.abc import Mapping
from typing import Final, Literal

from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.packet import (
    Accept,
    AddressIn,
    AddressTypeIn,
    Chance,
    Dnat,
    Drop,
    InterfaceIn,
    Jump,
    Masquerade,
    PortIn,
    ProtocolIn,
    Return,
    Snat,
)
from podgate.model.table import Table

Binary = Literal["nft", "legacy"]
"""Which of the two programs: ``iptables-nft`` writes nf_tables, ``iptables-legacy`` the old tables of the kernel."""

TableName = Literal["nat", "mangle", "filter"]
"""The tables that something is written to."""

BUILT_IN: Final = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
"""The built-in chains of table mangle; nat has no FORWARD, filter neither PREROUTING nor POSTROUTING."""

CHAIN_NAME_BYTES: Final = 28
"""The longest name of a chain (XT_EXTENSION_MAXNAMELEN, one byte is the closing zero)."""

COMMENT_BYTES: Final = 255
"""The longest comment (XT_MAX_COMMENT_LEN, one byte is the closing zero)."""

INTERFACE_BYTES: Final = 15
"""The longest name of an interface (IFNAMSIZ, one byte is the closing zero)."""

STANDARD_TARGETS: Final = ("ACCEPT", "DROP", "QUEUE", "RETURN")
EXTENSION_TARGETS: Final = frozenset(
    (
        *(
            "AUDIT",
            "CHECKSUM",
            "CLASSIFY",
            "CONNMARK",
            "CONNSECMARK",
            "CT",
            "DNAT",
            "DNPT",
            "DSCP",
            "ECN",
            "HL",
            "HMARK",
        ),
        *("IDLETIMER", "LED", "LOG", "MARK", "MASQUERADE", "NETMAP", "NFLOG", "NFQUEUE", "NOTRACK", "RATEEST"),
        *("REDIRECT", "REJECT", "SECMARK", "SET", "SNAT", "SNPT", "SYNPROXY", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS"),
        *("TPROXY", "TRACE", "TTL", "ULOG", "CLUSTERIP"),
    )
)
"""Targets of the extensions of iptables 1.8: a chain of such a name could not be told from the target."""

_CHANCE_PARTS: Final = 1 << 31


def program(family: Family, binary: Binary) -> str:
    """Give the program's name: ``iptables-nft``, ``ip6tables-legacy``."""
    return f"{'iptables' if family == 'ip' else 'ip6tables'}-{binary}"


def comment_text(text: str) -> str:
    """Give a comment as iptables takes it: one line, at most 255 bytes of UTF-8.

    A character that cannot be shown, as a zero byte, becomes a question mark.
    """
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(each if each.isprintable() else "?" for each in text)
    if len(text) <= COMMENT_BYTES and text.isascii():
        return text
    return text.encode()[:COMMENT_BYTES].decode(errors="ignore")


def chain_name_mistake(name: str) -> str:
    """Say why a chain of our own cannot have this name, and what to do; empty when it can.

    The rules are those of both programs together: what one of them takes and the other refuses is refused.
    """
    if not name:
        return "the name of the chain is empty: give one of 1 to 28 characters, as IP-MASQ-AGENT"
    if len(name.encode()) > CHAIN_NAME_BYTES:
        return f'chain name "{name}" has {len(name.encode())} bytes, the kernel takes {CHAIN_NAME_BYTES}: shorten it'
    if name in BUILT_IN:
        return f"{name} is a built-in chain, which belongs to all programs: give a name of its own, as IP-MASQ-AGENT"
    if name in STANDARD_TARGETS or name in EXTENSION_TARGETS:
        return f"{name} is the name of an iptables target: give another one, as IP-MASQ-AGENT"
    if name[0] in "-!":
        return f'chain name "{name}" begins with {name[0]}, which iptables reads as an option: leave it away'
    bad = sorted({character for character in name if not 0x20 < ord(character) < 0x7F or character in "\"'\\"})
    if bad:
        return f'chain name "{name}" holds {bad[0]!r}: use letters, digits, - and _'
    return ""


def is_interface(name: str) -> bool:
    """Say whether iptables reads this as one interface's name, or one with ``*`` at its end."""
    plain = name.removesuffix("*")
    return (
        plain != ""
        and len(name.encode()) <= INTERFACE_BYTES
        and plain.isprintable()
        and not any(each in " *\"'\\" for each in plain)
    )


def built_in(table: TableName) -> tuple[str, ...]:
    """Give the built-in chains of a table."""
    lacking = {"nat": ("FORWARD",), "mangle": (), "filter": ("PREROUTING", "POSTROUTING")}[table]
    return tuple(name for name in BUILT_IN if name not in lacking)


class Names(Frozen, frozen=True):
    """Chains that are ours by their names, whatever they hold.

    Attributes:
        whole: whole names.
        prefixes: how names begin.
    """

    whole: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.whole or name.startswith(self.prefixes)

    def __bool__(self) -> bool:
        return bool(self.whole or self.prefixes)


class OtherMatch(Frozen, frozen=True, tag=True):
    """A match that podgate never writes, as its text: it can be compared and shown, nothing else."""

    text: str


class OtherTarget(Frozen, frozen=True, tag=True):
    """A target that podgate never writes: its name and its options as text."""

    name: str
    options: str = ""


Match = AddressIn | AddressTypeIn | ProtocolIn | InterfaceIn | PortIn | Chance | OtherMatch
RuleTarget = Accept | Drop | Return | Jump | Masquerade | Snat | Dnat | OtherTarget
Form = tuple[frozenset[Match], RuleTarget | None, str]


class Rule(Frozen, frozen=True):
    """One rule.

    Attributes:
        target: what happens to a packet that all matches hold for; None: only the next rule.
        matches: in the order in which they are written. ``ranges`` of an address are one network or one range, a rule
            has one protocol: that is all that iptables can say.
        comment: why the rule is there, and whose it is.
        text: the words that it was read from, whose order deleting it needs, or that its writer has made already;
            empty: they are made when they are needed. It does not count when rules are compared.
    """

    target: RuleTarget | None
    matches: tuple[Match, ...] = ()
    comment: str = ""
    text: str = ""

    @property
    def kept(self) -> tuple[Match, ...]:
        """The matches as the kernel keeps them: a chance rounded, one that always holds left out."""
        kept = (_as_kept(match) if isinstance(match, Chance) else match for match in self.matches)
        return tuple(match for match in kept if not _holds_always(match))

    @property
    def form(self) -> Form:
        """What is compared."""
        return frozenset(self.kept), self.target, comment_text(self.comment)


def _as_kept(chance: Chance) -> Chance:
    """Give a chance as the kernel keeps it: in parts of 2**31, which listings show with eleven digits."""
    return Chance(int(chance.probability * _CHANCE_PARTS + 0.5) / _CHANCE_PARTS)


def _holds_always(match: Match) -> bool:
    """Whether a listing leaves the match out: ``-d 0.0.0.0/0``."""
    if not isinstance(match, AddressIn) or match.negated:
        return False
    return match.ranges == ((0, (1 << (32 if match.version == 4 else 128)) - 1),)


class Chain(Frozen, frozen=True):
    """A chain of our own, with all its rules in order."""

    name: str
    rules: tuple[Rule, ...] = ()


class BuiltinRule(Frozen, frozen=True):
    """A rule in a built-in chain.

    Attributes:
        chain: the built-in chain.
        rule: the rule; podgate writes jumps, and metadata's redirect.
        is_ours: whether its comment says that it is ours or the old program's, or it leads to a chain that is ours by
            its name.
        is_first: whether it goes in front of all others when it is added; else it goes behind them. Where it stands
            later is not compared: other programs put theirs in front too.
    """

    chain: str
    rule: Rule
    is_ours: bool = True
    is_first: bool = False


class State(Frozen, frozen=True):
    """One table of one family and one program.

    Attributes:
        family: ``ip`` or ``ip6``.
        binary: which program.
        chains: ours, with all their rules.
        placed: rules in built-in chains: in a wanted state ours, in one that was read all of them, in their order.
        recorded: chains that are ours whatever they hold now: in a wanted state those that an earlier run recorded, in
            one that was read those that this run wrote, or found to be ours before.
        others: chains that are not ours by their comments, each with its rules as text; of a state that was read.
        strange: of those that hold some rule, the first one without a comment of ours, by chain.
        table: which table.
        named: chains that are ours by their names, with their rules as iptables-save shows them. They are many, so
            each is compared as text first, and one that did not change is not looked at.
    """

    family: Family
    binary: Binary
    chains: tuple[Chain, ...] = ()
    placed: tuple[BuiltinRule, ...] = ()
    recorded: frozenset[str] = frozenset()
    others: Mapping[str, tuple[str, ...]] = {}
    strange: Mapping[str, str] = {}
    table: TableName = "nat"
    named: Table[str, tuple[str, ...]] = Table()

    @property
    def program(self) -> str:
        """The program's name, for messages."""
        return program(self.family, self.binary)


__all__ = [
    "BUILT_IN",
    "CHAIN_NAME_BYTES",
    "COMMENT_BYTES",
    "EXTENSION_TARGETS",
    "INTERFACE_BYTES",
    "STANDARD_TARGETS",
    "Accept",
    "AddressIn",
    "AddressTypeIn",
    "Binary",
    "BuiltinRule",
    "Chain",
    "Chance",
    "Dnat",
    "Drop",
    "Form",
    "InterfaceIn",
    "Jump",
    "Masquerade",
    "Match",
    "Names",
    "OtherMatch",
    "OtherTarget",
    "PortIn",
    "ProtocolIn",
    "Return",
    "Rule",
    "RuleTarget",
    "Snat",
    "State",
    "TableName",
    "built_in",
    "chain_name_mistake",
    "comment_text",
    "is_interface",
    "program",
]
