"""Keeping: passes over a folder and a cluster, once until all is done, or for ever.

Here: when a pass is made, what is told of it, exit codes. Not here: what is done (plan.py), requests (cluster.py).
Invariant: a pass that fails changes nothing of what the next one does: it reads the folder and the cluster anew.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from podgate.admin.addons.cluster import Cluster
from podgate.admin.addons.folder import Folder
from podgate.admin.addons.plan import WORKLOADS, Plan, planned
from podgate.joints import Answered
from podgate.kubeapi.connection import AccessError, UnreachableError
from podgate.model.frozen import Frozen
from podgate.observe.logs import Log, Repeats

SOON: Final = 2.0
"""Seconds to the next pass while something is not done."""

AGAIN: Final = 10.0
"""Seconds after which it is said again what is waited for, though nothing of it changed."""

SETTLE: Final = 1.0
"""Seconds that an object must be missing from the folder: a file that is being written is empty for a moment."""

_DONE: Final = {"create": "created", "correct": "corrected", "remove": "removed"}


class Pass(Frozen, frozen=True):
    """What one pass did.

    Attributes:
        plan: what was to be done; None when that could not be found out.
        complaints: what is wrong with the folder, or with what the API has and shows.
        refused: why steps were refused, by object.
        failure: why the API could not be asked; empty when it could.
        unready: workloads that are there and not all of whose Pods are ready, and how many of how many are.
    """

    plan: Plan | None = None
    complaints: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}
    failure: str = ""
    unready: Mapping[str, str] = {}

    @property
    def done(self) -> bool:
        """Whether the cluster is as the folder says, and the folder is whole."""
        return self.plan is not None and not self.plan and not self.complaints


class Keeper:
    """One set of add-ons.

    Args:
        read: gives the folder as it is now, from the reading before.
        cluster: where they go.
        log: told of what is done, and of each trouble once; ``once`` adds what it waits for.
        adopt: see ``planned``.
    """

    def __init__(self, read: Callable[[Folder], Folder], cluster: Cluster, log: Log, *, adopt: bool = False) -> None:
        self._read = read
        self._cluster = cluster
        self.log = log
        self._adopt = adopt
        self._folder = Folder()
        self._told = Repeats()
        self._places: set[str] = set()

    async def look(self) -> Pass:
        """Find out what is to be done, and do nothing."""
        folder = self._folder = self._read(self._folder)
        try:
            survey = await self._cluster.survey(folder)
        except (UnreachableError, AccessError) as error:
            return Pass(None, folder.complaints, {}, str(error))
        complaints = (*folder.complaints, *survey.complaints)
        plan = planned(
            survey.wanted, survey.found, whole=not complaints, adopt=self._adopt, unlabelled=survey.unlabelled
        )
        asked = {each.key for each in survey.wanted}
        unready = {
            str(each.ref): _of(*each.pods)
            for each in sorted(survey.found, key=lambda found: found.ref)
            if each.key in asked and each.kind.kind in WORKLOADS and not each.ready
        }
        return Pass(plan, complaints, unready=unready)

    async def bring(self) -> Pass:
        """Do what is to be done now, one step after the other."""
        found = await self.look()
        refused: dict[str, str] = {}
        failure = found.failure
        due = found.plan.due if found.plan else ()
        if any(step.verb == "remove" for step in due) and not await self._settled():
            due = tuple(step for step in due if step.verb != "remove")
        try:
            for step in due:
                why = await self._cluster.do(step)
                if why:
                    refused[str(step.ref)] = why
                else:
                    self.log.info(_DONE[step.verb], object=str(step.ref), **({"why": step.why} if step.why else {}))
        except (UnreachableError, AccessError) as error:
            failure = str(error)
        passed = Pass(found.plan, found.complaints, refused, failure, found.unready)
        self._tell(passed)
        return passed

    async def _settled(self) -> bool:
        """Whether the folder is the same a moment later."""
        await asyncio.sleep(SETTLE)
        return self._read(self._folder).by_file == self._folder.by_file

    def _tell(self, passed: Pass) -> None:
        """Say each trouble when it begins and when it ends."""
        troubles = {line: line for line in passed.complaints}
        troubles |= {ref: f"{ref}: refused: {why}" for ref, why in passed.refused.items()}
        troubles |= {"the API": passed.failure} if passed.failure else {}
        troubles |= (
            {str(step.ref): str(step) for step in passed.plan.steps if step.verb == "hold"} if passed.plan else {}
        )
        for place, trouble in troubles.items():
            if self._told.saw(place, trouble):
                self.log.warning(trouble)
        # What a failed pass could not see has not ended.
        ended = self._places - troubles.keys() if not passed.failure else {"the API"} & self._places - troubles.keys()
        for place in sorted(ended):
            if news := self._told.ended(place):
                self.log.info("ended", trouble=str(news.fault))
        self._places = (self._places - ended) | troubles.keys()


class Waiting:
    """Tells what is waited for: each workload when its count changes, and all from time to time."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._last: Mapping[str, str] = {}
        self._at = float("-inf")

    def tell(self, passed: Pass, now: float, ends: float) -> None:
        """Tell what a pass left to wait for; ``now`` and ``ends`` are seconds on one clock."""
        unready, left = passed.unready, round(ends - now)
        for ref, count in unready.items():
            if self._last.get(ref) != count:
                self._log.info("waiting", object=ref, ready=count, seconds_left=left)
                self._at = now
        for ref in sorted(self._last.keys() - unready.keys()):
            self._log.info("ready", object=ref)
        if now - self._at >= AGAIN:
            held = (step for step in (passed.plan.steps if passed.plan else ()) if step.verb == "hold")
            waits = [*(f"{ref}: {count}" for ref, count in unready.items()), *(f"{s.ref}: {s.why}" for s in held)]
            if waits and self._at > float("-inf"):
                self._log.info("still waiting", objects=waits, seconds_left=left)
            self._at = now
        self._last = unready


