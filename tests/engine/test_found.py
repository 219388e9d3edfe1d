"""What a follower is told of what its step read back: what was in force before a start, or after others' changes."""

import asyncio

from podgate.engine.reconcile import FollowerTask
from tests.engine.test_reconcile import Rig, States, play

OLD, A = {"old": "1"}, {"a": "0"}


async def followed(rig: Rig) -> None:
    await rig.settled()
    await asyncio.sleep(5.0)


async def begun(rig: Rig) -> None:
    """Start on what an earlier process left."""
    rig.follower.from_start = True
    rig.first.state = dict(OLD)
    rig.publish(A)


def test_a_start_tells_what_was_in_force_before_it() -> None:
    async def story(rig: Rig) -> None:
        await begun(rig)
        await followed(rig)
        rig.publish({"a": "1"})
        await followed(rig)

    assert play(story).follower.found == [OLD, None], "and later changes of our own are known by the states"


def test_a_start_that_finds_what_it_wants_has_nothing_to_tell() -> None:
    async def story(rig: Rig) -> None:
        rig.follower.from_start = True
        rig.first.state = dict(A)
        rig.publish(A)
        await followed(rig)

    rig = play(story)
    assert (rig.follower.followed, rig.follower.found) == ([(None, States(A))], [None])


def test_a_heal_is_followed_with_what_others_had_made_of_it() -> None:
    async def story(rig: Rig) -> None:
        rig.publish(A)
        await followed(rig)
        rig.first.drift("a", None)
        await followed(rig)

    rig = play(story)
    assert (rig.follower.followed, rig.follower.found) == ([(States(A), States(A))], [{}])


def test_a_notification_of_what_is_right_again_is_no_change() -> None:
    async def story(rig: Rig) -> None:
        rig.publish(A)
        await followed(rig)
        rig.first.drift("a", "0")
        await followed(rig)

    assert play(story).follower.found == []


def test_what_was_read_first_is_told_after_attempts_that_did_half_of_their_work() -> None:
    async def story(rig: Rig) -> None:
        rig.first.fail_applies = 2
        await begun(rig)
        await followed(rig)

    assert play(story).follower.found == [OLD]


def test_what_was_read_first_is_told_after_an_attempt_whose_answer_was_lost() -> None:
    async def story(rig: Rig) -> None:
        rig.publish(A)
        await followed(rig)
        rig.first.fail_answers = 1
        rig.first.drift("a", "foreign")
        await followed(rig)

    rig = play(story)
    assert rig.follower.found == [{"a": "foreign"}]
    assert rig.follower.followed == [(States(A), States(A))]


def test_what_was_read_first_is_told_to_a_follower_that_failed_meanwhile() -> None:
    async def story(rig: Rig) -> None:
        rig.follower.fail = 3
        await begun(rig)
        await rig.settled()
        rig.first.drift("a", "foreign")
        await followed(rig)
        await asyncio.sleep(60.0)

    rig = play(story)
    assert rig.follower.found == [OLD]
    assert rig.follower.followed == [(None, States(A))]


def test_what_stays_since_it_is_refused_is_told_once_it_goes() -> None:
    async def story(rig: Rig) -> None:
        rig.follower.from_start = True
        rig.first.state, rig.first.refuses = dict(OLD), True
        rig.publish({}, resync=10.0)
        await asyncio.sleep(35.0)
        assert (rig.first.reads, rig.first.state, set(rig.follower.found)) == (4, OLD, {None})
        rig.first.refuses = False
        await asyncio.sleep(35.0)

    assert [each for each in play(story).follower.found if each is not None] == [OLD]


def test_a_change_while_a_follower_works_is_merged_with_the_one_that_it_fails_at() -> None:
    async def story(rig: Rig) -> None:
        task: FollowerTask[str, str] = FollowerTask(rig.follower, "step", rig.heard, lambda: 0.0)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(task.run())
            rig.follower.fail = 1
            task.follow("a", "b", None)
            await asyncio.sleep(0.005)  # it is at work now
            task.follow("b", "c", "found")
            await asyncio.sleep(60.0)
            running.cancel()

    rig = play(story)
    assert (rig.follower.followed, rig.follower.found) == ([("a", "c")], ["found"])
