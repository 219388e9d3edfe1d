"""Pacing: how many Events may be sent. Pure.

Here: a bucket of tokens over given times. Not here: clocks, Events.
Invariant: in any stretch of time no more are allowed than fit in the bucket plus what dripped in meanwhile.
"""

from typing import Final

from podgate.model.frozen import Frozen

BURST: Final = 25
"""Events at once, as client-go's recorder allows for one object."""

REFILL: Final = 10.0
"""Seconds until one more may be sent."""


class Budget(Frozen, frozen=True):
    """What is left. Times are seconds of a clock that never goes back."""

    tokens: float = float(BURST)
    at: float = 0.0

    def spend(self, now: float) -> "Budget | None":
        """Take one; None when there is none."""
        tokens = min(float(BURST), self.tokens + max(0.0, now - self.at) / REFILL)
        return Budget(tokens - 1, now) if tokens >= 1 else None

    def returned(self) -> "Budget":
        """Give one back that was not needed."""
        return Budget(min(float(BURST), self.tokens + 1), self.at)
