"""assembly: a rule's code as the kernel reads it, the attributes of NFTA_RULE_EXPRESSIONS.

Here: the bytes of each expression, and of a rule's comment. Not here: what expressions mean (code.py), messages and
transactions (messages.py).
Invariant: equal code gives equal bytes. Numbers are those of linux/netfilter/nf_tables.h and never change; an attribute
that the kernel knows from a default is not written, as nft does, so that older kernels take it.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from podgate.linux.netlink import attribute, nested, text, uint32
from podgate.linux.nftables_elements import data_value, verdict_value
from podgate.targets.nftables.code import (
    AddressKind,
    Between,
    Bitwise,
    Code,
    Compare,
    Count,
    Ct,
    Dispatch,
    Expression,
    Go,
    Immediate,
    Lookup,
    Masquerading,
    Meta,
    Payload,
    Random,
    Register,
    Rejecting,
    Remember,
    SetMark,
    Translate,
)

_NAME, _DATA = 1, 2
_LIST_ELEMENT: Final = 1
_VERDICT_REGISTER: Final = 0
_FIRST_REGISTER: Final = 8  # NFT_REG32_00
_REGISTERS: Final = 16

_BASES: Final = {"network": 1, "transport": 2}
_META: Final = {"mark": 3, "iifname": 6, "oifname": 7, "l4proto": 16}
_CT: Final = {"state": 0, "status": 2, "original proto-dst": 12, "original ip daddr": 20, "original ip6 daddr": 22}
_CT_ORIGINAL: Final = 0
_FIB_FLAGS: Final = {"saddr": 1, "daddr": 2}
_FIB_ADDRESS_TYPE: Final = 3
_NUMGEN_RANDOM: Final = 1
_LOOKUP_INVERTED: Final = 1
_DYNSET: Final = {"add": 0, "update": 1, "delete": 2}
_NAT_DESTINATION: Final = 1
_FAMILIES: Final = {"ip": 2, "ip6": 10}
_FULLY_RANDOM: Final = 0x10  # NF_NAT_RANGE_PROTO_RANDOM_FULLY
_ICMP_UNREACHABLE: Final = 0
_PORT_UNREACHABLE: Final = {"ip": 3, "ip6": 4}
_RULE_COMMENT: Final = 0  # NFTNL_UDATA_RULE_COMMENT


def assembled(code: Code) -> bytes:
    """Give the expressions of a rule, for the attribute NFTA_RULE_EXPRESSIONS.

    Raises:
        ValueError: a register, a verdict or a length is none.
    """
    return b"".join(_assembled(expression) for expression in code)


def comment_userdata(kind: int, comment: str) -> bytes:
    """Give a comment as libnftnl keeps it in userdata: its type, its length, and the text with a closing zero."""
    value = comment.encode() + b"\0"
    return bytes((kind, len(value))) + value


def rule_comment(comment: str) -> bytes:
    """Give the userdata of a rule with a comment, as nft writes it."""
    return comment_userdata(_RULE_COMMENT, comment)


def _assembled(expression: Expression) -> bytes:
    name, encode = _ENCODERS[type(expression)]
    return nested(_LIST_ELEMENT, text(_NAME, name), nested(_DATA, encode(expression)))


def _register(kind: int, number: Register) -> bytes:
    if not 0 <= number < _REGISTERS:
        raise ValueError(f"{number} is no register: they are 0 to {_REGISTERS - 1}")
    return uint32(kind, _FIRST_REGISTER + number)


def _payload(each: Payload) -> bytes:
    place = uint32(2, _BASES[each.base]) + uint32(3, each.offset) + uint32(4, each.length)
    return _register(1, each.to) + place


def _meta(each: Meta) -> bytes:
    return _register(1, each.to) + uint32(2, _META[each.key])


def _set_mark(each: SetMark) -> bytes:
    return uint32(2, _META["mark"]) + _register(3, each.source)


def _ct(each: Ct) -> bytes:
    direction = attribute(3, bytes((_CT_ORIGINAL,))) if each.key.startswith("original") else b""
    return _register(1, each.to) + uint32(2, _CT[each.key]) + direction


def _address_kind(each: AddressKind) -> bytes:
    return _register(1, each.to) + uint32(2, _FIB_ADDRESS_TYPE) + uint32(3, _FIB_FLAGS[each.field])


def _immediate(each: Immediate) -> bytes:
    return _register(1, each.to) + nested(2, data_value(each.data))


def _random(each: Random) -> bytes:
    offset = uint32(4, each.offset) if each.offset else b""
    return _register(1, each.to) + uint32(2, each.modulus) + uint32(3, _NUMGEN_RANDOM) + offset


def _bitwise(each: Bitwise) -> bytes:
    if len(each.mask) != len(each.xor):
        raise ValueError(f"the mask has {len(each.mask)} bytes and the other operand {len(each.xor)}")
    operands = nested(4, data_value(each.mask)) + nested(5, data_value(each.xor))
    return _register(1, each.source) + _register(2, each.to) + uint32(3, len(each.mask)) + operands


def _compare(each: Compare) -> bytes:
    return _register(1, each.source) + uint32(2, int(each.negated)) + nested(3, data_value(each.data))


def _between(each: Between) -> bytes:
    bounds = nested(3, data_value(each.first)) + nested(4, data_value(each.last))
    return _register(1, each.source) + uint32(2, int(each.negated)) + bounds


def _lookup(each: Lookup) -> bytes:
    to = _register(3, each.to) if each.to is not None else b""
    flags = uint32(5, _LOOKUP_INVERTED) if each.negated else b""
    return text(1, each.name) + _register(2, each.source) + to + flags


def _dispatch(each: Dispatch) -> bytes:
    return text(1, each.name) + _register(2, each.source) + uint32(3, _VERDICT_REGISTER)


def _remember(each: Remember) -> bytes:
    data = _register(5, each.data) if each.data is not None else b""
    timeout = attribute(6, struct.pack(">Q", each.timeout * 1000)) if each.timeout else b""
    return text(1, each.name) + uint32(3, _DYNSET[each.how]) + _register(4, each.source) + data + timeout


def _translate(each: Translate) -> bytes:
    kind = uint32(1, _NAT_DESTINATION) + uint32(2, _FAMILIES[each.family])
    return kind + _register(3, each.address) + _register(5, each.port)


def _masquerading(each: Masquerading) -> bytes:
    return uint32(1, _FULLY_RANDOM) if each.fully_random else b""


def _rejecting(each: Rejecting) -> bytes:
    return uint32(1, _ICMP_UNREACHABLE) + attribute(2, bytes((_PORT_UNREACHABLE[each.family],)))


def _nothing(_each: Count) -> bytes:
    return b""


def _go(each: Go) -> bytes:
    return uint32(1, _VERDICT_REGISTER) + nested(2, verdict_value(each.verdict))


_ENCODERS: Final[Mapping[type[Expression], tuple[str, Callable[[Any], bytes]]]] = {
    Payload: ("payload", _payload),
    Meta: ("meta", _meta),
    SetMark: ("meta", _set_mark),
    Ct: ("ct", _ct),
    AddressKind: ("fib", _address_kind),
    Immediate: ("immediate", _immediate),
    Random: ("numgen", _random),
    Bitwise: ("bitwise", _bitwise),
    Compare: ("cmp", _compare),
    Between: ("range", _between),
    Lookup: ("lookup", _lookup),
    Dispatch: ("lookup", _dispatch),
    Remember: ("dynset", _remember),
    Translate: ("nat", _translate),
    Masquerading: ("masq", _masquerading),
    Rejecting: ("reject", _rejecting),
    Count: ("counter", _nothing),
    Go: ("immediate", _go),
}
