"""proxy_side: the proxy as a client's connection knows it.

Here: what a connection asks and tells. Not here: how it is answered (proxy.py), the connection itself (client.py).
Invariant: nothing of this is seen by another client.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from podgate.features.metadata.head import Head
from podgate.features.metadata.server.answers import AnswerHead
from podgate.features.metadata.server.decisions import Decision
from podgate.features.metadata.server.limits import Limits
from podgate.features.metadata.server.pool import Pool

ClientT_contra = TypeVar("ClientT_contra", contravariant=True)


class ProxySide(Protocol[ClientT_contra]):
    """What all connections share.

    Attributes:
        view: the buffer that all connections read into.
        time: gives seconds of the monotonic clock.
        now: the same as of the last look at all deadlines.
        is_stopping: no connection stays open after its answer.
        stranger: the answer to a client that may not connect.
        loop_found: the answer to ourselves.
        unknown_token: the answer to a token that this process did not give.
    """

    limits: Limits
    pool: Pool
    view: memoryview
    time: Callable[[], float]
    now: float
    is_stopping: bool
    stranger: Decision
    loop_found: Decision
    unknown_token: Decision

    def opened(self, client: ClientT_contra, /) -> None:
        """Take in a connection."""

    def closed(self, client: ClientT_contra, /) -> None:
        """Forget a connection."""

    def admits(self, source: str, local: str, original: str, /) -> bool:
        """Say whether a connection is taken."""

    def known(self, data: bytes, client: ClientT_contra, /) -> Decision | None:
        """Give the decision on bytes that were decided on before, if they are one whole request without a body."""

    def decide(self, raw: bytes, head: Head, client: ClientT_contra, /) -> Decision:
        """Decide on a head that was read."""

    def is_token_of(self, token: bytes, owner: str, /) -> bool:
        """Say whether a token, given by its digest, was got by this client through this process."""

    def changed(
        self, decision: Decision, head: AnswerHead, body: bytes, client: ClientT_contra, /
    ) -> tuple[bytes, bytes] | None:
        """Give the lines, without a length, and the body of a whole answer; None when it is not safe."""

    def answered(self, decision: Decision, client: ClientT_contra, status: int, seconds: float, /) -> None:
        """Note a request that has its answer."""

    def failed(self, why: str, status: int, /) -> None:
        """Note that the upstream did not answer."""
