"""When a step waits although there is something to do: a target asks for it, or many nodes would write at once."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping

from podgate.engine.reconcile import Board, StepTask
from podgate.joints import Compiled, Step
from podgate.model.frozen import Frozen
from tests.support.fake_target import FakePlan, FakeTarget, Heard, State
from tests.support.virtual_time import run_virtual


class States(Frozen, frozen=True):
    only: Mapping[str, str]


class Rig:
    """One step, whose attempts are spread over four seconds where a test asks for it; "unknown" is nobody's wish."""

    def __init__(self, spread: float) -> None:
        self.target, self.heard = FakeTarget({"old": "1"}), Heard()
        step: Step[States, State, FakePlan] = Step(
            "only",
            self.target,
            lambda states: states.only,
            {},
            spread=lambda _states: spread,
            knows=lambda states: states.only != {"a": "unknown"},
        )
        self.board: Board[States] = Board((step,))

    def publish(self, value: str) -> None:
        self.board.publish(Compiled(States({"a": value})))


def play(story: Callable[[Rig], Coroutine[None, None, None]], spread: float = 0.0) -> Rig:
    async def run() -> Rig:
        rig = Rig(spread)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(StepTask(rig.board.steps[0], rig.board, rig.heard, lambda: 0.5).run())
            await story(rig)
            task.cancel()
        return rig

    return run_virtual(run())


def test_a_target_that_asks_for_a_pause_gets_it_whatever_is_published_meanwhile() -> None:
    async def story(rig: Rig) -> None:
        rig.target.fail_applies, rig.target.asks_to_wait = 1, 300.0
        rig.publish("1")
        for number in range(2, 20):
            await asyncio.sleep(10.0)
            rig.publish(str(number))
        assert rig.target.plans == []
        await asyncio.sleep(200.0)

    rig = play(story)
    assert len(rig.heard.failures) == 1
    assert rig.target.state == {"a": "19"}


def test_a_spread_attempt_takes_what_changes_while_it_waits_with_it() -> None:
    async def story(rig: Rig) -> None:
        rig.publish("1")
        await asyncio.sleep(1.0)
        rig.publish("2")
        await asyncio.sleep(0.9)
        assert rig.target.plans == []
        await asyncio.sleep(60.0)

    rig = play(story, spread=4.0)
    assert [str(plan) for plan in rig.target.plans] == ["+a=2, -old"]
    assert rig.target.reads == 1


def test_while_nobody_knows_what_to_want_nothing_is_read_or_taken_away() -> None:
    async def story(rig: Rig) -> None:
        rig.publish("unknown")
        await asyncio.sleep(60.0)
        assert (rig.target.reads, rig.target.state) == (0, {"old": "1"})
        rig.publish("1")
        await asyncio.sleep(1.0)
        assert rig.target.state == {"a": "1"}
        rig.publish("unknown")
        await asyncio.sleep(1.0)
        rig.publish("2")
        await asyncio.sleep(1.0)

    rig = play(story)
    assert rig.target.state == {"a": "2"}
    assert rig.target.reads == 1
