"""A target in memory that can fail, drift and refuse on request, and a report that remembers.

Here: the fakes of the engine's tests. Not here: any technology.
Invariant: what ``state`` holds is what a real target would hold: a failed apply may have done half of its work.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

from podgate.engine.reconcile import Applied
from podgate.joints import ApplyError, Drifted, Key, Signal
from podgate.model.frozen import Frozen

State = Mapping[str, str]


class FakePlan(Frozen, frozen=True):
    put: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)

    def __str__(self) -> str:
        return ", ".join([f"+{key}={value}" for key, value in self.put] + [f"-{key}" for key in self.removed])

    def brief(self) -> str:
        return f"{len(self.put) + len(self.removed)} changes"

    def touches(self) -> Collection[Key]:
        return [key for key, _ in self.put] + list(self.removed)

    def without(self, refused: Collection[Key], /) -> "FakePlan":
        put = tuple(each for each in self.put if each[0] not in refused)
        return FakePlan(put, tuple(each for each in self.removed if each not in refused))


class FakeTarget:
    def __init__(self, state: State | None = None) -> None:
        self.state: dict[str, str] = dict(state or {})
        self.fail_reads = 0
        self.fail_applies = 0
        self.fail_answers = 0  # applies that do their work and then fail to say so
        self.fail_watches = 0
        self.asks_to_wait = 0.0
        self.refuses = False  # whatever it is
        self.reads = 0
        self.plans: list[FakePlan] = []
        self.slow = 0.0
        self._signals: asyncio.Queue[Signal] = asyncio.Queue()

    async def read(self) -> State:
        await asyncio.sleep(self.slow)
        self.reads += 1
        if self.fail_reads:
            self.fail_reads -= 1
            raise ApplyError("reading failed", "ReadFailed")
        return dict(self.state)

    def diff(self, have: State, want: State) -> FakePlan:
        put = tuple(sorted((key, value) for key, value in want.items() if have.get(key) != value))
        return FakePlan(put, tuple(sorted(key for key in have if key not in want)))

    async def apply(self, plan: FakePlan) -> Mapping[Key, str]:
        await asyncio.sleep(self.slow)
        if self.refuses:
            return dict.fromkeys(plan.touches(), "not now")
        refused: dict[Key, str] = {}
        changes = [*((key, value) for key, value in plan.put), *((key, None) for key in plan.removed)]
        half = len(changes) // 2 if self.fail_applies else len(changes)
        for key, value in changes[:half]:
            if value is None:
                self.state.pop(key, None)
            elif value.startswith("bad"):
                refused[key] = f"{value} is refused"
            else:
                self.state[key] = value
        if self.fail_applies:
            self.fail_applies -= 1
            raise ApplyError("applying failed half-way", wait=self.asks_to_wait)
        self.plans.append(plan)
        if self.fail_answers:
            self.fail_answers -= 1
            raise ApplyError("the answer was lost")
        return refused

    async def signals(self) -> AsyncIterator[Signal]:
        if self.fail_watches:
            self.fail_watches -= 1
            raise ApplyError("watching failed", "WatchFailed")
        while True:
            yield await self._signals.get()

    def drift(self, key: str, value: str | None) -> None:
        """Change the state as a foreigner does, and have it noticed."""
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value
        self.signal(Drifted(f"{key} changed"))

    def signal(self, signal: Signal) -> None:
        self._signals.put_nowait(signal)


class FakeFollower:
    from_start = False

    def __init__(self) -> None:
        self.followed: list[tuple[Any, Any]] = []
        self.found: list[Any] = []
        self.fail = 0

    async def follow(self, before: Any, after: Any, found: Any) -> str:
        await asyncio.sleep(0.01)
        if self.fail:
            self.fail -= 1
            raise ApplyError("following failed")
        self.followed.append((before, after))
        self.found.append(found)
        return f"followed to {after}"


class Heard:
    """A Report that remembers everything."""

    def __init__(self) -> None:
        self.commits: list[Applied] = []
        self.failures: list[tuple[str, str]] = []
        self.recoveries: list[str] = []
        self.drifts: list[str] = []
        self.turns: list[str] = []
        self.follows: list[str] = []
        self.refusals: dict[str, Mapping[Key, str]] = {}

    def applied(self, applied: Applied) -> None:
        self.commits.append(applied)

    def failed(self, step: str, error: ApplyError, failures: int) -> None:
        self.failures.append((step, str(error)))

    def recovered(self, step: str) -> None:
        self.recoveries.append(step)

    def followed(self, step: str, what: str) -> None:
        self.follows.append(what)

    def drifted(self, step: str, what: str) -> None:
        self.drifts.append(what)

    def turned(self, step: str, what: str, *, fault: bool) -> None:
        self.turns.append(f"fault: {what}" if fault else what)

    def refused(self, step: str, refused: Mapping[Key, str]) -> None:
        self.refusals[step] = refused