async def once(keeper: Keeper, seconds: float, *, wait: bool = False) -> Answered:
    """Make passes until all is done, and with ``wait`` every workload is ready, or the time is over."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    waiting = Waiting(keeper.log)
    while True:
        passed = await keeper.bring()
        done = passed.done and not (wait and passed.unready)
        if done or loop.time() + SOON > ends:
            answered = told(passed, "done" if done else "not done")
            return Answered(answered.text, {**answered.data, "done": done}, int(not done))
        waiting.tell(passed, loop.time(), ends)
        await asyncio.sleep(SOON)


async def for_ever(keeper: Keeper, interval: float, stop: asyncio.Event) -> None:
    """Make a pass now and every ``interval`` seconds, sooner while something is not done, until stopped."""
    while not stop.is_set():
        passed = await keeper.bring()
        try:
            async with asyncio.timeout(interval if passed.done else min(SOON, interval)):
                await stop.wait()
        except TimeoutError:
            continue


async def preview(keeper: Keeper) -> Answered:
    """Show the plan; exit 0 for no difference, 1 for some, 2 when it cannot be told."""
    passed = await keeper.look()
    verdict = "no difference" if passed.plan is not None and not passed.plan and not passed.complaints else ""
    answered = told(msgspec.structs.replace(passed, unready={}), verdict)
    code = 2 if passed.plan is None else int(bool(passed.plan) or bool(passed.complaints))
    return Answered(answered.text, answered.data, code)


def told(passed: Pass, verdict: str) -> Answered:
    """Give a pass for people and for programs; exit code 1 unless all is done."""
    steps = passed.plan.steps if passed.plan else ()
    lines = [*(f"error: {line}" for line in passed.complaints), *map(str, steps)]
    lines += [f"refused {ref}: {why}" for ref, why in passed.refused.items()]
    lines += [f"error: {passed.failure}"] * bool(passed.failure)
    lines += [f"not ready: {ref}: {count}" for ref, count in passed.unready.items()]
    data: dict[str, Any] = {
        "done": passed.done,
        "steps": [{"verb": step.verb, "object": str(step.ref), "why": step.why} for step in steps],
        "errors": [*passed.complaints, *([passed.failure] if passed.failure else [])],
        "refused": dict(passed.refused),
        "unready": tuple(passed.unready),
    }
    return Answered("\n".join([*lines, *([verdict] if verdict else [])]), data, int(not passed.done))


def _of(ready: int, wanted: int) -> str:
    """Say how many of how many; of a workload that nobody looked at yet that is not known."""
    if not wanted:
        return "nobody has counted its Pods yet"
    return f"{ready} of {wanted} Pods{', and older ones are there still' if ready == wanted else ''}"
