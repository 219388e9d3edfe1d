"""Elements of nf_tables sets and maps over netlink: listing them, and changing them in one transaction.

Here: the kernel's element messages as keys and data, and the batch. Not here: tables, chains and set declarations
(nftables.py); what a set should hold.
Invariant: an element's key and data are what the kernel keeps in its registers; the key of an interval is its first
value followed by its last, both included, however the kernel splits it.
"""

import errno
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from podgate.linux.netlink import (
    NLA_F_NESTED,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_REQUEST,
    Connection,
    NetlinkError,
    attribute,
    attribute_list,
    attributes,
    frame,
    nested,
    string,
    text,
)
from podgate.linux.nftables import DEL_ELEMENTS, GET_ELEMENTS, NAME, NEW_ELEMENTS, TABLE, batch, be32, family_header

_ELEMENT_END, _ELEMENT_CATCH_ALL = 1, 2
_KEY, _DATA, _FLAGS, _KEY_END = 1, 2, 3, 10
_VALUE, _VERDICT = 1, 2

_VERDICTS: Final = {0: "drop", 1: "accept", -1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return"}
_VERDICT_CODES: Final = {name: code for code, name in _VERDICTS.items()}

_MESSAGE_BYTES: Final = 60_000
"""Where one list of elements is split: an attribute's length has 16 bits."""


class Shape(NamedTuple):
    """What is needed to encode or decode a set's elements; ``key_bytes`` is the size of one bound of an interval."""

    key_bytes: int
    is_interval: bool = False
    is_concatenation: bool = False


def list_elements(
    connection: Connection, family: int, table: str, name: str, shape: Shape
) -> Iterator[tuple[bytes, bytes | str]]:
    """Give the elements of a set as (key, data); a plain set's data are ``b""``, the catch-all element's key too."""
    body = family_header(family) + text(TABLE, table) + text(NAME, name)
    return decode_elements((message.body for message in connection.dump(GET_ELEMENTS, body)), shape)


def _data_of(value: bytes) -> bytes | str:
    found = attributes(value)
    if _VALUE in found:
        return found[_VALUE]
    verdict = attributes(found[_VERDICT])
    (code,) = struct.unpack(">i", verdict[1])
    word = _VERDICTS.get(code, str(code))
    return f"{word} {string(verdict[2])}" if 2 in verdict else word


def decode_elements(bodies: Iterable[bytes], shape: Shape) -> Iterator[tuple[bytes, bytes | str]]:
    """Read element messages (NEW_ELEMENTS bodies), joining what the kernel lists as two ends of an interval."""
    size = shape.key_bytes
    split = shape.is_interval and not shape.is_concatenation
    bounds: list[tuple[bytes, bool, bytes | str]] = []
    # An element: its header and the key's two headers (12 bytes), the key, then maybe data, flags and more.
    plain = 12 + size + -size % 4
    with_flags = plain + 8
    flags_header = struct.pack("=HH", 8, _FLAGS)
    for body in bodies:
        for kind, listed in attribute_list(body, 4):
            if kind != 3:
                continue
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
    if not split:
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


def _data_attribute(data: bytes | str) -> bytes:
    if isinstance(data, bytes):
        return nested(_DATA, attribute(_VALUE, data)) if data else b""
    word, _, chain = data.partition(" ")
    verdict = attribute(1, struct.pack(">i", _VERDICT_CODES[word])) + (text(2, chain) if chain else b"")
    return nested(_DATA, nested(_VERDICT, verdict))


def encode_elements(elements: Iterable[tuple[bytes, bytes | str]], shape: Shape) -> Iterator[bytes]:
    """Give each element's attributes; an interval's two ends stay together, so that a message never parts them."""
    size = shape.key_bytes
    split = shape.is_interval and not shape.is_concatenation
    key_header = struct.pack("=HHHH", 8 + size, _KEY | NLA_F_NESTED, 4 + size, _VALUE)
    padding = bytes(-size % 4)
    end_flags = attribute(_FLAGS, struct.pack(">I", _ELEMENT_END))
    plain = struct.pack("=HH", 12 + size + len(padding), 1 | NLA_F_NESTED) + key_header
    end_header = struct.pack("=HH", 20 + size + len(padding), 1 | NLA_F_NESTED) + end_flags + key_header
    for key, data in elements:
        if not key:
            flags = attribute(_FLAGS, struct.pack(">I", _ELEMENT_CATCH_ALL))
            yield nested(1, flags, _data_attribute(data))
            continue
        first = key[:size]
        if shape.is_concatenation and shape.is_interval:
            key_end = nested(_KEY_END, attribute(_VALUE, key[size:]))
            yield nested(1, key_header + first + padding, key_end, _data_attribute(data))
            continue
        start = nested(1, key_header + first + padding, _data_attribute(data)) if data else plain + first + padding
        if not split:
            yield start
            continue
        after = int.from_bytes(key[size:], "big") + 1
        if after >> (size * 8):
            yield start  # nothing comes after: the interval is open, as nft writes it
        else:
            yield start + end_header + after.to_bytes(size, "big") + padding


class Batch:
    """Changes of elements that the kernel makes in one transaction, or not at all."""

    def __init__(self, connection: Connection, family: int) -> None:
        self._connection = connection
        self._family = family
        self._messages: list[tuple[int, int, bytes]] = []

    def add(self, table: str, name: str, elements: Iterable[tuple[bytes, bytes | str]], shape: Shape) -> None:
        """Add elements, sorted by key: the kernel wants an interval without an end to be the last of a message."""
        self._fill(NEW_ELEMENTS, NLM_F_CREATE, text(TABLE, table) + text(NAME, name), elements, shape)

    def delete(self, table: str, name: str, keys: Iterable[bytes], shape: Shape) -> None:
        """Delete elements by their keys, sorted."""
        self._fill(DEL_ELEMENTS, 0, text(TABLE, table) + text(NAME, name), ((key, b"") for key in keys), shape)

    def _fill(
        self, kind: int, flags: int, head: bytes, elements: Iterable[tuple[bytes, bytes | str]], shape: Shape
    ) -> None:
        start = family_header(self._family) + head
        chunk: list[bytes] = []
        size = 0
        for encoded in encode_elements(elements, shape):
            if size + len(encoded) > _MESSAGE_BYTES:
                self._messages.append((kind, flags, start + nested(3, *chunk)))
                chunk, size = [], 0
            chunk.append(encoded)
            size += len(encoded)
        if chunk:
            self._messages.append((kind, flags, start + nested(3, *chunk)))

    def commit(self) -> None:
        """Send it; raises NetlinkError, and then nothing was changed. An empty batch does nothing."""
        if not self._messages:
            return
        frames = []
        for number, (kind, flags, message) in enumerate(self._messages, 1):
            # Refused messages are always reported; the last one's acknowledgement comes after the commit.
            answer = NLM_F_ACK if number == len(self._messages) else 0
            frames.append(frame(kind, NLM_F_REQUEST | flags | answer, self._connection.next_sequence(), message))
        results = self._connection.send_all(batch(self._connection, frames))
        for failure in results:
            if failure:
                raise failure
        if not results:
            raise NetlinkError(errno.EPROTO, "the kernel did not acknowledge the transaction")
