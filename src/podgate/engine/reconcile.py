"""The reconcile loop: brings each target to the newest compiled state, one task per step.

Here: reading, diffing and applying in order; drift, refusals, retries; followers. Not here: compiling, sources, logs.
Invariant: what is called committed is what the target holds; after any doubt it is unknown and is read again.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from podgate.engine.pacing import Pace
from podgate.joints import ApplyError, Compiled, Drifted, Follower, Key, Plan, Signal, Step, Turned
from podgate.model.frozen import Frozen

S = TypeVar("S")
P = TypeVar("P", bound=Plan)
StatesT = TypeVar("StatesT")

STEADY: Final = 1.0
"""Seconds after which a watch that was opened again counts as working."""


MOST_SHOWN: Final = 400
"""Characters of a plan that a log shows; of a longer one it says how much it does."""


class Applied(Frozen, frozen=True):
    """A step that committed: what it did and how long the pass took.

    ``plan`` is without what was refused, in counts where that takes much text, and empty when nothing was done.
    """

    step: str
    generation: int
    plan: str
    seconds: float
    healed: bool


class Observer(Protocol):
    """Told what happens; the host turns it into logs, metrics and problems."""

    def applied(self, applied: Applied) -> None:
        """Tell that a step committed a generation."""
        ...

    def failed(self, step: str, error: ApplyError, failures: int) -> None:
        """Tell that an attempt failed, and how many did in a row."""
        ...

    def recovered(self, step: str) -> None:
        """Tell that what failed beside the passes, as a step's watch or follower, works again."""
        ...

    def followed(self, step: str, what: str) -> None:
        """Tell what a follower did."""
        ...

    def drifted(self, step: str, what: str) -> None:
        """Tell that somebody else changed what is ours."""
        ...

    def turned(self, step: str, what: str, *, fault: bool) -> None:
        """Tell of a turn in the life of the step's target."""
        ...

    def refused(self, step: str, refused: Mapping[Key, str]) -> None:
        """Tell all keys that the step's target refuses now."""
        ...


class Board(Generic[StatesT]):
    """What the compile and the step tasks share: the newest compiled, and which generation each step committed."""

    def __init__(self, steps: Sequence[Step[StatesT, Any, Any]]) -> None:
        self.steps = tuple(steps)
        self.generation = 0
        self.compiled: Compiled[StatesT] | None = None
        self.committed: dict[str, int] = {step.name: 0 for step in steps}
        self._bells = {step.name: asyncio.Event() for step in steps}
        self._commits = asyncio.Event()
        self._newer = asyncio.Event()

    def publish(self, compiled: Compiled[StatesT]) -> None:
        """Make a compiled the newest and wake every step."""
        self.generation += 1
        self.compiled = compiled
        for bell in self._bells.values():
            bell.set()
        self._newer.set()
        self._newer = asyncio.Event()

    async def newer(self, generation: int) -> None:
        """Wait until there is a newer generation than this one."""
        while self.generation <= generation:
            await self._newer.wait()

    def commit(self, step: str, generation: int) -> None:
        """Note what a step committed and wake the steps that wait for it."""
        if self.committed[step] == generation:
            return
        self.committed[step] = generation
        for other in self.steps:
            if step in other.after:
                self._bells[other.name].set()
        self._commits.set()

    def bell(self, step: str) -> asyncio.Event:
        """Give the event that wakes a step."""
        return self._bells[step]

    def settled(self) -> bool:
        """Say whether every essential step has committed the newest generation."""
        essential = (step.name for step in self.steps if step.essential)
        return self.compiled is not None and all(self.committed[name] == self.generation for name in essential)

    def done(self) -> bool:
        """Say whether every step has committed the newest generation, those that only take something away too."""
        return self.compiled is not None and all(done == self.generation for done in self.committed.values())

    async def next_commit(self) -> None:
        """Wait until some step commits a generation."""
        self._commits.clear()
        await self._commits.wait()


