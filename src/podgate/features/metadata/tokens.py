"""tokens: which client an IMDSv2 session token belongs to, as a value. Pure.

Here: the table of digests, bounded in size. Not here: the clock (the caller says what time it is), any token itself.
Invariant: a token is good for the client that asked for it and for nobody else; one that is not in the table (after a
restart) is good for nobody, and the client gets a 401, upon which the SDKs ask for another.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from podgate.model.frozen import Frozen

MAX_TOKENS: Final = 4_096
MAX_TOKENS_EACH: Final = 128
"""Of one client, whose oldest one goes first: nobody crowds out another's."""


class Bound(Frozen, frozen=True, gc=False):
    """Whose a token is: the Pod or address, and when it ends, in seconds of the caller's clock."""

    owner: str
    until: float


class Tokens(Frozen, frozen=True):
    """The tokens by digest, the oldest first."""

    by_digest: Mapping[bytes, Bound] = {}

    def with_token(self, digest: bytes, owner: str, until: float, now: float) -> "Tokens":
        """Give the table with one token more, and without those that have ended."""
        kept = {key: bound for key, bound in self.by_digest.items() if bound.until > now and key != digest}
        own = [key for key, bound in kept.items() if bound.owner == owner]
        for key in own[: max(0, len(own) - MAX_TOKENS_EACH + 1)]:
            del kept[key]
        for key in list(kept)[: max(0, len(kept) - MAX_TOKENS + 1)]:
            del kept[key]
        kept[digest] = Bound(owner, until)
        return Tokens(kept)

    def is_of(self, digest: bytes, owner: str, now: float) -> bool:
        """Say whether a token is good for a client now."""
        bound = self.by_digest.get(digest)
        return bound is not None and bound.owner == owner and bound.until > now


def digest(token: bytes) -> bytes:
    """Give what the table knows of a token, so that no dump of memory tells one."""
    return hashlib.sha256(token).digest()
