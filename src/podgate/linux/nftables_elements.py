"""Elements of nf_tables sets and maps over netlink: as the kernel lists them, and as it takes them.

Here: the kernel's element messages as keys and data. Not here: transactions (nftables_batch.py); tables, chains and set
declarations (nftables.py); what a set should hold.
Invariant: an element's key and data are what the kernel keeps in its registers; the key of an interval is its first
value followed by its last, both included, however the kernel splits it.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from podgate.linux.netlink import (
    NLA_F_NESTED,
    Connection,
    NetlinkError,
    attribute,
    attribute_list,
    attributes,
    nested,
    string,
    text,
    uint32,
)
from podgate.linux.nftables import GET_ELEMENTS, NAME, TABLE, be32, family_header

_ELEMENT_END, _ELEMENT_CATCH_ALL = 1, 2
_LIST: Final = 3
_KEY, _DATA, _FLAGS, _KEY_END = 1, 2, 3, 10
_VALUE, _VERDICT = 1, 2

_VERDICTS: Final = {0: "drop", 1: "accept", -1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return"}
_VERDICT_CODES: Final = {name: code for code, name in _VERDICTS.items()}

_LIST_BYTES: Final = 60_000
"""Where one list of elements is split: an attribute's length has 16 bits."""


class SetShape(NamedTuple):
    """What is needed to encode or decode a set's elements.

    Attributes:
        key_bytes: the size of a key, of one bound of an interval.
        data_bytes: the size of a map's data; 0 for a set, and for verdicts.
    """

    key_bytes: int
    is_interval: bool = False
    is_concatenation: bool = False
    data_bytes: int = 0

    @property
    def is_split(self) -> bool:
        """Whether the kernel keeps an interval as two elements, its first value and the one after its last."""
        return self.is_interval and not self.is_concatenation


def list_elements(
    connection: Connection, family: int, table: str, name: str, shape: SetShape
) -> Iterator[tuple[bytes, bytes | str]]:
    """Give the elements of a set as (key, data); a plain set's data are ``b""``, the catch-all element's key too."""
    body = family_header(family) + text(TABLE, table) + text(NAME, name)
    return decode_elements((message.body for message in connection.dump(GET_ELEMENTS, body)), shape)


def has_element(connection: Connection, family: int, table: str, name: str, key: bytes) -> bool:
    """Say whether a set or map without intervals has a key; also no where there is no such table or set."""
    (wanted,) = element_lists([(key, b"")], SetShape(len(key)))
    body = family_header(family) + text(TABLE, table) + text(NAME, name) + wanted
    try:
        return bool(connection.request(GET_ELEMENTS, body, 0))
    except NetlinkError as problem:
        if problem.errno == errno.ENOENT:
            return False
        raise


def _data_of(value: bytes) -> bytes | str:
    found = attributes(value)
    if _VALUE in found:
        return found[_VALUE]
    verdict = attributes(found[_VERDICT])
    (code,) = struct.unpack(">i", verdict[1])
    word = _VERDICTS.get(code, str(code))
    return f"{word} {string(verdict[2])}" if 2 in verdict else word


def decode_elements(bodies: Iterable[bytes], shape: SetShape) -> Iterator[tuple[bytes, bytes | str]]:
    """Read element messages (NEW_ELEMENTS bodies), joining what the kernel lists as two ends of an interval."""
    if not shape.is_interval:
        return _decode_single(bodies, shape)
    return _decode_intervals(bodies, shape)


def _lists(bodies: Iterable[bytes]) -> Iterator[bytes]:
    for body in bodies:
        for kind, listed in attribute_list(body, 4):
            if kind == _LIST:
                yield listed


def _decode_single(bodies: Iterable[bytes], shape: SetShape) -> Iterator[tuple[bytes, bytes | str]]:
    for listed in _lists(bodies):
        alike = _decode_alike(listed, shape)
        if alike is not None:
            yield from alike
            continue
        for _, value in attribute_list(listed):
            key, _, data = _whole_element(value)
            yield key, data


