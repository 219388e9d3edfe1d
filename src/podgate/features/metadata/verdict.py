"""verdict: what becomes of one request, as a value that the server acts on. Pure.

Here: the verdict, its reason codes, and the answer to a client that is refused. Not here: how a verdict is reached
(filter.py).
Invariant: a verdict that forwards holds the whole target and all end-to-end headers to send; nothing is taken from the
request beside it but the method and the body.
"""

from typing import Final, Literal

from podgate.features.metadata.request import Headers
from podgate.model.frozen import Frozen

Action = Literal["forward", "deny"]

Reason = Literal[
    # forwarded
    "Allowed",
    # refused by the HTTP framing (head.py)
    "BadRequestLine",
    "BadHeader",
    "BadHost",
    "BareLineFeed",
    "BareCarriageReturn",
    "FoldedHeader",
    "ContentLength",
    "TransferEncoding",
    "Expectation",
    "UnsupportedVersion",
    "TooLong",
    "TooManyHeaders",
    # refused because of the target's spelling (target.py)
    "OpaqueTarget",
    "ForeignTarget",
    "BadEncoding",
    "DoubleEncoding",
    "EncodedSeparator",
    "Backslash",
    "Semicolon",
    "ControlByte",
    "NonAscii",
    "ForbiddenCharacter",
    "DoubledSlash",
    "DotSegment",
    "TrailingDot",
    "OuterBlank",
    "TooManyParameters",
    # refused by the policy (filter.py)
    "ForwardedFor",
    "UnknownQueryKey",
    "Recursion",
    "Concealed",
    "UnknownApi",
    "PolicyDenied",
    "HostNotAllowed",
    "HeaderRequired",
    "MethodNotAllowed",
    "UnexpectedBody",
    "BodyTooLong",
]
"""Why. A label of metrics and a field of logs and of explain, so none is ever renamed."""

TokenUse = Literal["none", "issue", "check"]


class Verdict(Frozen, frozen=True, gc=False):
    """What becomes of a request.

    Attributes:
        action: what to do.
        reason: the code of the reason; ``Allowed`` when nothing spoke against it.
        rule: which rule decided, for logs and people: ``gce/kube-env``, ``MetadataPolicy/NAME rules[0]``, ``target``.
        status: of the answer to the client; None when it is forwarded.
        message: the answer's body without its newline; empty when forwarded.
        target: what to send upstream in origin-form, rebuilt; empty when denied.
        headers: the end-to-end headers to send, Host among them; no hop-by-hop header, no length.
        allow: the methods for the ``Allow`` header of a 405.
        audited: it would have been denied, and is forwarded only because of ``--audit``; ``reason`` says why.
        waits: a long poll (``wait_for_change``): no total time limit, and on stop 503 at once.
        token: IMDSv2: ``issue`` for the PUT that gets a token (limit the hops, then bind what comes back);
            ``check``: a token is presented: 401 unless tokens.py says that it is this client's.
        redact: name of a field to take out of a JSON answer (redact.py); empty for none. Send no
            ``Accept-Encoding`` then; ``headers`` holds none.
        client: who asks, as ``NAMESPACE/POD``; empty when not known or not looked for.
    """

    action: Action
    reason: Reason
    rule: str = ""
    status: int | None = None
    message: str = ""
    target: bytes = b""
    headers: Headers = ()
    allow: str = ""
    audited: bool = False
    waits: bool = False
    token: TokenUse = "none"  # noqa: S105 - a word, not a secret
    redact: str = ""
    client: str = ""


_PHRASES: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


def answer(status: int, message: str, *, close: bool, allow: str = "", with_body: bool = True) -> bytes:
    """Give the whole answer to a client that is refused, as v0.1.12 wrote it: text, no sniffing, no Metadata-Flavor.

    Args:
        status: the status code.
        message: the body without its newline.
        close: whether the connection closes after it, which the client must be told.
        allow: the methods of a 405 (RFC 9110 section 15.5.6 wants them).
        with_body: False for the answer to HEAD.
    """
    body = message.encode("utf-8", "replace") + b"\n" if message else b""
    lines = [
        f"HTTP/1.1 {status} {_PHRASES.get(status, 'Refused')}",
        "Content-Type: text/plain; charset=utf-8",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(body)}",
    ]
    if allow:
        lines.append(f"Allow: {allow}")
    if close:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
    return head + body if with_body else head
