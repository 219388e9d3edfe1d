"""freshness: what is known of Pods, and whether it is too old to tell them apart. Pure.

Here: the value, what each line or loss makes of it, what counts of it at a time. Not here: lines and clocks
(server/following.py), what old knowledge still allows (filter.py).
Invariant: what grew old counts again only after it was told anew, or is followed again by whoever told it.

Addresses of Pods are used again. While the API is away from everybody, no Pod is made that could get one; while it is
away from this node alone, or refuses this account alone, others may be made. The two look the same from here.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from podgate.features.metadata.watched import Watched
from podgate.model.frozen import Frozen

STALE_AFTER: Final = 60
"""Seconds for which an address is taken for the same Pod's. It is twice the longest pause between two attempts at the
watching process, and usual address managers (CNI's host-local) give away all other addresses of a node first."""


class Knowledge(Frozen, frozen=True):
    """What the watching process told, and when. Times are in seconds of one clock.

    Attributes:
        watched: what was told last; None before anything was.
        lost: why nobody tells anything now; empty while somebody does.
        follows: whether it is followed still, so that each sign of life says that it is true.
        heard: when there was a sign of life.
        fresh: when it was true for the last time that anybody knows of.
    """

    watched: Watched | None = None
    lost: str = ""
    follows: bool = False
    heard: float = 0.0
    fresh: float = 0.0

    def told(self, watched: Watched, now: float) -> "Knowledge":
        """Take what the watching process says."""
        return Knowledge(watched, "", watched.unheard is None, now, now - (watched.unheard or 0.0))

    def alive(self, now: float) -> "Knowledge":
        """Take a sign of life, maybe of another process, which knows nothing yet."""
        return replace(self, heard=now, fresh=now if self.follows else self.fresh)

    def without(self, lost: str) -> "Knowledge":
        """Take that the watching process is away."""
        return replace(self, lost=lost, follows=False)

    def aged(self, now: float, limit: float) -> "Knowledge":
        """Give what is left at a time: after ``limit`` seconds without a sign of life, nobody's address is known."""
        watched = self.watched
        if watched is None or not watched.clients or now - self.heard < limit:
            return self
        lost = self.lost or f"podgate metadata watch was silent for {limit:.0f} s: see its log"
        return replace(self, watched=replace(watched, clients={}), follows=False, lost=lost)

    def counting(self, now: float, limit: float) -> Watched | None:
        """Give what counts at a time; what is ``limit`` seconds old, or older, says so as ``unheard``."""
        watched = self.watched
        if watched is None or watched.clients is None or now - self.fresh < limit:
            return watched
        return replace(watched, unheard=limit)

    def turn(self, now: float, limit: float) -> float | None:
        """Give when it will count for less, if nothing is heard until then; None for never."""
        return min(self._turns(now, limit), default=None)

    def _turns(self, now: float, limit: float) -> Iterator[float]:
        if self.watched is not None and self.watched.clients is not None:
            yield from (since + limit for since in (self.heard, self.fresh) if now - since < limit)
