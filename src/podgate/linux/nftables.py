"""nf_tables over netlink: lists what one table holds, and reads notifications of changes.

Here: the kernel's messages as values (linux/netfilter/nf_tables.h). Not here: elements (nftables_elements.py); rules as
expressions, which nft writes; what a table should hold.
Invariant: nothing of another table is given to the caller.
"""

import errno
import hashlib
import socket
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from podgate.linux.netlink import (
    NLM_F_REQUEST,
    Connection,
    Message,
    NetlinkError,
    attribute_list,
    attributes,
    frame,
    string,
    text,
)

FAMILIES: Final = {"ip": socket.AF_INET, "ip6": socket.AF_INET6}

_SUBSYSTEM: Final = 10 << 8
NEW_TABLE, GET_TABLE, DEL_TABLE = _SUBSYSTEM, _SUBSYSTEM + 1, _SUBSYSTEM + 2
NEW_CHAIN, GET_CHAIN, DEL_CHAIN = _SUBSYSTEM + 3, _SUBSYSTEM + 4, _SUBSYSTEM + 5
NEW_RULE, GET_RULE, DEL_RULE = _SUBSYSTEM + 6, _SUBSYSTEM + 7, _SUBSYSTEM + 8
NEW_SET, GET_SET, DEL_SET = _SUBSYSTEM + 9, _SUBSYSTEM + 10, _SUBSYSTEM + 11
NEW_ELEMENTS, GET_ELEMENTS, DEL_ELEMENTS = _SUBSYSTEM + 12, _SUBSYSTEM + 13, _SUBSYSTEM + 14
NEW_GENERATION, GET_GENERATION = _SUBSYSTEM + 15, _SUBSYSTEM + 16
NEW_OBJECT, GET_OBJECT, DEL_OBJECT = _SUBSYSTEM + 18, _SUBSYSTEM + 19, _SUBSYSTEM + 20
NEW_FLOWTABLE, GET_FLOWTABLE, DEL_FLOWTABLE = _SUBSYSTEM + 22, _SUBSYSTEM + 23, _SUBSYSTEM + 24
NOTIFICATIONS: Final = 7
"""NFNLGRP_NFTABLES, the multicast group of changes."""

TABLE, NAME = 1, 2
"""The first two attributes of almost every message: the table's name and the object's own."""

_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_COUNTING: Final = frozenset(("counter", "quota", "last"))
"""Expressions that packets change."""
HOOKS: Final = ("prerouting", "input", "forward", "output", "postrouting")

SET_ANONYMOUS, SET_CONSTANT, SET_INTERVAL, SET_MAP, SET_TIMEOUT, SET_DYNAMIC = 1, 2, 4, 8, 0x10, 0x20
SET_CONCAT: Final = 0x80
"""A set of intervals of several fields (NFT_SET_CONCAT)."""

SET_FLAGS: Final = {
    "constant": SET_CONSTANT,
    "dynamic": SET_DYNAMIC,
    "interval": SET_INTERVAL,
    "timeout": SET_TIMEOUT,
}
"""The flags that have a name in nft."""


class TableInfo(NamedTuple):
    """A table. ``handle`` is its own: no other table of this kernel has or had it."""

    handle: int
    dormant: bool


class RuleInfo(NamedTuple):
    """A rule. ``identity`` is a digest of its handle and of what it does, its counts left out.

    Another rule has another one, also one that took its place (which keeps the handle). What it does is known by the
    names of sets alone.
    """

    identity: bytes
    comment: str


class RuleCount(NamedTuple):
    """What a rule counted.

    Attributes:
        packets: since it was written.
        drops: whether it ends with the verdict drop.
        body: what it does and its comment, as the kernel gives them; a text in a match or a comment stands in it as is.
    """

    packets: int
    drops: bool
    body: bytes


class ChainInfo(NamedTuple):
    """A chain; ``hook`` is (type, hook, priority, policy) for a base chain."""

    name: str
    hook: tuple[str, str, int, str] | None


class SetInfo(NamedTuple):
    """A set or map. ``types`` are nft's numbers of the key's fields, ``timeout`` is in milliseconds."""

    name: str
    flags: int
    types: tuple[int, ...]
    key_bytes: int
    data_types: tuple[int, ...]
    data_bytes: int
    data_is_verdict: bool
    timeout: int
    size: int
    auto_merge: bool
    comment: str


def family_header(family: int, resource: int = 0) -> bytes:
    """Give the header of every netfilter message; ``resource`` is the subsystem in a batch's frame."""
    return struct.pack(">BBH", family, 0, resource)


def be32(data: bytes) -> int:
    """Read a number in network order; an attribute that is missing counts as 0."""
    return int.from_bytes(data[:4], "big")


