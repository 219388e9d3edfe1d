"""target: a raw request-target to a path and a query that can be read in one way only. Pure.

Here: the spellings that are refused under every policy, and the one spelling that goes upstream. Not here: which paths
are concealed (filter.py, profiles.py), what metadata-proxy would have answered (v0112.py).
Invariant: ``RequestTarget.raw`` is a function of the checked path and pairs alone; its path holds no percent sign, no
empty, ``.`` or ``..`` segment, no backslash and no semicolon, so that decoding or cleaning it again changes nothing.
"""

from typing import Final, NamedTuple

from podgate.features.metadata.verdict import Reason
from podgate.model.frozen import Frozen

MAX_PARAMETERS: Final = 32
"""More parameters than the metadata servers know of together."""
MAX_SEGMENTS: Final = 32

_UNRESERVED: Final = b"-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_IN_PATH: Final = _UNRESERVED + b"/!$&'()*+,=:@"
"""What a decoded path may hold: pchar of RFC 3986 without ``;``, and the separator.

All of it is sent as it is: GCE's server does not take ``%40`` and the like for the character.
"""
_LITERAL: Final = _UNRESERVED + b"@"
"""What of a query is sent as it is; all else is sent as ``%XX``, as google-auth and the other clients do it."""
_ESCAPED: Final = tuple(
    chr(byte) if byte in _LITERAL else f"%{byte:02X}" for byte in range(0x80)
)  # of each ASCII character
_HEX: Final = {
    f"{a}{b}".encode(): int(f"{a}{b}", 16) for a in "0123456789abcdefABCDEF" for b in "0123456789abcdefABCDEF"
}

Pairs = tuple[tuple[str, str | None], ...]
"""Decoded keys and values in their order; None for a key without ``=``."""


class RequestTarget(Frozen, frozen=True, gc=False):
    """A target that was understood.

    Attributes:
        path: decoded; begins with a slash, and may end with one.
        pairs: the query, decoded.
        raw: what to send upstream, in origin-form.
        host: the authority of an absolute form as written; empty for the origin form.
    """

    path: str
    pairs: Pairs
    raw: bytes
    host: bytes = b""


class Odd(NamedTuple):
    """A target that is refused whatever the policy says: the code of its first oddity, and the words for it."""

    reason: Reason
    what: str


def read_target(raw: bytes) -> RequestTarget | Odd:
    """Read a request-target in origin-form or absolute-form (RFC 9112 section 3.2)."""
    host = b""
    if raw[:1] != b"/":
        split = _absolute(raw)
        if isinstance(split, Odd):
            return split
        host, raw = split
    path, question, query = raw.partition(b"?")
    clean = path if not path.translate(None, _IN_PATH) else _decoded_path(path)
    if isinstance(clean, Odd):
        return clean
    odd = _shape(clean)
    if odd is not None:
        return odd
    if not query:
        return RequestTarget(clean.decode("ascii"), (), clean, host)
    pairs = _pairs(query)
    if isinstance(pairs, Odd):
        return pairs
    text = encoded(pairs).encode("ascii")
    return RequestTarget(clean.decode("ascii"), pairs, clean + question + text if text else clean, host)


def _absolute(raw: bytes) -> tuple[bytes, bytes] | Odd:
    """Split ``http://HOST/…``; a form of another scheme, with user information or without authority is opaque."""
    if raw[:7].lower() != b"http://":
        return Odd("OpaqueTarget", "the target is neither a path nor http://HOST/PATH")
    end = min((at for at in (raw.find(b"/", 7), raw.find(b"?", 7)) if at >= 0), default=len(raw))
    host, rest = raw[7:end], raw[end:]
    if not host or host.translate(None, _UNRESERVED + b":[]"):
        return Odd("OpaqueTarget", "the target has no plain host")
    return host, rest if rest[:1] == b"/" else b"/" + rest


