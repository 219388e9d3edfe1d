"""The host of one feature: one task group that merges sources, compiles, drives the steps and serves the pages.

Here: the order of start and stop, the last good configuration across restarts. Not here: what is compiled or written.
Invariant: nothing is applied before every source has given its first value; what is on disk as the last good
configuration was committed first.
"""

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from podgate.engine.kept import KeptDirectory
from podgate.engine.reconcile import Board, StepTask
from podgate.engine.status import PATIENCE, Status
from podgate.joints import ApplyError, Compiled, Inputs, Source, SourceError, Step
from podgate.linux.descriptors import raised_limit
from podgate.linux.waiting import for_ever
from podgate.model.files import FileContent
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Machine
from podgate.model.problems import Problem, with_problems
from podgate.model.snapshot import Snapshot
from podgate.observe.answers import Page
from podgate.observe.listen import Listen
from podgate.observe.metrics import Measured
from podgate.observe.pages import MOST_CONNECTIONS, Crowd, PageServer

StatesT = TypeVar("StatesT")

ONCE_SECONDS: Final = 60.0
"""Seconds for which ``--once`` waits for its inputs: nothing stands behind it that would try again."""

RETRY: Final = 2.0
"""Seconds until a source that failed, an address that was in use or a directory that was full is tried again."""

_SHARE: Final = 16
"""The part of the open files that connections to the pages of one address may have."""

_NO_PAGES: Final = {
    errno.EADDRINUSE: ("AddressInUse", "end the other program, or give another address"),
    errno.EADDRNOTAVAIL: ("AddressUnknown", "this machine has no such address: give one that it has"),
    errno.EACCES: ("NotPermitted", "a port below 1024 needs CAP_NET_BIND_SERVICE"),
}
"""Reasons why nobody can listen, and what to do."""


class Sources(Frozen, frozen=True):
    """One source per field of Inputs."""

    objects: Source[Snapshot]
    files: Source[Mapping[str, FileContent]]
    machine: Source[Machine]


class Work(Frozen, Generic[StatesT], frozen=True):
    """What a feature gives the host to run.

    Attributes:
        compiler: inputs to compiled; called in the host's one thread.
        steps: what is programmed.
        samples: the feature's own metrics.
        recover: makes kept entries out of states that were read back, for a start without a state directory.
        describe: a problem as a line for people, with the place where it stands in the inputs.
        want: told which single objects a compile asks for, for the source that fetches them.
    """

    compiler: Callable[[Inputs], Compiled[StatesT]]
    steps: tuple[Step[StatesT, Any, Any], ...]
    samples: Callable[[StatesT], tuple[Measured, ...]]
    recover: Callable[[Mapping[str, Any]], Mapping[str, bytes]]
    describe: Callable[[Problem, Inputs], str]
    want: Callable[[frozenset[ObjectRef]], None] = lambda _refs: None


