"""messages: parts of a table as the messages by which the kernel makes them.

Here: tables, chains, sets, rules and elements of a state as parts of a transaction. Not here: the bytes of expressions
(assembly.py), what goes into which transaction (stages.py), sending it (apply.py).
Invariant: what is written reads back as what nft would have written: data types, comments and byte orders stand where
nft looks for them, so ``nft list table`` shows them.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from podgate.linux.netlink import NLM_F_CREATE, attribute, nested, text, uint32
from podgate.linux.nftables import (
    DEL_CHAIN,
    DEL_RULE,
    DEL_SET,
    DEL_TABLE,
    FAMILIES,
    HOOKS,
    NEW_CHAIN,
    NEW_RULE,
    NEW_SET,
    NEW_TABLE,
    SET_CONCAT,
    SET_FLAGS,
    SET_MAP,
    family_header,
)
from podgate.linux.nftables_batch import Batch, BatchMessage
from podgate.linux.nftables_elements import SetShape
from podgate.model.machine import Family
from podgate.targets.nftables.assembly import assembled, comment_userdata, rule_comment
from podgate.targets.nftables.elements import TYPES, key_size
from podgate.targets.nftables.listable import Width, check_listable, widths_of
from podgate.targets.nftables.stages import Pairs, Stage
from podgate.targets.nftables.state import Chain, Rule, Set, State, comment_text

_APPENDED: Final = 0x800  # NLM_F_APPEND
_VERDICT_TYPE: Final = 0xFFFFFF00
_TYPE_BITS: Final = 6
_LARGEST_DYNAMIC: Final = 0xFFFF  # what nft gives a dynamic set without a size
_TABLE_COMMENT, _SET_COMMENT, _KEY_ORDER, _DATA_ORDER = 0, 7, 0, 1
_HOST_ORDER, _NETWORK_ORDER, _NO_ORDER = 1, 2, 0
_POLICIES: Final = {"drop": 0, "accept": 1}


def shape(declared: Set) -> SetShape:
    """Give what is needed to encode a set's elements."""
    data = 0 if declared.data in ((), ("verdict",)) else key_size(declared.data)
    return SetShape(key_size(declared.key), declared.is_interval, len(declared.key) > 1, data)


def fill(batch: Batch, stage: Stage, want: State) -> None:
    """Put a stage on the way to ``want`` into a batch."""
    writer = _Writer(want.family, want.name)
    sets = {declared.name: declared for declared in want.sets}
    batch.extend(writer.table(stage, want))
    batch.extend(writer.flush_chain(name) for name in stage.flushed)
    for name, elements in stage.removed.items():
        keys = [key for key, _ in _in_order(sets[name], elements)]
        batch.delete(want.name, name, keys, shape(sets[name]))
    batch.extend(writer.delete(DEL_SET, 2, declared.name, "set") for declared in stage.dropped_sets)
    batch.extend(writer.delete(DEL_CHAIN, 3, name, "chain") for name in stage.dropped_chains)
    batch.extend(writer.chain(chain) for chain in stage.declared)
    batch.extend(writer.declaration(declared) for declared in stage.new_sets)
    for name, elements in stage.added.items():
        batch.add(want.name, name, _in_order(sets[name], elements), shape(sets[name]))
    widths = widths_of(want.sets) if stage.filled else {}
    batch.extend(writer.rule(chain, number, widths) for chain in stage.filled for number in range(len(chain.rules)))


def _in_order(declared: Set, elements: Pairs) -> Sequence[tuple[bytes, bytes | str]]:
    """Sort intervals, as the kernel wants them; others come as they are, since sorting many takes time."""
    return sorted(elements, key=itemgetter(0)) if declared.is_interval else elements