def _decoded_path(path: bytes) -> bytes | Odd:
    """Decode a path that holds something out of the ordinary."""
    decoded = _decoded(path)
    if isinstance(decoded, Odd):
        return decoded
    if b"%" in path:
        if decoded.count(b"/") != path.count(b"/"):
            return Odd("EncodedSeparator", "a slash of the path is percent-encoded")
        if b"%" in decoded:
            return Odd("DoubleEncoding", "the path is percent-encoded twice")
    return _forbidden(decoded, _IN_PATH) or decoded


def _forbidden(text: bytes, allowed: bytes) -> Odd | None:
    """Say which byte of a decoded text may not be there."""
    rest = text.translate(None, allowed)
    if not rest:
        return None
    byte = rest[0]
    for bad, odd in _BAD.items():
        if bad in rest:
            return odd
    if any(each < 0x20 or each == 0x7F for each in rest):
        return Odd("ControlByte", "a control character")
    if any(each >= 0x80 for each in rest):
        return Odd("NonAscii", "a byte outside ASCII")
    return Odd("ForbiddenCharacter", f"the character {chr(byte)!r}")


_BAD: Final = {
    b"\\": Odd("Backslash", "a backslash"),
    b";": Odd("Semicolon", "a semicolon, which some take for a separator"),
}


def _shape(path: bytes) -> Odd | None:
    """Refuse a decoded path whose segments another parser might drop, join or trim."""
    if b"//" in path:
        return Odd("DoubledSlash", "an empty segment in the path")
    if b"./" in path or path[-1:] == b".":
        last = [segment for segment in path.split(b"/") if segment[-1:] == b"."]
        if any(segment in (b".", b"..") for segment in last):
            return Odd("DotSegment", "a dot segment in the path")
        return Odd("TrailingDot", "a segment of the path ends in a dot")
    if b"+" in path and (b"/+" in path or b"+/" in path or path[-1:] == b"+"):
        return Odd("OuterBlank", "a segment of the path begins or ends with +, which some take for a blank")
    if path.count(b"/") > MAX_SEGMENTS:
        return Odd("TooLong", f"more than {MAX_SEGMENTS} segments in the path")
    return None


def _decoded(text: bytes) -> bytes | Odd:
    """Decode ``%XX`` once; every percent sign must begin one."""
    if b"%" not in text:
        return text
    first, *rest = text.split(b"%")
    parts = [first]
    for part in rest:
        byte = _HEX.get(part[:2])
        if byte is None:
            return Odd("BadEncoding", "a percent sign without two hexadecimal digits after it")
        parts += (bytes((byte,)), part[2:])
    return b"".join(parts)


def _pairs(query: bytes) -> Pairs | Odd:
    """Read a query as forms are read: ``&`` separates, ``+`` is a blank (HTML, application/x-www-form-urlencoded)."""
    if query.count(b"&") >= MAX_PARAMETERS:
        return Odd("TooManyParameters", f"more than {MAX_PARAMETERS} query parameters")
    odd = _forbidden(query, _IN_QUERY)
    if odd is not None:
        return odd
    pairs: list[tuple[str, str | None]] = []
    for part in query.split(b"&"):
        if not part:
            continue
        key, equals, value = part.partition(b"=")
        decoded_key, decoded_value = form(key), form(value)
        if isinstance(decoded_key, Odd):
            return decoded_key
        if isinstance(decoded_value, Odd):
            return decoded_value
        pairs.append((decoded_key, decoded_value if equals else None))
    return tuple(pairs)


_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_IN_QUERY: Final = bytes(byte for byte in _PRINTABLE if byte not in b" #;\\")


def form(text: bytes) -> str | Odd:
    """Decode a key or a value once, to printable ASCII."""
    decoded = _decoded(text.replace(b"+", b" ") if b"+" in text else text)
    if isinstance(decoded, Odd):
        return decoded
    odd = _forbidden(decoded, _PRINTABLE) if decoded is not text else None
    return odd or decoded.decode("ascii")


def encoded(pairs: Pairs) -> str:
    """Write a query: each pair in the one spelling that its decoded form has."""
    return "&".join(_escaped(key) if value is None else f"{_escaped(key)}={_escaped(value)}" for key, value in pairs)


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return "".join([_ESCAPED[ord(character)] for character in text])