class Host(Generic[StatesT]):
    """Runs one feature until it is told to stop."""

    def __init__(self, work: Work[StatesT], sources: Sources, kept: KeptDirectory, status: Status) -> None:
        self._work = work
        self._sources = sources
        self._kept = kept
        self._saved: Mapping[str, bytes] = {}
        self._status = status
        self._inputs = Inputs()
        self._given: set[str] = set()
        self._changed = asyncio.Event()
        self._is_refused = False
        self._board: Board[StatesT] = Board(work.steps)

    async def run(self, stop: asyncio.Event, *, once: bool = False, listen: Mapping[Listen, Mapping[str, Page]]) -> int:
        """Run until ``stop`` is set, or with ``once`` until all is written; give the exit code.

        0: all is well. 1 with ``once``: something is not written, or not in force as a user wrote it.
        """
        self._inputs = msgspec.structs.replace(self._inputs, kept=await self._load_kept())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._run(listen), name="work"),
                group.create_task(self._until_refused(stop), name="refusals"),
            ]
            if once:
                tasks.append(group.create_task(self._until_written(stop), name="once"))
            await stop.wait()
            for task in tasks:
                task.cancel()
        isolated = self._board.compiled is not None and self._board.compiled.isolates
        missed = self._status.unready() or not self._board.done() or (self._status.has_errors() and not isolated)
        return 1 if self._is_refused or (once and missed) else 0

    async def _run(self, listen: Mapping[Listen, Mapping[str, Page]]) -> None:
        async with asyncio.TaskGroup() as group:
            for field in Sources.__struct_fields__:
                group.create_task(self._follow(field, getattr(self._sources, field)), name=f"source {field}")
            group.create_task(self._compile(), name="compile")
            group.create_task(self._hear_refusals(), name="heard refusals")
            group.create_task(self._keep(), name="keep")
            for step in self._work.steps:
                group.create_task(StepTask(step, self._board, self._status, random.random).run(), name=step.name)
            for address, pages in listen.items():
                group.create_task(self._serve(address, pages), name=f"pages {address}")

    async def _until_written(self, stop: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(ONCE_SECONDS):
                await self._board.newer(0)
        except TimeoutError:
            missing = ", ".join(field for field in Sources.__struct_fields__ if field not in self._given)
            self._status.fault("inputs", f"no {missing} within {ONCE_SECONDS:.0f} s: nothing was written", "NoInputs")
            stop.set()
            return
        while not (self._board.done() or self._status.worst_streak() >= PATIENCE or self._only_optional_left()):
            await self._status.next_news()
        if self._board.settled():
            self._save_newest()
        stop.set()

    def _only_optional_left(self) -> bool:
        """Say whether all that is wanted is written, and something that is not wanted cannot be taken away."""
        return self._board.settled() and self._status.is_stuck()

    async def _until_refused(self, stop: asyncio.Event) -> None:
        """Stop when a step of this process cannot do its work, as a socket whose port is taken."""
        names = [step.name for step in self._work.steps if step.in_process]
        while not any(map(self._status.refuses, names)):
            await self._status.next_news()
        self._is_refused = True
        stop.set()

    async def _follow(self, field: str, source: Source[Any]) -> None:
        while True:
            try:
                async for value in source.values():
                    self._status.mended(f"source {field}")
                    self._inputs = msgspec.structs.replace(self._inputs, **{field: value})
                    self._given.add(field)
                    self._changed.set()
            except SourceError as error:
                self._status.fault(f"source {field}", str(error), "SourceFailed")
                await asyncio.sleep(RETRY)
            else:
                raise RuntimeError(f"the source of {field} ended by itself")

    async def _hear_refusals(self) -> None:
        """Have the compile know what targets refuse, since that may be somebody's object's problem."""
        while True:
            refused = self._status.refusals()
            if refused != self._inputs.refused:
                self._inputs = msgspec.structs.replace(self._inputs, refused=refused)
                self._changed.set()
            await self._status.next_news()

    async def _compile(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if len(self._given) < len(Sources.__struct_fields__):
                continue
            inputs = self._inputs
            compiled = self._work.compiler(inputs)
            self._work.want(compiled.wanted)
            if compiled.keep:
                # What is good now is the last good configuration of the next compile, also before it is on disk.
                self._inputs = msgspec.structs.replace(self._inputs, kept={**inputs.kept, **compiled.keep})
            problems = with_problems(compiled.problems, compiled.refusals(inputs.refused))
            self._status.problems(problems, partial(self._describe, inputs))
            if not compiled.holds:
                self._board.publish(compiled)
            kept = compiled.keep or inputs.kept
            fingerprint = b"\0".join(data for _, data in sorted(kept.items())) if kept else None
            self._status.compiled(
                self._board.generation, fingerprint, compiled.degraded, self._work.samples(compiled.states)
            )

    def _describe(self, inputs: Inputs, problem: Problem) -> str:
        return self._work.describe(problem, inputs)

    async def _keep(self) -> None:
        while True:
            await self._board.next_commit()
            while self._board.settled() and not self._save_newest():  # noqa: ASYNC110 - nothing tells of free space
                await asyncio.sleep(RETRY)

    def _save_newest(self) -> bool:
        """Keep what the newest compile asked to keep; say whether that is on disk now."""
        compiled = self._board.compiled
        if compiled is None or not compiled.keep or compiled.keep == self._saved:
            return True
        try:
            self._kept.save(compiled.keep)
        except OSError as error:
            self._status.fault(
                "state directory",
                f"{self._kept.path}: cannot keep the last good configuration ({error.strerror}): make it writable or"
                " set --state-dir; until then, a restart with a bad configuration reads it back from the rules",
                "StateNotKept",
            )
            return False
        self._saved = compiled.keep
        self._status.mended("state directory")
        return True

    async def _load_kept(self) -> Mapping[str, bytes]:
        """Give what was kept: from the state directory, else read back from our own state in the targets.

        A directory that cannot be written may hold something older than what was committed last.
        """
        kept, faults = self._kept.load()
        for path, why in faults.items():
            self._status.fault(f"kept {path}", f"{path}: cannot be read ({why}), and is not used", "StateNotKept")
        self._saved = kept
        current = self._kept.is_writable()
        if kept and not faults and current:
            return kept
        states: dict[str, Any] = {}
        for step in (step for step in self._work.steps if step.recovers):
            with contextlib.suppress(ApplyError):  # the step itself meets and reports it again
                states[step.name] = await step.target.read()
        recovered = self._work.recover(states)
        return {**recovered, **kept} if current else {**kept, **recovered}

    async def _serve(self, address: Listen, pages: Mapping[str, Page]) -> None:
        # Of a low limit something is left for all else.
        server = PageServer(pages, crowd=Crowd(min(MOST_CONNECTIONS, raised_limit() // _SHARE)))
        while True:
            try:
                async with server.listening(address, partial(self._tell_shortage, address)):
                    self._status.mended(f"pages {address}")
                    await for_ever()
            except OSError as error:
                reason, todo = _NO_PAGES.get(error.errno or 0, ("ListenFailed", "give another address"))
                why = f"{error.strerror or error}: {todo}"
                self._status.fault(f"pages {address}", f"cannot serve pages on {address}: {why}", reason)
                await asyncio.sleep(RETRY)

    def _tell_shortage(self, address: Listen, why: str) -> None:
        """Tell that nobody new is answered for want of descriptors, or no more."""
        place = f"connections to pages {address}"
        if why:
            todo = "raise the limit of open files (LimitNOFILE=, ulimit -n)"
            self._status.fault(place, f"pages on {address}: {why}: {todo}", "NoDescriptors")
        else:
            self._status.mended(place)