class _Writer:
    """Writes messages about one table."""

    def __init__(self, family: Family, table: str) -> None:
        self._family = family
        self._table = table
        self._place = family_header(int(FAMILIES[family])) + text(1, table)

    def table(self, stage: Stage, want: State) -> Iterator[BatchMessage]:
        """Make, empty, take away or wake the table; one that is taken from is made first: it may not be there."""
        what = f"table {self._family} {self._table}"
        made = BatchMessage(NEW_TABLE, NLM_F_CREATE, self._place, what)
        if stage.table == "woken":
            yield made._replace(body=made.body + uint32(2, 0))  # flags, dormant not among them
        elif stage.table:
            yield made
            yield BatchMessage(DEL_RULE if stage.table == "emptied" else DEL_TABLE, 0, self._place, what)
        if stage.table == "anew":
            userdata = comment_userdata(_TABLE_COMMENT, comment_text(want.comment)) if want.comment else b""
            comment = attribute(6, userdata) if userdata else b""
            yield made._replace(body=made.body + comment)

    def delete(self, kind: int, name_at: int, name: str, noun: str) -> BatchMessage:
        """Delete a set or a chain by its name."""
        return BatchMessage(kind, 0, self._place + text(name_at, name), f"{noun} {name}")

    def flush_chain(self, name: str) -> BatchMessage:
        """Delete all rules of a chain."""
        return BatchMessage(DEL_RULE, 0, self._place + text(2, name), f"the rules of chain {name}")

    def chain(self, chain: Chain) -> BatchMessage:
        """Declare a chain, or change its policy."""
        body = self._place + text(3, chain.name)
        if chain.hook:
            place = uint32(1, HOOKS.index(chain.hook.hook)) + attribute(2, struct.pack(">i", chain.hook.priority))
            body += nested(4, place) + uint32(5, _POLICIES[chain.hook.policy]) + text(7, chain.hook.type)
        return BatchMessage(NEW_CHAIN, NLM_F_CREATE, body, f"chain {chain.name}")

    def rule(self, chain: Chain, number: int, widths: Mapping[str, Width]) -> BatchMessage:
        """Append a rule to its chain."""
        rule: Rule = chain.rules[number]
        try:
            check_listable(rule.code, widths)
            code = assembled(rule.code)
        except ValueError as problem:
            raise ValueError(f"rule {number + 1} of chain {chain.name} ({rule.text}): {problem}") from problem
        body = self._place + text(2, chain.name) + nested(4, code) + attribute(7, rule_comment(rule.mark))
        return BatchMessage(
            NEW_RULE, NLM_F_CREATE | _APPENDED, body, f"rule {number + 1} of chain {chain.name} ({rule.text})"
        )

    def declaration(self, declared: Set) -> BatchMessage:
        """Declare a set or map."""
        names = declared.flags if not declared.timeout else {*declared.flags, "timeout"}
        flags = sum(SET_FLAGS[name] for name in names) | (SET_MAP if declared.data else 0)
        is_ranges = declared.is_interval and len(declared.key) > 1
        flags |= SET_CONCAT if is_ranges else 0
        size = declared.size or (_LARGEST_DYNAMIC if declared.is_dynamic else 0)
        description = uint32(1, size) if size else b""
        if is_ranges:
            fields = (nested(1, uint32(1, TYPES[name].size)) for name in declared.key)
            description += nested(2, *fields)
        body = self._place + text(2, declared.name) + uint32(3, flags)
        body += uint32(4, _type_number(declared.key)) + uint32(5, key_size(declared.key)) + _data_type(declared.data)
        body += uint32(10, 1)  # a transaction wants a number for each new set, though names do
        body += nested(9, description) if description else b""
        body += attribute(11, struct.pack(">Q", declared.timeout * 1000)) if declared.timeout else b""
        kind = "map" if declared.data else "set"
        return BatchMessage(
            NEW_SET, NLM_F_CREATE, body + attribute(13, _set_userdata(declared)), f"{kind} {declared.name}"
        )


def _data_type(data: Sequence[str]) -> bytes:
    if not data:
        return b""
    if data == ("verdict",):
        return uint32(6, _VERDICT_TYPE) + uint32(7, 0)
    return uint32(6, _type_number(data)) + uint32(7, key_size(data))


def _type_number(types: Sequence[str]) -> int:
    """Give nft's number of a type: of a concatenation, six bits for each field."""
    number = 0
    for name in types:
        number = number << _TYPE_BITS | TYPES[name].number
    return number


def _set_userdata(declared: Set) -> bytes:
    comment = comment_text(declared.comment)
    key = bytes((_KEY_ORDER, 4)) + struct.pack("=I", _byte_order(declared.key))
    data = bytes((_DATA_ORDER, 4)) + struct.pack("=I", _byte_order(declared.data)) if declared.data else b""
    return key + data + (comment_userdata(_SET_COMMENT, comment) if comment else b"")


def _byte_order(types: Sequence[str]) -> int:
    """Give the order in which nft is to read a value; of a concatenation its types say it, and one byte has none."""
    if len(types) != 1 or types[0] not in TYPES or TYPES[types[0]].size == 1:
        return _NO_ORDER
    return _HOST_ORDER if TYPES[types[0]].host_order or types[0] == "ifname" else _NETWORK_ORDER
