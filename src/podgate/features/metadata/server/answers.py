"""answers: the framing of the upstream's answers. No sockets.

Here: the head of an answer, what of it goes on to the client, the chunked coding. Not here: connections (upstream.py).
Invariant: status, order and spelling of end-to-end headers stay as they were (Metadata-Flavor, ETag, Location); where
an answer ends is never a guess: what could be read in two ways is a BadAnswer.
"""

from typing import Final, Literal, NamedTuple

from podgate.features.metadata.server.limits import CACHED, CACHED_BYTES

_HOP_BY_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade"),
    }
)
"""RFC 9110 section 7.6.1, and what older servers send."""

_MAX_SIZE_LINE: Final = 256
_MAX_TRAILERS: Final = 8192

Framing = Literal["length", "chunked", "close"]


class BadAnswerError(Exception):
    """The upstream does not speak HTTP/1.1 in a way that can be passed on; the message says what was wrong."""


class AnswerHead(NamedTuple):
    """The head of an answer.

    Attributes:
        status: the status code.
        framing: where the body ends; ``length`` with 0 where there can be none (1xx, 204, 304).
        length: bytes of the body, of ``length``.
        reusable: whether the upstream keeps the connection, unless its closing is what ends the body.
        lines: status line and end-to-end headers, each with its line end; no empty line.
        whole: ``lines`` and the empty line: what a client gets that keeps its connection and a body with a length.
    """

    status: int
    framing: Framing
    length: int
    reusable: bool
    lines: bytes
    whole: bytes


class AnswerHeads:
    """Reads heads, and remembers them: an upstream repeats itself until its Date moves on."""

    def __init__(self) -> None:
        self._known: dict[bytes, AnswerHead] = {}

    def read(self, head: bytes) -> AnswerHead:
        """Read a head, its empty line included. Raises BadAnswerError."""
        known = self._known.get(head)
        if known is not None:
            return known
        read = read_answer_head(head)
        if len(head) <= CACHED_BYTES:
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[head] = read
        return read


def read_answer_head(head: bytes) -> AnswerHead:
    """Read a head, its empty line included. Raises BadAnswerError."""
    line, *fields = head[:-4].split(b"\r\n")
    version, status, reason = _status_line(line)
    headers = [_field(field) for field in fields]
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    options = {option.strip().lower() for value in values.get(b"connection", []) for option in value.split(b",")}
    dropped = _HOP_BY_HOP | (options - {b"content-length", b"close", b"keep-alive"})
    kept = [field for (name, _), field in zip(headers, fields, strict=True) if name not in dropped]
    lines = b"\r\n".join((b"HTTP/1.1 %d %s" % (status, reason), *kept)) + b"\r\n"
    framing, length = _framing(status, values, version)
    reusable = b"close" not in options and (version == b"HTTP/1.1" or b"keep-alive" in options)
    return AnswerHead(status, framing, length, reusable, lines, lines + b"\r\n")


def _status_line(line: bytes) -> tuple[bytes, int, bytes]:
    version, _, rest = line.partition(b" ")
    status, _, reason = rest.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(status) != 3 or not status.isdigit() or status < b"100":
        raise BadAnswerError(f"its first line is no status line: {line[:60]!r}")
    if b"\r" in reason or b"\n" in reason:
        raise BadAnswerError("its status line holds a line end")
    return version, int(status), reason


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name or name != name.strip() or b"\n" in line or b"\r" in line or b"\0" in line:
        raise BadAnswerError(f"a header is not NAME: VALUE: {name[:40]!r}")
    return name.lower(), value.strip(b" \t")


def _framing(status: int, values: dict[bytes, list[bytes]], version: bytes) -> tuple[Framing, int]:
    """Say where the body ends (RFC 9112 section 6.3)."""
    lengths = set(values.get(b"content-length", []))
    codings = values.get(b"transfer-encoding", [])
    if len(lengths) > 1 or any(not length.isdigit() or len(length) > 15 for length in lengths):
        raise BadAnswerError("its Content-Length is not one number")
    if codings and (lengths or version == b"HTTP/1.0" or [coding.lower() for coding in codings] != [b"chunked"]):
        raise BadAnswerError("its Transfer-Encoding is not chunked alone")
    if status < 200 or status in (204, 304):
        return "length", 0
    if codings:
        return "chunked", 0
    return ("length", int(lengths.pop())) if lengths else ("close", 0)


class Chunks:
    """Takes the chunked coding off a body (RFC 9112 section 7.1); chunk extensions and trailers are dropped."""

    __slots__ = ("_left", "_line", "_state", "_trailers")

    def __init__(self) -> None:
        self._state: Literal["size", "data", "data end", "trailers", "done"] = "size"
        self._line = b""
        self._left = 0
        self._trailers = 0

    @property
    def is_done(self) -> bool:
        """Whether the body has ended."""
        return self._state == "done"

    def feed(self, data: bytes) -> bytes:
        """Take bytes, give those of the body. Raises BadAnswerError, also for bytes after the end."""
        found: list[bytes] = []
        at = 0
        while at < len(data):
            if self._state == "data":
                piece = data[at : at + self._left]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._state = "data" if self._left else "data end"
                continue
            if self._state == "done":
                raise BadAnswerError("bytes after the last chunk")
            end = data.find(b"\n", at)
            self._line += data[at : end + 1] if end >= 0 else data[at:]
            if len(self._line) > _MAX_SIZE_LINE and self._state != "trailers":
                raise BadAnswerError("a chunk's size is longer than a line")
            if end < 0:
                self._check_trailers()
                break
            at = end + 1
            line, self._line = self._line, b""
            self._take_line(line)
        return b"".join(found)

    def _check_trailers(self) -> None:
        if self._state == "trailers" and self._trailers + len(self._line) > _MAX_TRAILERS:
            raise BadAnswerError("trailers without end")

    def _take_line(self, line: bytes) -> None:
        if line[-2:] != b"\r\n":
            raise BadAnswerError("a line of the chunked coding does not end in CR LF")
        text = line[:-2]
        if self._state == "size":
            size = text.partition(b";")[0].rstrip(b" \t")
            if not size or len(size) > 12 or size.translate(None, b"0123456789abcdefABCDEF"):
                raise BadAnswerError("a chunk's size is no number")
            self._left = int(size, 16)
            self._state = "data" if self._left else "trailers"
        elif self._state == "data end":
            if text:
                raise BadAnswerError("a chunk is longer than it says")
            self._state = "size"
        else:
            self._trailers += len(line)
            self._check_trailers()
            self._state = "trailers" if text else "done"


def chunk(data: bytes) -> bytes:
    """Give data as one chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK: Final = b"0\r\n\r\n"
