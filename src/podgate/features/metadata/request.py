"""request: one HTTP request as the filter sees it. Pure.

Here: the value that the server makes of a head (head.py) and a connection. Not here: parsing, and any decision.
Invariant: everything is as it came on the wire, but for blanks around header values; nothing was decoded.
"""

from typing import Final, Literal

from podgate.model.frozen import Frozen

Headers = tuple[tuple[bytes, bytes], ...]
"""Names as spelled and values without the blanks around them, in their order."""

HttpVersion = Literal[10, 11]
"""HTTP/1.0 or HTTP/1.1."""

MAX_BODY: Final = 64 * 1024
"""Bytes of the longest body that is taken: a POST for a bound token carries a certificate, a few KiB."""


class Request(Frozen, frozen=True, gc=False):
    """One request.

    Attributes:
        method: as written; methods are case-sensitive (RFC 9110 section 9.1).
        target: the raw request-target.
        headers: all header fields.
        source: the client's address, as ``ipaddress`` writes it; an IPv4 client of an IPv6 socket as IPv4 (clients.py).
        version: 10 or 11.
        content_length: bytes of the body; 0 without one.
    """

    method: bytes
    target: bytes
    headers: Headers = ()
    source: str = ""
    version: HttpVersion = 11
    content_length: int = 0
