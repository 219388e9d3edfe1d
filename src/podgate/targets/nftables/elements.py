"""Elements of sets and maps: their compact form, how to make one, and how people read one.

Here: data types, constructors for keys and data, their text. Not here: which set an element is in (state.py), netlink.
Invariant: a key is what the kernel keeps in its registers, in network order: fields of a concatenation are padded to 4
bytes, a single field is not; a key of an interval set is its first value followed by its last, both included.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal, overload

from podgate.model.frozen import Frozen
from podgate.model.machine import Family, IPAddress, IPNetwork

Element = bytes
"""The key of an element."""

Data = bytes | str
"""What an element maps to: bytes like a key; text for a verdict (``drop``, ``goto NAME``); ``MEMBER`` in a set."""

MEMBER: Final[Data] = b""
"""The data of an element of a plain set, which maps to nothing."""


class DataType(Frozen, frozen=True):
    """A data type of nftables.

    Attributes:
        number: nft's own number of the type, which it keeps with each set (``enum datatypes``, stable since 0.5).
        size: bytes.
        has_prefixes: True where nft writes ``FIRST/BITS`` for an aligned block of values.
        host_order: True where the kernel compares the value in the machine's byte order (marks).
    """

    name: str
    number: int
    size: int
    has_prefixes: bool = False
    host_order: bool = False


TYPES: Final = {
    kind.name: kind
    for kind in (
        DataType("ipv4_addr", 7, 4, has_prefixes=True),
        DataType("ipv6_addr", 8, 16, has_prefixes=True),
        DataType("ether_addr", 9, 6),
        DataType("inet_proto", 12, 1),
        DataType("inet_service", 13, 2),
        DataType("mark", 19, 4, host_order=True),
        DataType("ifname", 41, 16),
    )
}

ByteOrder = Literal["=", "<", ">"]
"""The order of a number's bytes: this machine's, little-endian (amd64, arm64), big-endian (s390x)."""

_IPV4_RANGE: Final = struct.Struct(">II")

PROTOCOLS: Final = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
_PROTOCOL_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}


def address(value: IPAddress) -> bytes:
    """Give the field of type ``ipv4_addr`` or ``ipv6_addr``."""
    return value.packed


def port(number: int) -> bytes:
    """Give the field of type ``inet_service``: a port, 0 to 65535."""
    return number.to_bytes(2, "big")


def protocol(name: str) -> bytes:
    """Give the field of type ``inet_proto`` for ``tcp``, ``udp``, ``sctp``, ``icmp`` or ``icmpv6``."""
    return bytes((PROTOCOLS[name],))


@lru_cache(maxsize=1 << 12)
def host_words(*numbers: int, order: ByteOrder = "=") -> bytes:
    """Give numbers as registers hold them: marks, bit fields, types of addresses, draws; 4 bytes each.

    The kernel calculates with these, so they are in the machine's own order. Addresses and ports come from packets, in
    network order on every machine. The same few numbers are asked for again and again.
    """
    return struct.pack(f"{order}{len(numbers)}I", *numbers)


def host_word(data: bytes, *, order: ByteOrder = "=") -> int:
    """Read one such number."""
    (number,) = struct.unpack(f"{order}I", data)
    return int(number)


def concatenation(*fields: bytes) -> bytes:
    """Give the key or data of several fields (``ipv4_addr . inet_proto . inet_service``), each padded to 4 bytes."""
    return b"".join(field + bytes(-len(field) % 4) for field in fields)


@overload
def interval(first: IPNetwork) -> Element: ...
@overload
def interval(first: IPAddress, last: IPAddress) -> Element: ...
def interval(first: IPNetwork | IPAddress, last: IPAddress | None = None) -> Element:
    """Give the key of an interval set: a network, or all addresses from ``first`` to ``last``, both included."""
    if isinstance(first, IPv4Address | IPv6Address):
        if last is None or last.version != first.version or last.packed < first.packed:
            raise ValueError(f"an interval from {first} needs a last address of its family at or after it, got {last}")
        return first.packed + last.packed
    return first.network_address.packed + first.broadcast_address.packed


def address_interval(family: Family, first: int, last: int) -> Element:
    """Give the same as ``interval`` for addresses as integers."""
    size = 4 if family == "ip" else 16
    return first.to_bytes(size, "big") + last.to_bytes(size, "big")


def key_size(types: Sequence[str]) -> int:
    """Give the number of bytes of a value of these types, once: an interval's key is twice as long."""
    if len(types) == 1:
        return TYPES[types[0]].size
    return sum((TYPES[name].size + 3) // 4 * 4 for name in types)


def _field_text(kind: DataType, value: bytes) -> str:
    match kind.name:
        case "ipv4_addr":
            return "%d.%d.%d.%d" % (*value,)  # noqa: UP031 - IPv4Address costs five times as much, felt at 10,000
        case "ipv6_addr":
            return str(IPv6Address(value))
        case "ether_addr":
            return value.hex(":")
        case "inet_proto":
            return _PROTOCOL_NAMES.get(value[0], str(value[0]))
        case "inet_service":
            return str(int.from_bytes(value, "big"))
        case "mark":
            return f"0x{host_word(value):08x}"
        case _:
            name = value.rstrip(b"\0").decode()
            if '"' in name or not name.isprintable():
                raise ValueError(f"{name!r} cannot stand in nft's quotes as the name of an interface")
            return f'"{name}"'


def _fields(kinds: Sequence[DataType], value: bytes) -> list[bytes]:
    fields, offset = [], 0
    for kind in kinds:
        fields.append(value[offset : offset + kind.size])
        offset += (kind.size + 3) // 4 * 4
    return fields


def _range_text(kind: DataType, first: bytes, last: bytes) -> str:
    if first == last:
        return _field_text(kind, first)
    if kind.has_prefixes:
        low, high = int.from_bytes(first, "big"), int.from_bytes(last, "big")
        size = high - low + 1
        if size & (size - 1) == 0 and low & (size - 1) == 0:
            return f"{_field_text(kind, first)}/{kind.size * 8 + 1 - size.bit_length()}"
    return f"{_field_text(kind, first)}-{_field_text(kind, last)}"


def key_text(types: Sequence[str], key: Element, *, is_interval: bool) -> str:
    """Show a key as nft reads it: ``10.0.0.0/8``, ``10.0.0.1-10.0.0.5``, ``10.0.0.1 . tcp . 80``, ``*`` for any."""
    if not key:
        return "*"
    half = len(key) // 2
    if len(types) == 1:
        kind = TYPES[types[0]]
        return _range_text(kind, key[:half], key[half:]) if is_interval else _field_text(kind, key)
    kinds = [TYPES[name] for name in types]
    if not is_interval:
        return " . ".join(map(_field_text, kinds, _fields(kinds, key)))
    return " . ".join(map(_range_text, kinds, _fields(kinds, key[:half]), _fields(kinds, key[half:])))


def key_texts(types: Sequence[str], keys: Sequence[Element], *, is_interval: bool) -> list[str]:
    """Show many keys; the same as ``key_text`` of each, and four times as fast where it is felt."""
    if is_interval and tuple(types) == ("ipv4_addr",) and all(keys):
        return [_ipv4_range_text(low, high) for low, high in _IPV4_RANGE.iter_unpack(b"".join(keys))]
    return [key_text(types, key, is_interval=is_interval) for key in keys]


def _ipv4_range_text(low: int, high: int) -> str:
    first = f"{low >> 24}.{low >> 16 & 255}.{low >> 8 & 255}.{low & 255}"
    if low == high:
        return first
    size = high - low + 1
    if size & (size - 1) or low & (size - 1):
        return f"{first}-{high >> 24}.{high >> 16 & 255}.{high >> 8 & 255}.{high & 255}"
    return f"{first}/{33 - size.bit_length()}"


def data_text(types: Sequence[str], data: Data) -> str:
    """Show what an element maps to as nft reads it; a verdict is its own text."""
    return data if isinstance(data, str) else key_text(types, data, is_interval=False)
