"""head: bytes of a connection to the head of one request, more strictly than RFC 9112 asks. Pure.

Here: the framing: request line, header fields, lengths, whether the connection may stay. Not here: what the target
means (target.py), reading the body, sockets.
Invariant: a head that two parsers could read in two ways is refused, never mended; the work is linear in its bytes,
which are bounded.

Requests with ``Transfer-Encoding`` are refused: the bodies that go through are small and have a length, and no
chunked coding means no chunk extensions, no trailers and no second opinion about where the next request begins.
``Upgrade`` is only ignored (RFC 9110 section 7.8), since Java's client offers HTTP/2 with each first request.
"""

from typing import Final

from podgate.features.metadata.request import Headers, HttpVersion, Request
from podgate.features.metadata.verdict import Reason
from podgate.model.frozen import Frozen

MAX_REQUEST_LINE: Final = 8_192
"""Bytes; RFC 9112 section 3 wants at least 8,000."""
MAX_HEAD: Final = 16_384
"""Bytes of a whole head."""
MAX_HEADERS: Final = 64
MAX_METHOD: Final = 20
MAX_NAME: Final = 256
"""Bytes of a header's name."""

_END: Final = b"\r\n\r\n"
_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BEGINS: Final = frozenset({b"", b"\r", b"\n", *(bytes((byte,)) for byte in _TOKEN)})
_VERSIONS: Final[dict[bytes, HttpVersion]] = {b"HTTP/1.1": 11, b"HTTP/1.0": 10}
_BLANKS: Final = b" \t\v\f"
_IN_HEAD: Final = bytes([0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)])
"""What may stand in header fields: visible characters, blanks and obs-text (RFC 9110 section 5.5), and line ends."""
_IN_HOST: Final = b"-._~!$&'()*+,;=%:[]0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SINGLE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"expect"})
"""The fields that the framing looks at."""


class NeedMore(Frozen, frozen=True):
    """The head is not whole yet.

    Attributes:
        searched: bytes that need not be searched again; hand it back to ``read_head`` with more bytes.
    """

    searched: int


class BadRequest(Frozen, frozen=True):
    """The bytes are no request that can be taken. Answer, then close: nobody knows where the next one begins.

    Attributes:
        status: 400, or 411, 414, 417, 431, 501, 505.
        reason: the code.
        message: for the answer.
    """

    status: int
    reason: Reason
    message: str


class Head(Frozen, frozen=True, gc=False):
    """The head of one request.

    Attributes:
        size: bytes of the head in the buffer, the empty line included; the body begins there.
        content_length: bytes of the body; 0 without one.
        keep_alive: whether the client wants the connection to stay (RFC 9112 section 9.3).
        expects_continue: whether the client waits for a 100 before it sends the body.
    """

    method: bytes
    target: bytes
    version: HttpVersion
    headers: Headers
    size: int
    content_length: int
    keep_alive: bool
    expects_continue: bool

    def request(self, source: str) -> Request:
        """Give the request as the filter wants it, asked from an address."""
        return Request(self.method, self.target, self.headers, source, self.version, self.content_length)


def read_head(data: bytes | bytearray, searched: int = 0) -> Head | NeedMore | BadRequest:
    """Read the head that ``data`` begins with.

    One empty line before it is skipped (RFC 9112 section 2.2). What follows the head (a body, the next request) is
    not looked at: take ``size`` bytes away, then ``content_length``, and read again.

    Args:
        data: what was received and not used yet.
        searched: of the NeedMore that the same bytes gave before.
    """
    start = 2 if data[:2] == b"\r\n" else 0
    end = data.find(_END, max(start, searched - 3), start + MAX_HEAD)
    if end < 0:
        return _unfinished(data, start)
    return _read(bytes(data[start:end]), end + 4)


def _unfinished(data: bytes | bytearray, start: int) -> NeedMore | BadRequest:
    """Refuse what can become no good head any more."""
    if bytes(data[start : start + 1]) not in _BEGINS:
        return BadRequest(400, "BadRequestLine", "the request line does not begin with a method")
    line_end = data.find(b"\n", start, start + MAX_REQUEST_LINE + 2)
    if line_end < 0 and len(data) - start > MAX_REQUEST_LINE:
        return _TOO_LONG
    if line_end == start or (line_end > 0 and data[line_end - 1] != 0x0D):
        return _BARE_LF
    if len(data) - start >= MAX_HEAD:
        return _HEAD_TOO_LONG
    return NeedMore(len(data))


