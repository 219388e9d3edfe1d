"""v0112: what metadata-proxy v0.1.12 answered to a target that it refused. Pure.

Here: its order of checks, its messages and its reading of a target (Go's net/url and path.Clean), so that a target that
is refused for its spelling gets the answer that it always got. Not here: what is let through; this only ever refuses.
Invariant: None means that the old program forwarded it, or could not say; the caller refuses in both cases.
"""

import re
from typing import Final, NamedTuple

from podgate.features.metadata.verdict import Reason

CONCEALED: Final = "This metadata endpoint is concealed"
RECURSIVE: Final = "This metadata endpoint is concealed for ?recursive calls"
NOT_ALLOWED: Final = "This metadata API is not allowed by the metadata proxy"
UNSAFE: Final = "Metadata proxy could not safely parse request"
FORWARDED_FOR: Final = "Calls with X-Forwarded-For header are not allowed by the metadata proxy"

QUERY_KEYS: Final = (
    *("recursive", "alt", "wait_for_change", "timeout_sec", "last_etag", "service_account", "scope", "scopes"),
    *("audience", "licenses", "format"),
)
_BASES: Final = (b"/0.1/meta-data", b"/computeMetadata/v1beta1/instance", b"/computeMetadata/v1/instance")
_ROOTS: Final = frozenset(
    {
        *(b"", b"/", b"/0.1", b"/0.1/", b"/0.1/meta-data", b"/computeMetadata", b"/computeMetadata/"),
        *(b"/computeMetadata/v1beta1", b"/computeMetadata/v1"),
    }
)
_PREFIXES: Final = (b"/0.1/meta-data/", b"/computeMetadata/v1beta1/", b"/computeMetadata/v1/")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:")
_GO_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


class Old(NamedTuple):
    """An answer of the old program's: always 403. ``rule`` is what the profiles call it."""

    reason: Reason
    message: str
    rule: str


def old_answer(raw: bytes) -> Old | None:
    """Give what the old program answered to a target, if it refused it."""
    rest = raw
    scheme = _SCHEME.match(raw)
    if scheme is not None:
        rest = raw[scheme.end() :]
        if rest[:1] != b"/":
            return Old("OpaqueTarget", UNSAFE, "target")
        if rest[:2] == b"//":
            slash = rest.find(b"/", 2)
            rest = rest[slash:] if slash >= 0 else b""
    path, _, query = rest.partition(b"?")
    decoded = _decoded(path)
    if decoded is None:
        return None
    path = cleaned(decoded)
    return _query(path, _pairs(query)) or _path(path)


def _query(path: bytes, keys: list[bytes]) -> Old | None:
    for key in keys:
        text = key.decode("utf-8", "surrogateescape")
        if text not in QUERY_KEYS:
            return Old("UnknownQueryKey", unrecognized(text), "query")
    if b"recursive" in keys and not any(_has_account(path, base) for base in _BASES):
        return Old("Recursion", RECURSIVE, "recursion")
    return None


def _path(path: bytes) -> Old | None:
    for base in _BASES:
        if path == base + b"/attributes/kube-env":
            return Old("Concealed", CONCEALED, "kube-env")
        if _has_identity(path, base):
            return Old("Concealed", CONCEALED, "identity")
    if path in _ROOTS or path.startswith(_PREFIXES):
        return None
    return Old("UnknownApi", NOT_ALLOWED, "roots")


def _has_account(path: bytes, base: bytes) -> bool:
    """Find ``BASE/service-accounts/.+/``, anywhere, where ``.`` is no newline."""
    return any(b"/" in line[1:] for line in _after(path, base + b"/service-accounts/"))


def _has_identity(path: bytes, base: bytes) -> bool:
    """Find ``BASE/service-accounts/.+/identity``."""
    return any(b"/identity" in line[1:] for line in _after(path, base + b"/service-accounts/"))


def _after(path: bytes, prefix: bytes) -> list[bytes]:
    at = path.find(prefix)
    return [] if at < 0 else [path[at + len(prefix) :].partition(b"\n")[0]]


def _decoded(text: bytes) -> bytes | None:
    """Decode once, as Go's url.PathUnescape does; None where it fails."""
    if text.count(b"%") != len(_ESCAPE.findall(text)):
        return None
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text)


def _pairs(query: bytes) -> list[bytes]:
    """Give the keys that Go's url.ParseQuery gives since Go 1.17: a pair that it cannot read is dropped in silence."""
    keys = []
    for pair in query.split(b"&")[:64]:
        if not pair or b";" in pair:
            continue
        key, _, value = pair.partition(b"=")
        decoded = _decoded(key.replace(b"+", b" "))
        if decoded is not None and _decoded(value) is not None:
            keys.append(decoded)
    return keys


def cleaned(path: bytes) -> bytes:
    """Clean a decoded path as Go's path.Clean does, and put a trailing slash back."""
    if path in (b"", b"/"):
        return path
    rooted = path[:1] == b"/"
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            if kept and kept[-1] != b"..":
                kept.pop()
            elif not rooted:
                kept.append(segment)
        elif segment not in (b"", b"."):
            kept.append(segment)
    text = (b"/" if rooted else b"") + b"/".join(kept) or b"."
    return text + b"/" if path[-1:] == b"/" and text != b"/" else text


def unrecognized(key: str) -> str:
    """Write the message about a query key, quoted as Go's ``%#q`` does it."""
    return f"Unrecognized query parameter key: {go_quoted(key)}"


def go_quoted(text: str) -> str:
    """Quote with back-quotes; where they cannot hold the text, with double quotes and escapes (Go's strconv)."""
    if all((c.isprintable() or c == "\t") and c not in "`\ufeff" for c in text):
        return f"`{text}`"
    parts = []
    for character in text:
        code = ord(character)
        if character in '"\\':
            parts.append("\\" + character)
        elif character in _GO_ESCAPES:
            parts.append(_GO_ESCAPES[character])
        elif 0xDC80 <= code <= 0xDCFF:
            parts.append(f"\\x{code - 0xDC00:02x}")
        elif character.isprintable():
            parts.append(character)
        elif code < 0x80:
            parts.append(f"\\x{code:02x}")
        else:
            parts.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(parts) + '"'
