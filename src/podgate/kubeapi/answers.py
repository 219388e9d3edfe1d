"""Answers of a Kubernetes API that are no objects: the ``Status`` that says what went wrong. Pure.

Here: the status, read out of whatever came back, and what it means for a caller. Not here: objects and frames.
Invariant: every answer of 400 and above becomes a Refusal, also when it holds no Status (a proxy answers HTML).

Status codes: kubernetes.io, "Kubernetes API Concepts"; k8s.io/apimachinery, api/errors.
"""

from typing import Final

import msgspec

from podgate.model.frozen import Frozen
from podgate.model.kinds.meta import ApiStruct

EXPIRED: Final = 410
UNAVAILABLE: Final = 503
_SHOWN: Final = 300
"""Characters of a foreign message that are kept: more tells nobody more."""


class Cause(ApiStruct, frozen=True, rename="camel"):
    """One of several reasons: of a conflict between field managers, the field and who owns it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(ApiStruct, frozen=True, rename="camel"):
    """What a Status says beside its message."""

    retry_after_seconds: int = 0
    causes: tuple[Cause, ...] = ()


class StatusMeta(ApiStruct, frozen=True, rename="camel"):
    """A list's metadata in a Status: where an expired list can go on, inconsistently."""

    continue_: str = msgspec.field(default="", name="continue")


class ApiStatus(ApiStruct, frozen=True, rename="camel"):
    """The API's ``Status``."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None
    metadata: StatusMeta | None = None


class Refusal(Frozen, frozen=True):
    """The API said no.

    Attributes:
        code: the HTTP status, or the code of an ERROR frame.
        reason: the API's CamelCase word, as ``Expired``; empty when there was none.
        message: what it said, cut to a readable length.
        retry_after: seconds to wait at least, as the server asks; 0 for no wish.
        causes: field and message of each single reason.
    """

    code: int
    reason: str = ""
    message: str = ""
    retry_after: float = 0.0
    causes: tuple[tuple[str, str], ...] = ()

    @property
    def expired(self) -> bool:
        """Whether the resource version, or the page token, is too old: a 410, or its reason in an ERROR frame."""
        return self.code == EXPIRED or self.reason in {"Expired", "Gone"}

    def __str__(self) -> str:
        """Show ``403 Forbidden: message``."""
        return f"{self.code}{' ' + self.reason if self.reason else ''}{': ' + self.message if self.message else ''}"


_decoder: Final = msgspec.json.Decoder(ApiStatus)


def refusal(code: int, body: bytes, retry_after: str = "") -> Refusal:
    """Read an answer of 400 and above.

    Args:
        code: the HTTP status.
        body: whatever came.
        retry_after: the header ``Retry-After`` in seconds; the form with a date is ignored, as client-go does.
    """
    try:
        status = _decoder.decode(body)
    except msgspec.DecodeError:
        status = ApiStatus()
    if status.kind != "Status":
        text = body.decode("utf-8", "replace")
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        return Refusal(code, "", first[:_SHOWN], _seconds(retry_after))
    details = status.details or Details()
    wait = _seconds(retry_after) or float(max(0, details.retry_after_seconds))
    causes = tuple((cause.field, cause.message) for cause in details.causes)
    return Refusal(status.code or code, status.reason, status.message[:_SHOWN], wait, causes)


def _seconds(text: str) -> float:
    plain = text.strip()
    return float(plain) if plain.isascii() and plain.isdigit() and len(plain) < 6 else 0.0