def _decode_alike(listed: bytes, shape: SetShape) -> list[tuple[bytes, bytes | str]] | None:
    """Read elements that are laid out alike, byte for byte, as those of a map without timeouts; None if one is not."""
    size, data_size = shape.key_bytes, shape.data_bytes
    layout = f"12s{size}s{-size % 4}x" + (f"8s{data_size}s{-data_size % 4}x" if data_size else "0s0s")
    record = struct.Struct(layout)
    if not listed or len(listed) % record.size:
        return None
    head, key, between, data = record.unpack_from(listed)
    _, first = next(attribute_list(listed))
    if len(first) != record.size - 4 or _whole_element(first) != (key, True, data):
        return None
    rows = list(record.iter_unpack(listed))
    alike = [(key, data) for start, key, middle, data in rows if start == head and middle == between]
    return alike if len(alike) == len(rows) else None


def _decode_intervals(bodies: Iterable[bytes], shape: SetShape) -> Iterator[tuple[bytes, bytes | str]]:
    size = shape.key_bytes
    bounds: list[tuple[bytes, bool, bytes | str]] = []
    # An element: its header and the key's two headers (12 bytes), the key, then maybe data, flags and more.
    plain = 12 + size + -size % 4
    with_flags = plain + 8
    flags_header = struct.pack("=HH", 8, _FLAGS)
    for listed in _lists(bodies):
        offset, end = 0, len(listed)
        while offset + 4 <= end:
            length = listed[offset] | listed[offset + 1] << 8
            key = listed[offset + 12 : offset + 12 + size]
            if length == plain:
                bounds.append((key, True, b""))
            elif length == with_flags and listed[offset + plain : offset + plain + 4] == flags_header:
                bounds.append((key, not listed[offset + plain + 7] & _ELEMENT_END, b""))
            else:
                bounds.append(_whole_element(listed[offset + 4 : offset + length]))
            offset += (length + 3) & ~3
    if not shape.is_split:
        return ((key, data) for key, _, data in bounds)
    return _joined(bounds, size)


def _whole_element(value: bytes) -> tuple[bytes, bool, bytes | str]:
    """Read an element in full; gives its key, whether it starts an interval, and its data."""
    found = attributes(value)
    flags = be32(found.get(_FLAGS, b""))
    data = _data_of(found[_DATA]) if _DATA in found else b""
    if flags & _ELEMENT_CATCH_ALL:
        return b"", True, data
    key = attributes(found[_KEY])[_VALUE]
    if _KEY_END in found:
        key += attributes(found[_KEY_END])[_VALUE]
    return key, not flags & _ELEMENT_END, data


def _joined(bounds: list[tuple[bytes, bool, bytes | str]], size: int) -> Iterator[tuple[bytes, bytes | str]]:
    """Join starts and exclusive ends to intervals. Sorted, an end comes before a start at the same value."""
    bounds.sort(key=lambda bound: bound[:2])
    start: tuple[bytes, bytes | str] | None = None
    for key, is_start, data in bounds:
        if not key:
            yield key, data
            continue
        if start is not None:
            last = (int.from_bytes(key, "big") - 1).to_bytes(size, "big")
            yield start[0] + last, start[1]
        start = (key, data) if is_start else None
    if start is not None:
        yield start[0] + b"\xff" * size, start[1]


def data_value(data: bytes) -> bytes:
    """Give the attribute of a value in a register (NFTA_DATA_VALUE)."""
    return attribute(_VALUE, data)


def verdict_value(verdict: str) -> bytes:
    """Give the attribute of a verdict (NFTA_DATA_VERDICT): ``drop``, ``goto NAME``. Raises ValueError if it is none."""
    word, _, chain = verdict.partition(" ")
    if word not in _VERDICT_CODES or bool(chain) != (word in ("jump", "goto")):
        raise ValueError(f"{verdict!r} is not a verdict: write drop, or goto NAME")
    return nested(_VERDICT, attribute(1, struct.pack(">i", _VERDICT_CODES[word])), text(2, chain) if chain else b"")


def _data_attribute(data: bytes | str) -> bytes:
    if isinstance(data, bytes):
        return nested(_DATA, data_value(data)) if data else b""
    return nested(_DATA, verdict_value(data))


