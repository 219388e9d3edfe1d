"""explain: what becomes of one request, and the rule that says so.

Here: a question as the bytes that a client would send, and the answer's JSON form. Not here: printing, finding a Pod.
Invariant: the bytes go through the same parser and decider as those of a connection.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from podgate.features.metadata.filter import Decider
from podgate.features.metadata.head import BadRequest, Head, read_head
from podgate.features.metadata.server.exposure import STRANGER, Exposure, networks
from podgate.features.metadata.verdict import Verdict
from podgate.model.frozen import Frozen

HOST_NETWORK: Final = "host network: the node's own packets are not redirected"


class Question(Frozen, frozen=True):
    """One request.

    Attributes:
        asked: a URL, from which a client takes the Host and the target, or a target as it stands in a request line.
        method: of the request.
        headers: as ``Name: value``, in their order; a Host among them takes the place of the URL's.
        source: the client's address; empty for one that is not known.
        host_network: whether the client is a Pod on the node's own network.
    """

    asked: str
    method: str = "GET"
    headers: tuple[str, ...] = ()
    source: str = ""
    host_network: bool = False


class Answer(Frozen, frozen=True):
    """What becomes of it. ``path`` is the target asked for, ``sent`` the one that goes upstream."""

    path: str
    verdict: str
    status: int | None
    reason: str
    rule: str
    message: str = ""
    sent: str = ""
    audited: bool = False
    client: str = ""


def target_and_host(asked: str, default_host: str) -> tuple[str, str]:
    """Give what a client sends for a URL. Anything but ``http://…`` is a target already."""
    if asked[:7].lower() != "http://":
        return asked, default_host
    rest = asked[7:].partition("#")[0]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    host, target = rest[:end], rest[end:]
    return target if target.startswith("/") else "/" + target, host.rpartition("@")[2]


def head_of(question: Question, default_host: str) -> bytes:
    """Write the head that the client would send."""
    target, host = target_and_host(question.asked, default_host)
    lines = [f"{question.method} {target} HTTP/1.1"]
    if not any(header.partition(":")[0].lower() == "host" for header in question.headers):
        lines.append(f"Host: {host}")
    lines += question.headers
    # What a shell passes on may be no UTF-8, and has surrogates in its place then.
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("utf-8", "surrogateescape")


def explain(decider: Decider, question: Question, allowed: Sequence[str] = ()) -> Answer:
    """Answer one question; ``allowed`` are the ranges of ``--allow-from``."""
    filter_ = decider.filter
    default_host = filter_.profile.hosts[0]
    path = target_and_host(question.asked, default_host)[0]
    if question.host_network:
        return Answer(path, "forward", None, "NotRedirected", HOST_NETWORK, sent=path)
    exposure = Exposure(frozenset(filter_.profile.addresses), networks(allowed), networks(filter_.pod_ranges))
    if question.source and not exposure.admits(question.source, "", filter_.profile.addresses[0]):
        return Answer(path, "deny", 403, STRANGER.reason, STRANGER.rule, STRANGER.message)
    data = head_of(question, default_host)
    head = read_head(data)
    if isinstance(head, Head) and head.size == len(data):
        return _answer(path, decider.decide(head.request(question.source)))
    if isinstance(head, BadRequest):
        return Answer(path, "deny", head.status, head.reason, "http", head.message)
    return Answer(path, "deny", 400, "BadRequestLine", "http", "a line break in what was asked: these are two requests")


def explain_all(decider: Decider, questions: Iterable[Question], allowed: Sequence[str] = ()) -> tuple[Answer, ...]:
    """Answer several."""
    return tuple(explain(decider, question, allowed) for question in questions)


def _answer(path: str, verdict: Verdict) -> Answer:
    return Answer(
        path=path,
        verdict=verdict.action,
        status=verdict.status,
        reason=verdict.reason,
        rule=verdict.rule,
        message=verdict.message,
        sent=verdict.target.decode("ascii"),
        audited=verdict.audited,
        client=verdict.client,
    )


def answer_json(answer: Answer) -> dict[str, str | int | bool | None]:
    """Give the JSON form."""
    return {
        "path": answer.path,
        "verdict": answer.verdict,
        "status": answer.status,
        "reason": answer.reason,
        "rule": answer.rule,
        "message": answer.message,
        "sent": answer.sent,
        "audited": answer.audited,
        "client": answer.client,
    }


def answer_text(answer: Answer) -> str:
    """Give a line for people."""
    path = answer.path.encode("unicode_escape").decode("ascii")
    if answer.verdict == "deny":
        return f"{path}: deny {answer.status} {answer.reason}, by {answer.rule}: {answer.message}"
    noted = f" (would be denied: {answer.reason})" if answer.audited else ""
    changed = f", sent as {answer.sent}" if answer.sent != answer.path else ""
    return f"{path}: forward, by {answer.rule}{changed}{noted}"