class StepTask(Generic[StatesT, S, P]):
    """Runs one step for ever."""

    def __init__(
        self,
        step: Step[StatesT, S, P],
        board: Board[StatesT],
        report: Observer,
        jitter: Callable[[], float],
    ) -> None:
        self._step = step
        self._board = board
        self._report = report
        self._jitter = jitter
        self._bell = board.bell(step.name)
        self._pace = Pace()
        self._have: S | None = None  # None: unknown
        self._wanted: S | None = None  # what was committed last, whatever became of it
        self._states: StatesT | None = None  # the states that this was part of, for followers
        self._found: S | None = None  # for them too: what was read first, and differed, since the last commit
        self._tried = 0  # the generation of the last attempt
        self._drifted = False
        self._told = False  # of drift, since the last commit
        self._read_at = 0.0
        self._attempted = -math.inf
        self._refused: dict[Key, str] = {}
        self._followers = tuple(FollowerTask(each, step.name, report, jitter) for each in step.followers)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name=f"{self._step.name} signals")
            for follower in self._followers:
                group.create_task(follower.run(), name=f"{self._step.name} follower")
            group.create_task(self._serve(), name=f"{self._step.name} loop")

    async def _listen(self) -> None:
        """Hear the target's signals; while it cannot be watched, every retry has the step read everything again."""
        loop, name, pace = asyncio.get_running_loop(), f"{self._step.name} watch", Pace()
        while True:
            began = loop.time()
            steady = loop.call_later(STEADY, self._report.recovered, name) if pace.failures else None
            try:
                async for signal in self._step.target.signals():
                    self._hear(signal)
                raise RuntimeError(f"the signals of {self._step.name} ended by themselves")
            except ApplyError as error:
                steadily = Pace() if loop.time() >= began + STEADY else pace
                pace = steadily.failed(loop.time(), self._jitter(), error.wait)
                self._have, self._drifted = None, True
                self._bell.set()
                self._report.failed(name, error, pace.failures)
            finally:
                if steady is not None:
                    steady.cancel()
            await asyncio.sleep(pace.wait(loop.time()))

    def _hear(self, signal: Signal) -> None:
        if isinstance(signal, Drifted):
            self._have, self._drifted = None, True
            self._pace = self._pace.drifted()
            if not self._told:
                self._told = True
                self._report.drifted(self._step.name, signal.what)
            self._bell.set()
        elif isinstance(signal, Turned):
            # What is written next is no heal: nobody changed anything behind our back.
            self._have, self._wanted, self._drifted = None, None, True
            self._report.turned(self._step.name, signal.what, fault=signal.fault)
            self._bell.set()
        else:
            self._refused[signal.key] = signal.why
            self._report.refused(self._step.name, dict(self._refused))

    async def _serve(self) -> None:
        while True:
            await self._wake()
            if (seconds := max(self._spread(), self._gap())) > 0:
                await asyncio.sleep(seconds)
            self._bell.clear()
            if self._may_go():
                await self._attempt()

    async def _wake(self) -> None:
        """Wait for the bell or the drift check, then for as long as pacing asks."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._until_check(loop.time())):
                await self._bell.wait()
        except TimeoutError:
            self._have, self._read_at = None, loop.time()
        while (seconds := self._pace.wait(loop.time())) > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._board.newer(self._tried)
            except TimeoutError:
                continue  # drift may have moved the pace meanwhile
            self._tried, self._pace = self._board.generation, self._pace.renewed()

    def _spread(self) -> float:
        """Seconds by which this attempt is put off, so that many nodes do not write at once."""
        compiled = self._board.compiled
        return 0.0 if compiled is None else self._jitter() * self._step.spread(compiled.states)

    def _gap(self) -> float:
        """Seconds until this attempt may begin, so that writes keep the distance that is asked for."""
        compiled = self._board.compiled
        gap = 0.0 if compiled is None else self._step.gap(compiled.states)
        return self._attempted + gap - asyncio.get_running_loop().time() if gap else 0.0

    def _until_check(self, now: float) -> float | None:
        """Seconds until everything is read again although nothing rings; None for never."""
        compiled = self._board.compiled
        resync = None if compiled is None else self._step.resync(compiled.states)
        return None if resync is None else max(0.0, self._read_at + resync - now)

    def _may_go(self) -> bool:
        """Say whether the steps before this one are done; publish() or their commit rings again if not."""
        done, generation = self._board.committed, self._board.generation
        return generation > 0 and all(done[name] >= generation for name in self._step.after)

    async def _attempt(self) -> None:
        board, step, loop = self._board, self._step, asyncio.get_running_loop()
        compiled, generation, started = board.compiled, board.generation, loop.time()
        if compiled is None:
            return
        if not step.knows(compiled.states):
            board.commit(step.name, generation)
            return
        want, full = step.want(compiled.states), self._have is None
        self._attempted = started
        self._drifted, self._tried = False, generation
        try:
            have = self._have if self._have is not None else await step.target.read()
            plan = step.target.diff(have, want)
            if full and plan and self._found is None:
                self._found = have
            refused = await step.target.apply(plan) if plan else {}
        except ApplyError as error:
            self._have = None
            self._pace = self._pace.failed(loop.time(), self._jitter(), error.wait)
            self._bell.set()
            step.failed(full)
            self._report.failed(step.name, error, self._pace.failures)
            return
        # An apply may have done its work although its answer failed: then there is no plan, and still a change.
        changed = bool(plan) or want != self._wanted
        # What was refused is told as such, and not as done.
        done = plan.without(refused) if refused else plan
        healed = full and bool(done) and want == self._wanted
        self._have = None if self._drifted else want  # drift that arrived meanwhile makes it unknown again
        self._wanted, self._told = want, self._drifted
        self._read_at = started if full else self._read_at
        self._pace = self._pace.committed(loop.time(), healed=healed)
        self._note_refusals(plan, refused, full=full)
        seconds = loop.time() - started
        self._report.applied(Applied(step.name, generation, _told(done), seconds, healed))
        board.commit(step.name, generation)
        step.committed(generation, seconds, full)
        # What was refused as a whole is there still, and is read again.
        found = None if plan and not done else self._found
        if changed or self._states is None or found is not None:
            for follower in self._followers:
                follower.follow(self._states, compiled.states, found)
        self._states, self._found = compiled.states, None

    def _note_refusals(self, plan: P, refused: Mapping[Key, str], *, full: bool) -> None:
        before = dict(self._refused)
        if full:
            self._refused.clear()
        elif self._refused:
            for key in plan.touches():
                self._refused.pop(key, None)
        self._refused.update(refused)
        if self._refused != before:
            self._report.refused(self._step.name, dict(self._refused))


def _told(plan: Plan) -> str:
    """Give what a log says of a plan."""
    text = str(plan) if plan else ""
    return text if len(text) <= MOST_SHOWN else plan.brief()


class FollowerTask(Generic[StatesT, S]):
    """Runs one follower beside its step: merges changes that it has not followed yet, and retries on its own."""

    def __init__(
        self, follower: Follower[StatesT, S], step: str, report: Observer, jitter: Callable[[], float]
    ) -> None:
        self._follower = follower
        self._step = step
        self._report = report
        self._jitter = jitter
        self._todo: tuple[StatesT | None, StatesT, S | None] | None = None
        self._bell = asyncio.Event()

    def follow(self, before: StatesT | None, after: StatesT, found: S | None) -> None:
        """Note a committed change; the oldest ``before`` and ``found`` that were not followed stay."""
        if before is None and not self._follower.from_start:
            return
        if self._todo is not None:
            before, _, earlier = self._todo
            found = found if earlier is None else earlier
        self._todo = (before, after, found)
        self._bell.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        loop, pace = asyncio.get_running_loop(), Pace()
        while True:
            await self._bell.wait()
            await asyncio.sleep(pace.wait(loop.time()))
            self._bell.clear()
            if self._todo is None:
                continue
            todo, self._todo = self._todo, None
            try:
                done = await self._follower.follow(*todo)
            except ApplyError as error:
                self._retry(*todo)
                pace = pace.failed(loop.time(), self._jitter())
                self._report.failed(f"{self._step} follower", error, pace.failures)
            else:
                if pace.failures:
                    self._report.recovered(f"{self._step} follower")
                if done:
                    self._report.followed(self._step, done)
                pace = pace.committed(loop.time(), healed=False)

    def _retry(self, before: StatesT | None, after: StatesT, found: S | None) -> None:
        newer, self._todo = self._todo, (before, after, found)
        self._bell.set()
        if newer is not None:
            self.follow(*newer)


async def bring_to(step: Step[StatesT, S, P], want: S) -> P:
    """Read, diff and apply once; gives the plan that was applied. Raises ApplyError."""
    plan = step.target.diff(await step.target.read(), want)
    if plan:
        refused = await step.target.apply(plan)
        if refused:
            raise ApplyError("\n".join(f"{key}: {why}" for key, why in refused.items()), "Refused")
    return plan
