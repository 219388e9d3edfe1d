"""A follower that acts from the start: what was there before this process is not known, and still may need it."""

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
