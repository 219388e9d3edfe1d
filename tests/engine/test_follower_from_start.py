"""A follower that acts from the start, though nobody knows what was there; and a step that keeps its distance."""

import asyncio
from itertools import pairwise

from tests.engine.test_reconcile import Rig, States, play


def test_it_is_told_of_the_first_commit_and_then_of_changes() -> None:
    async def story(rig: Rig) -> None:
        rig.follower.from_start = True
        for value in ("0", "1"):
            rig.publish({"a": value})
            await rig.settled()
            await asyncio.sleep(1)

    assert play(story).follower.followed == [*pairwise([None, States({"a": "0"}), States({"a": "1"})])]


def test_a_step_with_a_gap_writes_what_came_in_between_together() -> None:
    began: list[float] = []

    async def story(rig: Rig) -> None:
        rig.gap = 10.0
        rig.publish({"a": "0"})
        await rig.settled()
        began.append(asyncio.get_running_loop().time())
        for value in ("1", "2", "3"):
            rig.publish({"a": value})
            await asyncio.sleep(1)
        await rig.settled()
        began.append(asyncio.get_running_loop().time())

    rig = play(story)
    written = [applied.plan for applied in rig.heard.commits if applied.step == "first" and applied.plan]
    assert len(written) == 2
    assert "3" in written[1]
    assert 9.0 <= began[1] - began[0] <= 11.0
