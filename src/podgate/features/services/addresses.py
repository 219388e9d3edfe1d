"""addresses: the API's texts of addresses and ranges as packed bytes, and back.

Here: reading and showing, addresses that are nobody's. Not here: which address means what (ports.py, slices.py).
Invariant: what is read is in network order, 4 or 16 bytes, so that bytes compare as addresses do; nothing raises on any
text.

Old objects may hold IPv4 addresses with leading zeros, or written as IPv6, which the API no longer takes. kube-proxy
reads the former as decimal numbers and the latter as IPv4 (KEP-4858), and so does this.
"""

import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from podgate.model.machine import Family

Span = tuple[bytes, bytes]
"""The first and the last address of a range, packed."""

_IPV4: Final = re.compile(r"[0-9]+(\.[0-9]+){3}", re.ASCII)
_OCTETS: Final = {str(number): number for number in range(256)}
"""The only texts of an IPv4 address's parts; int() would also read "01", "1_0" and digits of other scripts."""

_CIDR: Final = re.compile(r"([^/]+)/([0-9]{1,3})", re.ASCII)


def canonical(text: str) -> bytes | None:
    """Read an address as the API takes it today; None for any other text, a zone (``%eth0``), IPv4 inside IPv6."""
    try:
        octets = bytes([_OCTETS[part] for part in text.split(".")])
    except KeyError:
        return _ipv6(text)
    return octets if len(octets) == 4 else None


def packed(text: str) -> bytes | None:
    """Read an address, also IPv4 with leading zeros, or inside IPv6 (``::ffff:192.0.2.1``)."""
    address = _with_zeros(text)
    return _mapped(text) if address is None else address


def _with_zeros(text: str) -> bytes | None:
    address = canonical(text)
    if address is None and has_leading_zeros(text):
        return canonical(".".join(part.lstrip("0") or "0" for part in text.split(".")))
    return address


def _mapped(text: str) -> bytes | None:
    try:
        inside = IPv6Address(text).ipv4_mapped
    except AddressValueError:
        return None
    return None if inside is None else inside.packed


def oddity(text: str) -> tuple[str, str]:
    """Give a reason and a message for an address that ``packed`` reads and ``canonical`` does not."""
    if has_leading_zeros(text):
        return "LeadingZeros", f"{text} has leading zeros, and is read as decimal numbers: write it without them"
    address = packed(text)
    shown = "" if address is None else address_text(address)
    return "MappedAddress", f"{text} is an IPv4 address inside an IPv6 one, and is read as {shown}: write that"


def has_leading_zeros(text: str) -> bool:
    """Say whether a text is an IPv4 address whose numbers begin with needless zeros."""
    return _IPV4.fullmatch(text) is not None and re.search(r"(^|\.)0[0-9]", text) is not None


def _ipv6(text: str) -> bytes | None:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return None
    return None if address.ipv4_mapped is not None or address.scope_id else address.packed


def family_of(address: bytes) -> Family:
    """Give the family of a packed address."""
    return "ip" if len(address) == 4 else "ip6"


def span(text: str) -> Span | None:
    """Read ``10.0.0.0/8``; host bits are cleared, as kube-proxy does. None for a text that is no range."""
    found = _CIDR.fullmatch(text)
    first = None if found is None else _with_zeros(found[1])
    if found is None or first is None:
        return None
    bits, length = len(first) * 8, int(found[2])
    if length > bits:
        return None
    mask = (1 << (bits - length)) - 1
    low = int.from_bytes(first) & ~mask
    return low.to_bytes(len(first)), (low | mask).to_bytes(len(first))


def range_text(text: str) -> str | None:
    """Give a range in its own form, without host bits or leading zeros; None for a text that is no range."""
    given = span(text)
    return None if given is None else f"{address_text(given[0])}/{int(text.rpartition('/')[2])}"


def within(address: bytes, spans: tuple[Span, ...]) -> bool:
    """Say whether an address lies in one of some ranges; one of the other family never does."""
    return any(len(first) == len(address) and first <= address <= last for first, last in spans)


_SPECIAL: Final[Mapping[str, tuple[str, ...]]] = {
    "the address of nobody": ("0.0.0.0/32", "::/128"),
    "a loopback address": ("127.0.0.0/8", "::1/128"),
    "a link-local address": ("169.254.0.0/16", "224.0.0.0/24", "fe80::/10", "ff02::/16"),
}
"""What an API server takes neither as an endpoint's address nor as an external IP."""

_SPECIAL_SPANS: Final = {
    kind: tuple(given for text in texts if (given := span(text)) is not None) for kind, texts in _SPECIAL.items()
}
SUSPECT: Final[Mapping[int, frozenset[int]]] = {4: frozenset({0, 127, 169, 224}), 16: frozenset({0, 0xFE, 0xFF})}
"""How addresses begin that ``special`` may name, by their length: most need no closer look."""


def special(address: bytes) -> str:
    """Say what an address is that nobody else can send to; empty for any other."""
    if address[0] not in SUSPECT[len(address)]:
        return ""
    return next((kind for kind, spans in _SPECIAL_SPANS.items() if within(address, spans)), "")


def merged(spans: list[Span]) -> tuple[Span, ...]:
    """Give the same addresses of one family as the fewest ranges: sorted, disjoint, none next to another."""
    result: list[Span] = []
    for first, last in sorted(spans):
        if result and int.from_bytes(first) <= int.from_bytes(result[-1][1]) + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def address_text(address: bytes) -> str:
    """Show a packed address."""
    return str(IPv4Address(address)) if len(address) == 4 else str(IPv6Address(address))


def endpoint_text(endpoint: bytes) -> str:
    """Show an address that a port of 2 bytes follows: ``10.244.1.2:8080``, ``[fd00::2]:8080``."""
    return with_port(endpoint[:-2], int.from_bytes(endpoint[-2:]))


def with_port(address: bytes, port: int) -> str:
    """Show an address and a port."""
    text = address_text(address)
    return f"{text}:{port}" if len(address) == 4 else f"[{text}]:{port}"
