"""When a step may work again: a pure state machine over given times.

Here: back-off after failures, the gap between heals. Not here: clocks, sleeping, randomness (they are arguments).
Invariant: a step that never failed and is not fought over never waits.
"""

from typing import Final

from podgate.model.frozen import Frozen

FIRST_RETRY: Final = 0.1
"""Seconds until the first retry; each further one waits twice as long."""

LAST_RETRY: Final = 10.0
"""Seconds that a retry waits at most, before jitter."""

HEAL_GAP: Final = 0.3
"""Seconds between two heals of one step, so that two programs that fight over a table do not eat the node's CPU."""


class Pace(Frozen, frozen=True):
    """How a step has fared. Times are seconds of a clock that never goes back.

    Attributes:
        failures: in a row.
        not_before: the earliest time of the next attempt.
        healed_at: when drift was last put right.
        held_until: before this time there is no attempt, not even for something newer.
    """

    failures: int = 0
    not_before: float = 0.0
    healed_at: float = float("-inf")
    held_until: float = float("-inf")

    def failed(self, now: float, jitter: float, wait: float = 0.0) -> "Pace":
        """Count a failure.

        Args:
            now: the time.
            jitter: between 0 and 1; adds up to a quarter, so that nodes do not retry in step.
            wait: seconds that the target asks for: also something newer waits for so long.
        """
        delay = max(min(FIRST_RETRY * 2.0**self.failures, LAST_RETRY), wait) * (1 + jitter / 4)
        held = now + delay if wait else float("-inf")
        return Pace(self.failures + 1, now + delay, self.healed_at, held)

    def committed(self, now: float, *, healed: bool) -> "Pace":
        """Forget failures; a commit that put drift right starts the gap before the next heal."""
        return Pace(0, min(self.not_before, now), now if healed else self.healed_at)

    def drifted(self) -> "Pace":
        """Allow the heal at once, unless the last one was less than the gap ago."""
        not_before = max(self.not_before, self.healed_at + HEAL_GAP)
        return Pace(self.failures, not_before, self.healed_at, self.held_until)

    def renewed(self) -> "Pace":
        """Allow an attempt for something newer than what failed; the gap between heals stays."""
        not_before = min(self.not_before, max(self.healed_at + HEAL_GAP, self.held_until))
        return Pace(self.failures, not_before, self.healed_at, self.held_until)

    def wait(self, now: float) -> float:
        """Seconds until the next attempt is allowed; 0 for now."""
        return max(0.0, self.not_before - now)