def _comment(userdata: bytes, kind: int) -> str:
    found = _userdata(userdata).get(kind, b"")
    return string(found)


def _userdata(data: bytes) -> dict[int, bytes]:
    """Split libnftnl's type-length-value list: one byte each for type and length."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 2 <= len(data):
        found[data[offset]] = data[offset + 2 : offset + 2 + data[offset + 1]]
        offset += 2 + data[offset + 1]
    return found


def generation(connection: Connection) -> int:
    """Give the number of the ruleset's last transaction in this network namespace."""
    (answer,) = connection.request(GET_GENERATION, family_header(socket.AF_UNSPEC), 0)
    return be32(attributes(answer.body, 4)[1])


def batch(connection: Connection, frames: Iterable[bytes]) -> bytes:
    """Frame messages as one transaction."""
    body = family_header(socket.AF_UNSPEC, _SUBSYSTEM >> 8)
    begin = frame(_BATCH_BEGIN, NLM_F_REQUEST, connection.next_sequence(), body)
    middle = b"".join(frames)
    return begin + middle + frame(_BATCH_END, NLM_F_REQUEST, connection.next_sequence(), body)


def wait_for_transactions(connection: Connection) -> None:
    """Return when every transaction that was under way has been committed or given up.

    It takes an empty transaction, which changes nothing and queues behind the others. A reader of several lists needs
    it twice. The kernel puts new elements in place first, which moves those that a list has yet to give; then it raises
    the generation; and only then it takes old elements away, while lists are read all the time. So lists are of one
    generation if it is the same before and after, nothing was under way after the first look, nor before the second.
    """
    for failure in connection.send_all(batch(connection, ())):
        if failure:
            raise failure


def find_table(connection: Connection, family: int, table: str) -> TableInfo | None:
    """Give the table, or None when there is no such table."""
    try:
        (answer,) = connection.request(GET_TABLE, family_header(family) + text(TABLE, table), 0)
    except NetlinkError as problem:
        if problem.errno == errno.ENOENT:
            return None
        raise
    found = attributes(answer.body, 4)
    return TableInfo(int.from_bytes(found.get(4, b""), "big"), bool(be32(found.get(2, b"")) & 1))


def _ours(connection: Connection, kind: int, family: int, table: str) -> Iterator[dict[int, bytes]]:
    # The kernel filters rules, sets, objects and flow tables by table, but chains by family only.
    wanted = table.encode() + b"\0"
    for message in connection.dump(kind, family_header(family) + text(TABLE, table)):
        found = attributes(message.body, 4)
        if found.get(TABLE) == wanted:
            yield found


def list_chains(connection: Connection, family: int, table: str) -> list[ChainInfo]:
    """List the chains of a table, in the kernel's order."""
    chains = []
    for found in _ours(connection, GET_CHAIN, family, table):
        hook = None
        if 4 in found:
            place = attributes(found[4])
            number = be32(place[1])
            (priority,) = struct.unpack(">i", place[2])
            policy = "accept" if be32(found.get(5, b"\0\0\0\1")) else "drop"
            name = HOOKS[number] if number < len(HOOKS) else str(number)
            hook = (string(found.get(7, b"filter")), name, priority, policy)
        chains.append(ChainInfo(string(found[3]), hook))
    return chains


def list_rules(connection: Connection, family: int, table: str) -> dict[str, list[RuleInfo]]:
    """Give the rules of each chain that has rules, in order; one without a comment has ``""``."""
    rules: dict[str, list[RuleInfo]] = {}
    for found in _ours(connection, GET_RULE, family, table):
        rule = RuleInfo(_identity(found), _comment(found.get(7, b""), 0))
        rules.setdefault(string(found[NAME]), []).append(rule)
    return rules


def rule_counts(connection: Connection, family: int, table: str, chain: str) -> list[RuleCount]:
    """Give what the rules of one chain counted, in order; none where there is no such chain."""
    name = chain.encode() + b"\0"
    request = family_header(family) + text(TABLE, table) + text(2, chain)
    try:
        messages = [attributes(message.body, 4) for message in connection.dump(GET_RULE, request)]
    except NetlinkError as problem:
        if problem.errno == errno.ENOENT:
            return []
        raise
    return [_count(found) for found in messages if found.get(2) == name and found.get(TABLE) == table.encode() + b"\0"]


