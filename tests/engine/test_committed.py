"""What a step tells of its commits."""

import asyncio

from podgate.engine.reconcile import Board, StepTask
from podgate.joints import Compiled, Step
from tests.support.fake_target import FakePlan, FakeTarget, Heard, State
from tests.support.virtual_time import run_virtual


def test_each_commit_is_told_and_whether_it_compared_everything() -> None:
    told: list[tuple[int, float, bool]] = []
    failed: list[bool] = []

    def note(generation: int, seconds: float, whole: bool) -> None:
        told.append((generation, seconds, whole))

    async def run() -> None:
        target = FakeTarget()
        step: Step[State, State, FakePlan] = Step(
            "only", target, lambda states: states, {}, committed=note, failed=failed.append
        )
        board: Board[State] = Board((step,))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(StepTask(step, board, Heard(), lambda: 0.0).run())
            for number in range(1, 4):
                target.slow = float(number)
                target.fail_applies, target.fail_reads = number == 3, number == 3
                board.publish(Compiled({"a": str(number)}))
                await asyncio.sleep(100.0)
            task.cancel()

    run_virtual(run())
    # The first reads and writes; the second writes; the third failed, so everything was read again, in vain at first.
    assert told == [(1, 2.0, True), (2, 2.0, False), (3, 6.0, True)]
    assert failed == [False, True], "a pass of changes, then one of all"
