"""How a feature is doing: what the host hears, as log lines, metrics and the health pages.

Here: the Report of the reconcile loop, the diff of problems, readiness and its reasons. Not here: serving the pages.
Invariant: a lasting fault is one log line when it appears and one when it ends; a page is made from what is known, with
no I/O.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from podgate.engine.reconcile import Applied
from podgate.joints import ApplyError, Key
from podgate.model.problems import Problem, Problems
from podgate.model.table import Table, changes
from podgate.observe.answers import TEXT, Answer
from podgate.observe.logs import Log, Multiline, Repeats, clipped
from podgate.observe.metrics import CONTENT_TYPE, SECONDS, Counter, Counters, Histogram, Measured, Reading, exposition

PATIENCE: Final = 3
"""Failures in a row after which a feature is no longer ready."""

MOST_LOGGED: Final = 600
"""Characters of one field of a log line about a step, half of those about a user's object; pages and verbs say all."""
_MOST_KEYS: Final = 10


class Status:
    """What is known about one feature. Every method is called from the host's one thread."""

    def __init__(
        self,
        feature: str,
        steps: Sequence[str],
        log: Log,
        clock: Callable[[], float] = time.time,
        *,
        live: Callable[[], Iterable[Reading]] = tuple,
        optional: Iterable[str] = (),
    ) -> None:
        self._prefix = f"podgate_{feature}"
        self._log = log
        self._clock = clock
        self._live = live
        self._repeats = Repeats()
        self._problems: Problems = Table()
        self._failures: dict[str, tuple[int, ApplyError]] = {}
        self._committed: dict[str, tuple[int, float]] = {}
        self._steps = tuple(steps)
        self._optional = frozenset(optional)
        self._refused: dict[str, Mapping[Key, str]] = {}
        self._waiting = "waiting for its inputs"
        self._degraded = ""
        self._generation = 0
        self._hash = ""
        self._behind_since: float | None = None
        self._own: tuple[Measured, ...] = ()
        self._news = asyncio.Event()
        name = self._prefix
        self._counters = Counters(
            (
                Counter(f"{name}_sync_total", "Passes of a step by result.", ("step", "result")),
                Counter(f"{name}_drift_healed_total", "Foreign changes that were put right.", ("step",)),
                Counter(f"{name}_errors_total", "Faults by reason.", ("reason",)),
                Histogram(f"{name}_sync_duration_seconds", "Duration of a pass that succeeded.", ("step",), SECONDS),
            )
        )

        for step in steps:  # seen from the start: an alert on a rate needs the zero before the first one
            self._counters.add(f"{name}_sync_total", 0, step=step, result="success")
            self._counters.add(f"{name}_sync_total", 0, step=step, result="failure")
            self._counters.add(f"{name}_drift_healed_total", 0, step=step)

    # What the reconcile loop tells.

    def applied(self, applied: Applied) -> None:
        """Note a step that committed; log it when it changed something."""
        step = applied.step
        self._news.set()
        self._committed[step] = (applied.generation, self._clock())
        waited = (each for each in self._steps if each not in self._optional)
        if all(self._committed.get(each, (0, 0.0))[0] >= self._generation for each in waited):
            self._behind_since = None
        self._counters.add(f"{self._prefix}_sync_total", step=step, result="success")
        self._counters.observe(f"{self._prefix}_sync_duration_seconds", applied.seconds, step=step)
        self.recovered(step)
        if applied.healed:
            self._counters.add(f"{self._prefix}_drift_healed_total", step=step)
        if applied.plan:
            event = "drift healed" if applied.healed else "applied"
            plan = Multiline(clipped(applied.plan, MOST_LOGGED))
            self._log.info(event, step=step, plan=plan, milliseconds=round(applied.seconds * 1000, 1))

    def failed(self, step: str, error: ApplyError, failures: int) -> None:
        """Note a failed attempt; log it when it is news."""
        self._news.set()
        self._failures[step] = (failures, error)
        self._counters.add(f"{self._prefix}_sync_total", step=step, result="failure")
        self._counters.add(f"{self._prefix}_errors_total", reason=error.reason)
        if self._repeats.saw(step, str(error)):
            self._log.error("step failed", step=step, reason=error.reason, error=clipped(str(error), MOST_LOGGED))

    def recovered(self, step: str) -> None:
        """Note that a step, or its watch or follower, works; log it when it did not."""
        if self._failures.pop(step, None) is not None:
            self._news.set()
            news = self._repeats.ended(step)
            self._log.info("step works again", step=step, repeated=news.repeated if news else 0)

    def followed(self, step: str, what: str) -> None:
        """Log what a follower did."""
        self._log.info("followed", step=step, what=what)

    def drifted(self, step: str, what: str) -> None:
        """Note a foreign change."""
        self._log.warning("somebody else changed what is ours", step=step, what=what)

    def turned(self, step: str, what: str, *, fault: bool) -> None:
        """Log a turn; a target tells of one that is a fault once."""
        (self._log.warning if fault else self._log.info)(what, step=step)

    def refused(self, step: str, refused: Mapping[Key, str]) -> None:
        """Note the keys that a target refuses now."""
        self._news.set()
        fresh = {str(key): why for key, why in refused.items() if key not in self._refused.get(step, {})}
        if fresh:
            write = self._log.warning if step in self._optional else self._log.error
            why = "\n".join(dict.fromkeys(fresh.values()))
            write("refused", step=step, keys=_some(tuple(fresh)), why=Multiline(clipped(why, MOST_LOGGED)))
        self._refused[step] = refused

    # What the host tells.

    def compiled(
        self,
        generation: int,
        fingerprint: bytes | None,
        degraded: str,
        own: tuple[Measured, ...],
    ) -> None:
        """Note a new generation, what identifies its configuration (or None), and the feature's own metrics."""
        self._waiting = ""
        if generation != self._generation and self._behind_since is None:
            self._behind_since = self._clock()
        self._generation, self._own = generation, own
        self._hash = "" if fingerprint is None else hashlib.sha256(fingerprint).hexdigest()[:12]
        if degraded and degraded != self._degraded:
            self._log.error("degraded", why=degraded)
        elif self._degraded and not degraded:
            self._log.info("no longer degraded")
        self._degraded = degraded

    def problems(self, problems: Problems, describe: Callable[[Problem], str]) -> None:
        """Log the problems that appeared or went away, in the order of the objects: a table has none."""
        for change in sorted(changes(self._problems, problems), key=itemgetter(0)):
            old, new = change.old or (), change.new or ()
            for problem in new:
                if problem not in old:
                    write = self._log.error if problem.severity == "error" else self._log.warning
                    write(clipped(describe(problem), 2 * MOST_LOGGED), reason=problem.reason)
                    if problem.severity == "error":
                        self._counters.add(f"{self._prefix}_errors_total", reason=problem.reason)
            for problem in old:
                if problem not in new:
                    self._log.info(
                        "problem solved", object=str(problem.ref), field=problem.field, reason=problem.reason
                    )
        self._problems = problems

    def fault(self, place: str, message: str, reason: str) -> None:
        """Note a fault beside the steps, as a state directory that cannot be written."""
        self._counters.add(f"{self._prefix}_errors_total", reason=reason)
        if self._repeats.saw(place, message):
            self._log.warning(message, reason=reason)

    def watch(self, name: str, trouble: str) -> None:
        """Note how a watch of the source fares: what is wrong with it, or an empty text."""
        if trouble:
            self.fault(name, trouble, "WatchFailed")
        else:
            self.mended(name)

    def mended(self, place: str) -> None:
        """Note that such a fault is gone."""
        if self._repeats.ended(place):
            self._log.info("fault gone", place=place)

    # What others ask.

    async def next_news(self) -> None:
        """Wait until a step commits or fails."""
        self._news.clear()
        await self._news.wait()

    def refuses(self, step: str) -> bool:
        """Say whether the step's target refuses something now."""
        return bool(self._refused.get(step))

    def refusals(self) -> dict[Key, str]:
        """Give all that targets refuse now, with the reasons."""
        return {key: why for refused in self._refused.values() for key, why in refused.items()}

    def worst_streak(self) -> int:
        """Give the number of failures in a row of the step that fares worst."""
        return max((failures for _, failures, _ in self._essential_failures()), default=0)

    def is_stuck(self) -> bool:
        """Say whether some step fails again and again, essential or not."""
        return any(failures >= PATIENCE for failures, _ in self._failures.values())

    def _essential_failures(self) -> list[tuple[str, int, ApplyError]]:
        failures = sorted(self._failures.items())
        return [(step, count, error) for step, (count, error) in failures if step not in self._optional]

    def unready(self) -> tuple[str, ...]:
        """Give the reasons why the feature is not ready; empty when it is."""
        reasons = [self._waiting] if self._waiting else []
        waited = (step for step in self._steps if step not in self._optional)
        reasons += [f"{step} has not been written yet" for step in waited if step not in self._committed]
        reasons += [
            f"{step} failed {failures} times: {error}"
            for step, failures, error in self._essential_failures()
            if failures >= PATIENCE
        ]
        if self._degraded:
            reasons.append(self._degraded)
        return tuple(reasons)

    def readyz(self) -> Answer:
        """Answer a readiness probe: 200, or 503 with the reasons."""
        reasons = self.unready()
        return (503, TEXT, "".join(f"{reason}\n" for reason in reasons).encode()) if reasons else (200, TEXT, b"ok\n")

    def healthz(self) -> Answer:
        """Answer a liveness probe: always 200, since a restart mends nothing here; the body says what is wrong."""
        lines = ["ok"] + [f"{step}: {error}" for step, (_, error) in sorted(self._failures.items())]
        lines += [f"{problem.ref}: {problem.field}: {problem.message}" for problem in self._errors()]
        return 200, TEXT, "".join(f"{line}\n" for line in lines).encode()

    def _errors(self) -> list[Problem]:
        problems = (problem for ref in sorted(self._problems) for problem in self._problems[ref])
        return [problem for problem in problems if problem.severity == "error"]

    def has_errors(self) -> bool:
        """Say whether something that a user wrote is not in force as written."""
        return bool(self._errors())

    def metrics(self) -> Answer:
        """Answer a scraper."""
        return 200, CONTENT_TYPE, exposition(self.readings())

    def readings(self) -> tuple[Reading, ...]:
        """Give every metric."""
        return (*self._counters.samples(), *self._gauges(), *self._own, *self._live())

    def now(self) -> float:
        """Give the time, in seconds since 1970."""
        return self._clock()

    def behind(self) -> float:
        """Give the seconds for which some essential step has not committed what was compiled; 0 when all have."""
        return 0.0 if self._behind_since is None else self._clock() - self._behind_since

    def _gauges(self) -> list[Measured]:
        name, now = self._prefix, self._clock()
        counted: dict[tuple[str, str], int] = {}
        for problems in self._problems.values():
            for problem in problems:
                counted[problem.severity, problem.reason] = counted.get((problem.severity, problem.reason), 0) + 1
        rows = [
            Measured(
                f"{name}_ready", float(not self.unready()), help="1 when every step is written and nothing degraded."
            ),
            Measured(f"{name}_config_generation", self._generation, help="Counts what was compiled since the start."),
        ]
        if self._hash:  # the same of every node would look like agreement
            label = (("hash", self._hash),)
            rows.append(Measured(f"{name}_config_info", 1.0, label, help="The hash of the configuration in force."))
        rows += [
            Measured(
                f"{name}_problems", count, (("severity", severity), ("reason", reason)), help="Complaints in force."
            )
            for (severity, reason), count in sorted(counted.items())
        ]
        for step, (generation, when) in sorted(self._committed.items()):
            label = (("step", step),)
            rows += [
                Measured(f"{name}_committed_generation", generation, label, help="The generation that a step holds."),
                Measured(
                    f"{name}_sync_age_seconds", now - when, label, help="Seconds since a step was last seen right."
                ),
            ]
        for step, refused in sorted(self._refused.items()):
            rows.append(
                Measured(f"{name}_refused", len(refused), (("step", step),), help="Keys that a target refuses.")
            )
        return rows


def _some(keys: Sequence[str]) -> str:
    """Name the first keys, and say how many more there are."""
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return clipped(", ".join(keys[:_MOST_KEYS]), MOST_LOGGED) + more