def _count(rule: Mapping[int, bytes]) -> RuleCount:
    packets, drops = 0, False
    for _, expression in attribute_list(rule.get(4, b"")):
        parts = attributes(expression)
        name, data = string(parts.get(1, b"")), attributes(parts.get(2, b""))
        if name == "counter":
            packets += int.from_bytes(data.get(2, b""), "big")
        elif name == "immediate":
            verdict = attributes(attributes(data.get(2, b"")).get(2, b""))
            drops = drops or verdict.get(1) == bytes(4)  # NF_DROP
    return RuleCount(packets, drops, rule.get(4, b"") + rule.get(7, b""))


def _identity(rule: Mapping[int, bytes]) -> bytes:
    digest = hashlib.sha256(rule[3])
    for _, expression in attribute_list(rule.get(4, b"")):
        parts = attributes(expression)
        name = string(parts.get(1, b""))
        digest.update(b"%d %s " % (len(expression), name.encode()))
        if name not in _COUNTING:
            digest.update(parts.get(2, b""))
    return digest.digest()[:16]


def rules_hold(connection: Connection, family: int, table: str, texts: Collection[bytes]) -> bool:
    """Say whether some rule of a table holds one of these texts anywhere: in a comment, a match, or a target."""
    for found in _ours(connection, GET_RULE, family, table):
        if any(text in value for value in found.values() for text in texts):
            return True
    return False


def list_others(connection: Connection, family: int, table: str) -> list[str]:
    """Name the stateful objects and flow tables of a table."""
    names = [string(found[NAME]) for found in _ours(connection, GET_OBJECT, family, table)]
    try:
        names += [string(found[NAME]) for found in _ours(connection, GET_FLOWTABLE, family, table)]
    except NetlinkError as problem:
        if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    return sorted(names)


def _type_numbers(packed: int) -> tuple[int, ...]:
    """Split a key type: nft packs the types of a concatenation in six bits each."""
    numbers = []
    while packed:
        numbers.append(packed & 0x3F)
        packed >>= 6
    return tuple(reversed(numbers))


def list_sets(connection: Connection, family: int, table: str) -> list[SetInfo]:
    """List the named sets and maps of a table."""
    sets = []
    for found in _ours(connection, GET_SET, family, table):
        flags = be32(found.get(3, b""))
        if flags & SET_ANONYMOUS:
            continue
        data_type = be32(found.get(6, b""))
        userdata = _userdata(found.get(13, b""))
        is_verdict = bool(flags & SET_MAP) and data_type >= 0xFFFFFF00
        sets.append(
            SetInfo(
                name=string(found[NAME]),
                flags=flags,
                types=_type_numbers(be32(found[4])),
                key_bytes=be32(found[5]),
                data_types=() if is_verdict else _type_numbers(data_type),
                data_bytes=0 if is_verdict else be32(found.get(7, b"")),
                data_is_verdict=is_verdict,
                timeout=int.from_bytes(found.get(11, b""), "big"),
                size=be32(attributes(found.get(9, b"")).get(1, b"")),
                auto_merge=any(userdata.get(2, b"")),
                comment=string(userdata.get(7, b"")),
            )
        )
    return sets


_NOUNS: Final = {0: "table", 3: "chain", 6: "rule", 9: "set", 12: "element", 18: "object", 22: "flowtable"}
_NAME_AT: Final = {0: 1, 3: 3}  # the attribute that names what changed; for all others the second one


class Event(NamedTuple):
    """One thing that somebody changed; of a rule or element ``name`` is its chain or set."""

    added: bool
    noun: str
    name: str


def event_in(message: Message, family: int, table: str) -> Event | None:
    """Read a notification, or None when it is not about this table."""
    kind = message.kind - _SUBSYSTEM
    added = kind in _NOUNS
    base = kind if added else kind - 2
    if base not in _NOUNS or message.body[:1] != bytes((family,)):
        return None
    found = attributes(message.body, 4)
    if found.get(TABLE) != table.encode() + b"\0":
        return None
    return Event(added, _NOUNS[base], string(found.get(_NAME_AT.get(base, 2), b"")))


def beginning_of(message: Message) -> bytes:
    """Give the part of a notification that says whose element or rule it is; empty for any other message.

    Messages of the same kind that begin with it are of the same set, or chain.
    """
    if message.kind not in (NEW_ELEMENTS, DEL_ELEMENTS, NEW_RULE, DEL_RULE):
        return b""
    offset = 4
    for expected in (TABLE, NAME):
        length = int.from_bytes(message.body[offset : offset + 2], sys.byteorder)
        if int.from_bytes(message.body[offset + 2 : offset + 4], sys.byteorder) != expected:
            return b""
        offset += (length + 3) & ~3
    return message.body[:offset]


def generation_in(message: Message) -> int | None:
    """Give the generation that a notification closes, or None: it is sent after all others of its transaction."""
    if message.kind != NEW_GENERATION:
        return None
    return be32(attributes(message.body, 4)[1])