def element_lists(elements: Sequence[tuple[bytes, bytes | str]], shape: SetShape) -> Iterator[bytes]:
    """Give the elements as lists that each fit into one message, in their order."""
    if elements and not shape.is_interval:
        alike = _encode_alike(elements, shape)
        if alike is not None:
            yield from alike
            return
    chunk: list[bytes] = []
    size = 0
    for encoded in encode_elements(elements, shape):
        if size + len(encoded) > _LIST_BYTES:
            yield nested(_LIST, *chunk)
            chunk, size = [], 0
        chunk.append(encoded)
        size += len(encoded)
    if chunk:
        yield nested(_LIST, *chunk)


def _encode_alike(elements: Sequence[tuple[bytes, bytes | str]], shape: SetShape) -> list[bytes] | None:
    """Give the lists of elements whose keys and data have one size each, where that is felt; None for others."""
    keys, data = zip(*elements, strict=True)
    size, data_size = shape.key_bytes, len(data[0])
    if set(map(type, data)) != {bytes} or set(map(len, keys)) != {size} or set(map(len, data)) != {data_size}:
        return None
    layout = _data_attribute(bytes(data_size))
    between = bytes(-size % 4) + layout[:8]
    length = 12 + size + -size % 4 + len(layout)
    head = struct.pack("=HHHHHH", length, 1 | NLA_F_NESTED, 8 + size, _KEY | NLA_F_NESTED, 4 + size, _VALUE)
    after = bytes(-data_size % 4) + head  # the end of one element and the begin of the next
    each = _LIST_BYTES // length
    lists = []
    for start in range(0, len(elements), each):
        part = elements[start : start + each]
        pieces: list[Any] = [piece for key, value in part for piece in (key, between, value, after)]
        pieces[-1] = after[: -len(head)]
        lists.append(nested(_LIST, head, *pieces))
    return lists


def encode_elements(elements: Iterable[tuple[bytes, bytes | str]], shape: SetShape) -> Iterator[bytes]:
    """Give each element's attributes; an interval's two ends stay together, so that a message never parts them."""
    size = shape.key_bytes
    key_header = struct.pack("=HHHH", 8 + size, _KEY | NLA_F_NESTED, 4 + size, _VALUE)
    padding = bytes(-size % 4)
    end_flags = uint32(_FLAGS, _ELEMENT_END)
    plain = struct.pack("=HH", 12 + size + len(padding), 1 | NLA_F_NESTED) + key_header
    end_header = struct.pack("=HH", 20 + size + len(padding), 1 | NLA_F_NESTED) + end_flags + key_header
    whole = 2 * size if shape.is_interval else size
    for key, data in elements:
        if not key:
            flags = uint32(_FLAGS, _ELEMENT_CATCH_ALL)
            yield nested(1, flags, _data_attribute(data))
            continue
        if len(key) != whole:
            yield nested(1, nested(_KEY, attribute(_VALUE, key)), _data_attribute(data))  # the kernel will name it
            continue
        first = key[:size]
        if shape.is_concatenation and shape.is_interval:
            key_end = nested(_KEY_END, attribute(_VALUE, key[size:]))
            yield nested(1, key_header + first + padding, key_end, _data_attribute(data))
            continue
        start = nested(1, key_header + first + padding, _data_attribute(data)) if data else plain + first + padding
        if not shape.is_split:
            yield start
            continue
        after = int.from_bytes(key[size:], "big") + 1
        if after >> (size * 8):
            yield start  # nothing comes after: the interval is open, as nft writes it
        else:
            yield start + end_header + after.to_bytes(size, "big") + padding


def element_at(body: bytes, offset: int) -> bytes | None:
    """Give the key of the element whose attribute begins at a byte of a message's body; None if none does.

    Of an interval that the kernel keeps as two elements it is one bound.
    """
    try:
        kind, value = next(attribute_list(body, offset), (0, b""))
        return _whole_element(value)[0] if kind == 1 else None
    except (ValueError, KeyError):
        return None
