"""The case files as a client's bytes: what is sent, what must come back, and what the metadata server may see of it.

Here: each line of the sections ``requests``, ``answers``, ``upstream`` and ``bytes`` as bytes and expectations.
Not here: sending them (the tests beside this file, and a Pod's in tests/lab), what the pure filter says (reading.py).
Invariant: what is expected is the case file's text; where that has no words, as for a body, the pure filter's.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from podgate.features.metadata.compile import Compiler
from podgate.features.metadata.filter import Decider, Filter
from podgate.features.metadata.head import BadRequest, Head, read_head
from tests.features.metadata.reading import inputs_of, question_of, settings_of, source_of
from tests.support.cases import Case

SECTIONS: Final = ("requests", "answers", "upstream", "bytes")
TOKEN: Final = "AQAE"
"""The IMDSv2 token of the case files; a server has to have given it to the client before."""
_ANSWER: Final = re.compile(r"\d{3} \w+( \(.*?\))?, .*?: ")
"""What stands before the body in a line of ``answers``."""
ISSUE: Final = (
    b"PUT /latest/api/token HTTP/1.1\r\nHost: 169.254.169.254\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n"
)


class Sent(NamedTuple):
    """What the metadata server sees of a request: its whole head, and its body."""

    head: bytes
    body: bytes = b""


class Part(NamedTuple):
    """What becomes of one request of a line.

    Attributes:
        status: of the answer; 0: none comes, since more bytes are waited for.
        body: of a refusal.
        sent: what goes upstream; None for a refusal.
        closes: whether the connection closes after the answer.
        method: that was asked with.
        hides: a JSON field that the answer must not have any more.
    """

    status: int
    method: str
    body: bytes = b""
    sent: Sent | None = None
    closes: bool = False
    hides: str = ""


class Exchange(NamedTuple):
    """One line of a case file.

    Attributes:
        line: as it stands there.
        data: what the client sends on one connection.
        source: the client's address; empty for any.
        parts: what becomes of each request in it.
        needs_token: whether the client must have got ``TOKEN`` before.
    """

    line: str
    data: bytes
    source: str
    parts: tuple[Part, ...]
    needs_token: bool = False


def exchanges_of(case: Case) -> tuple[Filter, list[Exchange]]:
    """Give the filter of a case, and its lines."""
    inputs = inputs_of(case)
    filter_ = Compiler(settings_of(case), lambda intent: intent)(inputs).states.filter
    decider = Decider(filter_)
    headers = tuple(section.lines if (section := case.one("headers")) else ())
    found = []
    for section in case.sections:
        for line in section.lines if section.name in SECTIONS else ():
            text, _, expected = line.rpartition(" -> ")
            asked, _, sender = text.rstrip().partition(" from ")
            data = _escaped(asked) if section.name == "bytes" else question_of(asked, headers)
            source = source_of(sender, inputs)
            parts = tuple(_parts(decider, data, source, expected, section.name))
            found.append(Exchange(line, data, source, parts, "(token check" in expected))
    return filter_, found


def _escaped(text: str) -> bytes:
    return text.rstrip().encode().decode("unicode_escape").encode("latin-1")


def _parts(decider: Decider, data: bytes, source: str, expected: str, form: str) -> Iterator[Part]:
    said = expected.split(" | ") if form == "bytes" else [expected]
    for text in said:
        method = data.split(b" ", 1)[0].strip().decode("latin-1")
        head = read_head(data)
        status = re.match(r"\d{3} ", text)
        if text == "waits for more":
            yield Part(0, method)
        elif status:
            message, closes = head.message if isinstance(head, BadRequest) else "", True
            if isinstance(head, Head):
                message = decider.decide(head.request(source)).message
                closes = not head.keep_alive or head.content_length > 0 or head.version == 10
            if form == "answers":
                message = _ANSWER.sub("", text)
            body = f"{message}\n".encode() if message and method != "HEAD" else b""
            yield Part(int(status.group()), method, body, closes=closes)
            if closes:
                return  # what stood behind it is read by nobody
        else:
            assert isinstance(head, Head), text
            verdict = decider.decide(head.request(source))
            lines = [f"{method} {_target(text, head, form)} HTTP/1.1".encode()]
            lines += [name + b": " + value for name, value in verdict.headers]
            if head.content_length or method not in ("GET", "HEAD", "DELETE"):
                lines.append(b"Content-Length: %d" % head.content_length)
            body = data[head.size :][: head.content_length]
            sent = Sent(b"\r\n".join([*lines, b"", b""]), body)
            hides = re.search(r"without (\w+)", text)
            closes = ", then closes" in text or "(token issue" in text
            yield Part(200, method, sent=sent, closes=closes, hides=hides.group(1) if hides else "")
        if isinstance(head, Head):
            data = data[head.size + head.content_length :]


def _target(text: str, head: Head, form: str) -> str:
    """Give the target that the line says goes upstream; where it says none, the one that was asked for."""
    if form == "upstream":
        return text.partition(" ")[0]
    _, changed, target = text.partition(" as ")
    if changed:
        return target
    return _origin(head.target.decode()) if form == "bytes" else head.target.decode()


def _origin(target: str) -> str:
    """Give the path of an absolute target, as lines of bytes leave out what is sent."""
    found = re.fullmatch(r"(?i:http)://[^/?]*(.*)", target)
    return (found.group(1) or "/") if found else target