def _read(block: bytes, size: int) -> Head | BadRequest:
    """Read a head without its last empty line."""
    refused = _line_ends(block)
    if refused is not None:
        return refused
    line, *fields = block.split(b"\r\n")
    if len(line) > MAX_REQUEST_LINE:
        return _TOO_LONG
    parts = line.split(b" ")
    if len(parts) != 3 or line.translate(None, _BLANKS) != b"".join(parts):
        return BadRequest(400, "BadRequestLine", "the request line is not METHOD SP TARGET SP VERSION")
    method, target, version_text = parts
    if not method or len(method) > MAX_METHOD or method.translate(None, _TOKEN) or not target:
        return BadRequest(400, "BadRequestLine", "the request line has no method or no target")
    version = _VERSIONS.get(version_text)
    if version is None:
        if version_text[:5] == b"HTTP/" and version_text[5:].replace(b".", b"", 1).isdigit():
            return BadRequest(505, "UnsupportedVersion", "only HTTP/1.0 and HTTP/1.1 are spoken here")
        return BadRequest(400, "BadRequestLine", "the request line does not end in a version of HTTP")
    headers = _fields(fields)
    if isinstance(headers, BadRequest):
        return headers
    return _framed(method, target, version, headers, size)


def _line_ends(block: bytes) -> BadRequest | None:
    """Refuse line ends that are not CR LF, and bytes that no header may hold."""
    pairs = block.count(b"\r\n")
    if block.count(b"\n") != pairs:
        return _BARE_LF
    if block.count(b"\r") != pairs:
        return BadRequest(400, "BareCarriageReturn", "a CR without LF")
    first = block.find(b"\r\n")
    if first >= 0 and block[first:].translate(None, _IN_HEAD):
        return BadRequest(400, "BadHeader", "a control character in the header fields")
    return None


def _fields(lines: list[bytes]) -> Headers | BadRequest:
    if len(lines) > MAX_HEADERS:
        return BadRequest(431, "TooManyHeaders", f"more than {MAX_HEADERS} header fields")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or len(name) > MAX_NAME or name.translate(None, _TOKEN):
            if line[:1] in (b" ", b"\t"):
                return BadRequest(400, "FoldedHeader", "a header field on two lines")
            return BadRequest(400, "BadHeader", "a line among the header fields is not NAME: VALUE")
        headers.append((name, value.strip(b" \t")))
    return tuple(headers)


def _framed(method: bytes, target: bytes, version: HttpVersion, headers: Headers, size: int) -> Head | BadRequest:
    """Read the fields that say where the request ends and what becomes of the connection."""
    found: dict[bytes, bytes] = {}
    options: list[bytes] = []
    for name, value in headers:
        key = name.lower()
        if key not in _SINGLE:
            continue
        if key == b"connection":
            options += [option.strip(b" \t").lower() for option in value.split(b",")]
        elif key in found:
            return _TWICE[key]
        else:
            found[key] = value
    refused = _host(found.get(b"host"), version) or _coding(found, version)
    if refused is not None:
        return refused
    length = found.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 15:
        return BadRequest(400, "ContentLength", "Content-Length is not one number")
    expects = found.get(b"expect")
    if expects is not None and expects.lower() != b"100-continue":
        return BadRequest(417, "Expectation", "only 100-continue can be expected here")
    return Head(
        method=method,
        target=target,
        version=version,
        headers=headers,
        size=size,
        content_length=int(length),
        keep_alive=b"close" not in options and (version == 11 or b"keep-alive" in options),
        expects_continue=expects is not None and version == 11,
    )


def _host(host: bytes | None, version: HttpVersion) -> BadRequest | None:
    if host is None:
        return BadRequest(400, "BadHost", "HTTP/1.1 without a Host header") if version == 11 else None
    if host.translate(None, _IN_HOST):
        return BadRequest(400, "BadHost", "Host is not a name or address with an optional port")
    return None


def _coding(found: dict[bytes, bytes], version: HttpVersion) -> BadRequest | None:
    coding = found.get(b"transfer-encoding")
    if coding is None:
        return None
    if b"content-length" in found:
        return BadRequest(400, "TransferEncoding", "both Content-Length and Transfer-Encoding")
    if version == 10:
        return BadRequest(400, "TransferEncoding", "Transfer-Encoding in HTTP/1.0")
    if coding.lower() != b"chunked":
        return BadRequest(501, "TransferEncoding", "only the transfer coding chunked is known, and not taken here")
    return BadRequest(411, "TransferEncoding", "send a Content-Length: chunked bodies are not taken here")


_TOO_LONG: Final = BadRequest(414, "TooLong", f"the request line is longer than {MAX_REQUEST_LINE} bytes")
_HEAD_TOO_LONG: Final = BadRequest(431, "TooLong", f"the head is longer than {MAX_HEAD} bytes")
_BARE_LF: Final = BadRequest(400, "BareLineFeed", "a LF without CR")
_TWICE: Final = {
    b"host": BadRequest(400, "BadHost", "two Host headers"),
    b"content-length": BadRequest(400, "ContentLength", "two Content-Length headers"),
    b"transfer-encoding": BadRequest(400, "TransferEncoding", "two Transfer-Encoding headers"),
    b"expect": BadRequest(400, "Expectation", "two Expect headers"),
}
