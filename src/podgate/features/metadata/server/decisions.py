"""decisions: what the server does with a request, ready to be done, and remembered by the bytes that asked for it.

Here: a verdict as bytes for the wire and words for the log. Not here: the verdict (filter.py), sockets.
Invariant: equal bytes from the same client under the same filter get the same decision; a new filter forgets them all.
"""

from typing import Final

from podgate.features.metadata.filter import Decider, Filter
from podgate.features.metadata.head import BadRequest, Head
from podgate.features.metadata.server.limits import CACHED, CACHED_BYTES
from podgate.features.metadata.tokens import digest
from podgate.features.metadata.verdict import Verdict, answer
from podgate.observe.logs import as_json

_IDEMPOTENT: Final = (b"GET", b"HEAD")
_TOKEN_HEADER: Final = b"x-aws-ec2-metadata-token"
_LONGEST_PATH: Final = 256


class Decision:
    """What to do with one request. Never changes once made; not a Frozen, since it is read with each request.

    Attributes:
        answer: the whole answer of a refusal; empty when the request is forwarded.
        status: of the answer; 0 when forwarded.
        forward: the head to send upstream.
        length: bytes of the request's body.
        token: digest of the IMDSv2 token that must be this client's; empty for none.
        keep_alive: whether the client's connection may stay.
        head_only: the method is HEAD.
        old_version: HTTP/1.0 was spoken.
        expects: the client waits for a 100.
        repeatable: it may be sent again on another connection.
        waits: a long poll.
        reason: the verdict's code.
        verdict: what was decided.
        fields: for the log, without source and status.
        json: ``fields`` as the inside of a JSON object.
    """

    __slots__ = (
        *("answer", "expects", "fields", "forward", "head_only", "json", "keep_alive", "length", "old_version"),
        *("reason", "repeatable", "status", "token", "verdict", "waits"),
    )

    def __init__(self, reason: str, fields: dict[str, str]) -> None:
        self.reason = reason
        self.fields = fields
        self.json = as_json(fields)[1:-1]
        self.answer = b""
        self.status = 0
        self.forward = b""
        self.token = b""
        self.length = 0
        self.keep_alive = False
        self.head_only = False
        self.old_version = False
        self.expects = False
        self.repeatable = False
        self.waits = False
        self.verdict: Verdict | None = None


def shown_path(target: bytes) -> str:
    """Give the path of a raw target for a log: no host, no query, nothing that may be part of one in disguise."""
    text = target.decode("latin-1")
    if not text.startswith("/") and "://" in text:
        text = "/" + text.split("://", 1)[1].partition("/")[2]
    lower = text.lower()
    cuts = [at for mark in ("?", "#", ";", "%3f", "%253f", "&", "=") if (at := lower.find(mark)) >= 0]
    return text[: min((*cuts, _LONGEST_PATH))]


def refusal(status: int, reason: str, message: str, *, rule: str = "") -> Decision:
    """Give a decision that no verdict stands behind: the connection closes after it."""
    decision = Decision(reason, {"verdict": "deny", "reason": reason, "rule": rule})
    decision.status = status
    decision.answer = answer(status, message, close=True)
    return decision


def framing_refusal(refused: BadRequest) -> Decision:
    """Give the decision on bytes that are no request."""
    return refusal(refused.status, refused.reason, refused.message, rule="http")


def decided(head: Head, verdict: Verdict) -> Decision:
    """Make a verdict ready."""
    fields = {"method": head.method.decode("latin-1"), "path": shown_path(head.target)}
    fields |= {"pod": verdict.client} if verdict.client else {}
    shown = "audit" if verdict.audited else verdict.action
    fields |= {"verdict": shown, "reason": verdict.reason, "rule": verdict.rule}
    decision = Decision(verdict.reason, fields)
    decision.verdict = verdict
    decision.head_only = head.method == b"HEAD"
    decision.old_version = head.version == 10
    if verdict.action == "deny":
        decision.status = verdict.status or 403
        # The body of a refused request is not read, so nothing may follow it.
        decision.keep_alive = head.keep_alive and not head.content_length and head.version == 11
        decision.answer = answer(
            decision.status,
            verdict.message,
            close=not decision.keep_alive,
            allow=verdict.allow,
            with_body=not decision.head_only,
        )
        return decision
    decision.keep_alive = head.keep_alive and verdict.token != "issue"  # noqa: S105 - a word, not a secret
    decision.length = head.content_length
    decision.expects = head.expects_continue and head.content_length > 0
    decision.repeatable = head.method in _IDEMPOTENT and not head.content_length
    decision.waits = verdict.waits
    decision.forward = _upstream_head(head, verdict)
    if verdict.token == "check":  # noqa: S105 - a word, not a secret
        shown_tokens = [value for name, value in verdict.headers if name.lower() == _TOKEN_HEADER]
        # Two tokens are none: the upstream would choose.
        decision.token = digest(shown_tokens[0] if len(shown_tokens) == 1 else b"")
    return decision


def _upstream_head(head: Head, verdict: Verdict) -> bytes:
    """Write the head from what was checked."""
    lines = [head.method + b" " + verdict.target + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in verdict.headers]
    if head.content_length or head.method not in (*_IDEMPOTENT, b"DELETE", b"OPTIONS"):
        lines.append(b"Content-Length: %d" % head.content_length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Decisions:
    """Decides, and remembers, for one filter at a time.

    Attributes:
        filter: what the decisions were made by; None: everything is refused, as long as there is no policy.
        by_source: whether clients differ, so that the client's address is part of the key.
    """

    def __init__(self) -> None:
        self.filter: Filter | None = None
        self.by_source = False
        self._decider: Decider | None = None
        self.known: dict[bytes, Decision] = {}

    def use(self, filter_: Filter | None) -> None:
        """Decide by another filter from now on."""
        self.filter = filter_
        self._decider = None if filter_ is None else Decider(filter_)
        self.by_source = filter_ is not None and bool(filter_.clients)
        self.known = {}

    def decide(self, key: bytes, head: Head, source: str) -> Decision:
        """Decide on a head; ``key`` is what ``known`` remembers it by, empty for not at all."""
        if self._decider is None:
            return refusal(503, "NoPolicy", "The policy of this proxy is not loaded yet")
        decision = decided(head, self._decider.decide(head.request(source)))
        if key and len(key) <= CACHED_BYTES:
            if len(self.known) >= CACHED:
                self.known.clear()
            self.known[key] = decision
        return decision
