"""fields: the header fields of a request, as the filter judges them and as they go upstream. Pure.

Here: which fields are dropped, and what the rest says to the filter. Not here: the framing (head.py), the verdict.
Invariant: no field is ever added but a missing Host; X-Forwarded-For is never dropped, however it is spelled: the
cloud's own defence against forged requests needs it, so it is reported, and the filter denies.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from podgate.features.metadata.request import Headers

_LOWER: Final = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))
_MARKS: Final = b"!#$%&'*+-.^_`|~"
"""What may stand in a name beside letters and digits; left out, all spellings of a name are one."""
_DROPPED: Final = frozenset(
    {
        # hop by hop: RFC 9110 section 7.6.1, and the connection's own business
        *(b"connection", b"keepalive", b"proxyconnection", b"proxyauthenticate", b"proxyauthorization", b"te"),
        *(b"trailer", b"transferencoding", b"upgrade", b"http2settings", b"contentlength", b"expect"),
        # who asked through whom: proxies write it, so a client's own copy is a forgery
        *(b"forwarded", b"via", b"xrealip", b"xclientip", b"xclusterclientip", b"trueclientip", b"cfconnectingip"),
        # another method or path than the one that was checked
        *(b"xhttpmethodoverride", b"xhttpmethod", b"xmethodoverride", b"xoriginalurl", b"xrewriteurl"),
    }
)
_DROPPED_PREFIXES: Final = (b"xforwarded", b"xremote", b"xpod")
_FORWARDED_FOR: Final = b"xforwardedfor"
_USUAL_OPTIONS: Final = frozenset({b"close", b"keep-alive"})


class FieldFacts(NamedTuple):
    """What the fields say.

    Attributes:
        sent: what goes upstream: all that is not dropped.
        forwarded_for: whether X-Forwarded-For is there, spelled however.
        host: the value of Host; None without one.
        marked: whether one of the wanted header and value pairs is there.
    """

    sent: Headers
    forwarded_for: bool
    host: bytes | None
    marked: bool


def look(headers: Headers, wanted: Iterable[tuple[bytes, bytes]]) -> FieldFacts:
    """Go through the fields once.

    Args:
        headers: of the request.
        wanted: names and values in lower case; an empty value stands for any but an empty one.
    """
    sent: list[tuple[bytes, bytes]] = []
    forwarded_for = marked = False
    host: bytes | None = None
    named: set[bytes] = set()
    for field in headers:
        name, value = field
        plain = name.translate(_LOWER, _MARKS)
        if plain in _DROPPED:
            if plain == b"connection":
                named.update(option.strip(b" \t").lower() for option in value.split(b","))
            continue
        if plain[:1] == b"x" and plain.startswith(_DROPPED_PREFIXES):
            if plain != _FORWARDED_FOR:
                continue
            forwarded_for = True
        elif plain == b"host":
            if name.lower() != b"host":
                continue
            host = value
        sent.append(field)
        if not marked:
            lower = name.lower()
            marked = any(lower == key and (value.lower() == want if want else value) for key, want in wanted)
    named -= _USUAL_OPTIONS
    if named:
        sent = [field for field in sent if field[0].lower() not in named or field[0].lower() == b"host"]
    return FieldFacts(tuple(sent), forwarded_for, host, bool(marked))


def with_host(sent: Headers, host: bytes) -> Headers:
    """Give the fields with this Host, as RFC 9112 section 3.2.2 wants it for an absolute-form, and HTTP/1.1 for all."""
    return ((b"Host", host), *(field for field in sent if field[0].lower() != b"host"))


def host_names(hosts: Iterable[str], own: Iterable[str]) -> frozenset[bytes]:
    """Give what a Host may be: names with and without port 80; our own addresses are looked at by ``is_own``."""
    names = {name.lower().encode("ascii") for name in (*hosts, *own)}
    return frozenset(names | {name + b":80" for name in names})


def without_port(host: bytes) -> bytes:
    """Give a Host without its port, in lower case."""
    name, colon, port = host.lower().rpartition(b":")
    return name if colon and port.isdigit() else host.lower()
