"""The loop over histories in every order: publishes, drift, failures and refusals at every point."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.engine.pacing import HEAL_GAP
from podgate.engine.reconcile import Board, StepTask, bring_to
from podgate.joints import ApplyError, Compiled, Refused, Step, Turned
from podgate.model.frozen import Frozen
from tests.support.fake_target import FakeFollower, FakePlan, FakeTarget, Heard, State
from tests.support.virtual_time import run_virtual


class States(Frozen, frozen=True):
    first: Mapping[str, str]
    second: Mapping[str, str] = {}
    resync: float | None = None


AnyStep = Step[States, State, FakePlan]


class Rig:
    """Two steps, the second after the first, over fake targets."""

    def __init__(self) -> None:
        self.first, self.second, self.follower, self.heard = FakeTarget(), FakeTarget(), FakeFollower(), Heard()
        one: AnyStep = Step(
            "first",
            self.first,
            lambda states: states.first,
            {},
            followers=(self.follower,),
            resync=lambda states: states.resync,
            gap=lambda _states: self.gap,
        )
        two: AnyStep = Step("second", self.second, lambda states: states.second, {}, after=("first",))
        self.board: Board[States] = Board((one, two))
        self.published: list[State] = []
        self.gap = 0.0

    def publish(self, first: State, second: State | None = None, resync: float | None = None) -> None:
        self.published.append(first)
        self.board.publish(Compiled(States(first, second or {}, resync)))

    async def settled(self, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not (self.board.settled() and self.right(self.first, "first") and self.right(self.second, "second")):
                await asyncio.sleep(0.01)

    def right(self, target: FakeTarget, name: str) -> bool:
        assert self.board.compiled is not None
        want = getattr(self.board.compiled.states, name)
        return target.state == {key: value for key, value in want.items() if not value.startswith("bad")}


def play(story: Callable[[Rig], Any]) -> Rig:
    async def run() -> Rig:
        rig = Rig()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(StepTask(step, rig.board, rig.heard, lambda: 0.0).run()) for step in rig.board.steps
            ]
            await story(rig)
            for task in tasks:
                task.cancel()
        return rig

    return run_virtual(run())


def test_the_newest_state_reaches_the_target_and_a_burst_may_be_merged() -> None:
    async def story(rig: Rig) -> None:
        for number in range(20):
            rig.publish({"a": str(number)})
        await rig.settled()

    rig = play(story)
    assert rig.first.state == {"a": "19"}
    assert len(rig.first.plans) == 1


def test_the_target_is_read_once_and_then_remembered() -> None:
    async def story(rig: Rig) -> None:
        for number in range(5):
            rig.publish({"a": str(number)})
            await rig.settled()

    rig = play(story)
    assert rig.first.reads == 1
    assert [str(plan) for plan in rig.first.plans] == [f"+a={number}" for number in range(5)]


def test_what_is_right_already_is_not_written() -> None:
    async def story(rig: Rig) -> None:
        rig.first.state = {"a": "1"}
        rig.publish({"a": "1"})
        await rig.settled()

    assert play(story).first.plans == []


def test_a_step_waits_until_the_step_before_it_has_committed_the_generation() -> None:
    async def story(rig: Rig) -> None:
        rig.first.fail_applies = 4
        rig.publish({"a": "1"}, {"b": "1"})
        await asyncio.sleep(0.5)
        assert rig.second.state == {}
        await rig.settled()
        order = [applied.step for applied in rig.heard.commits]
        assert order == ["first", "second"]

    play(story)


def test_a_failure_makes_the_state_unknown_and_is_retried_without_end() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1", "b": "2"})
        await rig.settled()
        rig.first.fail_applies = 3
        rig.publish({"a": "2", "b": "3"})
        await rig.settled()

    rig = play(story)
    assert len(rig.heard.failures) == 3
    assert rig.first.reads == 4  # once at the start, once after each failure


def test_drift_is_healed_at_once_and_counted() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"})
        await rig.settled()
        now = asyncio.get_running_loop().time()
        rig.first.drift("a", None)
        await rig.settled()
        assert asyncio.get_running_loop().time() - now < 0.1

    rig = play(story)
    assert rig.first.state == {"a": "1"}
    assert [applied.healed for applied in rig.heard.commits if applied.step == "first"] == [False, True]


def test_a_fight_over_a_key_is_paced() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"})
        await rig.settled()
        for _ in range(100):
            rig.first.drift("a", None)
            await asyncio.sleep(0.01)
        await rig.settled()

    heals = [applied for applied in play(story).heard.commits if applied.healed]
    assert 2 <= len(heals) <= 1 / HEAL_GAP + 2


def test_drift_during_an_apply_is_healed_afterwards() -> None:
    async def story(rig: Rig) -> None:
        rig.first.slow = 0.05
        rig.publish({"a": "1"})
        await asyncio.sleep(0.07)  # inside apply
        rig.first.drift("x", "foreign")
        await rig.settled()

    assert play(story).first.state == {"a": "1"}


def test_a_periodic_check_finds_drift_that_nobody_told_of() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"}, resync=30.0)
        await rig.settled()
        rig.first.state["a"] = "2"
        await asyncio.sleep(29.0)
        assert rig.first.state == {"a": "2"}
        await asyncio.sleep(2.0)
        assert rig.first.state == {"a": "1"}
        await asyncio.sleep(300.0)

    assert 10 <= play(story).first.reads <= 13


def test_without_a_check_nothing_wakes_up() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"})
        await rig.settled()
        await asyncio.sleep(100_000.0)

    assert play(story).first.reads == 1


def test_a_refused_key_is_not_sent_again_until_it_differs() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "bad", "b": "1"})
        await rig.settled()
        assert rig.heard.refusals["first"] == {"a": "bad is refused"}
        rig.publish({"a": "bad", "b": "2"})
        await rig.settled()
        assert [str(plan) for plan in rig.first.plans] == ["+a=bad, +b=1", "+b=2"]
        rig.publish({"a": "good", "b": "2"})
        await rig.settled()
        assert rig.heard.refusals["first"] == {}

    assert play(story).first.state == {"a": "good", "b": "2"}


def test_a_remote_refusal_is_reported_and_changes_nothing() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"})
        await rig.settled()
        rig.first.signal(Refused("a", "listener is in use"))
        await asyncio.sleep(1.0)
        assert rig.heard.refusals["first"] == {"a": "listener is in use"}

    assert len(play(story).first.plans) == 1


def test_a_turn_has_everything_read_again_and_is_no_drift() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"})
        await rig.settled()
        rig.first.state = {}
        rig.first.signal(Turned("we lead now"))
        await rig.settled()

    rig = play(story)
    assert rig.first.reads == 2
    assert rig.first.state == {"a": "1"}
    assert (rig.heard.turns, rig.heard.drifts) == (["we lead now"], [])
    assert not any(applied.healed for applied in rig.heard.commits)


def test_a_follower_sees_the_oldest_change_that_it_has_not_followed() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "0"})
        await rig.settled()
        rig.follower.fail = 2
        rig.publish({"a": "1"})
        await rig.settled()
        rig.publish({"a": "2"})
        await rig.settled()
        await asyncio.sleep(5.0)

    assert play(story).follower.followed == [(States({"a": "0"}), States({"a": "2"}))]


def test_the_first_commit_of_a_process_is_no_change_to_follow() -> None:
    async def story(rig: Rig) -> None:
        rig.first.state = {"old": "1"}
        rig.publish({"a": "0"})
        await rig.settled()
        await asyncio.sleep(5.0)

    assert play(story).follower.followed == []


def test_a_change_whose_answer_was_lost_is_followed_all_the_same() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "0"})
        await rig.settled()
        rig.first.fail_answers = 1
        rig.publish({"a": "1"})
        await rig.settled()
        await asyncio.sleep(5.0)

    assert play(story).follower.followed == [(States({"a": "0"}), States({"a": "1"}))]


def test_a_corrected_state_does_not_wait_for_the_back_off_of_the_refused_one() -> None:
    async def story(rig: Rig) -> None:
        rig.first.fail_applies = 9
        rig.publish({"a": "wrong"})
        await asyncio.sleep(40.0)
        rig.first.fail_applies = 0
        rig.publish({"a": "right"})
        await rig.settled(0.1)

    play(story)


def test_drift_is_told_once_until_it_is_put_right() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "1"})
        await rig.settled()
        rig.first.fail_reads = 3
        for number in range(20):
            rig.first.drift("a", str(number))
        await rig.settled()
        rig.first.drift("a", None)
        await rig.settled()

    assert len(play(story).heard.drifts) == 2


def test_a_step_that_only_clears_up_holds_nothing_up() -> None:
    target = FakeTarget({"foreign": "1"})
    target.fail_reads = 1_000
    chosen: AnyStep = Step("chosen", FakeTarget(), lambda states: states.first, {})
    clearing: AnyStep = Step("clearing", target, lambda _states: {}, {}, after=("chosen",), essential=False)
    board: Board[States] = Board((chosen, clearing))
    board.publish(Compiled(States({"a": "1"})))
    assert not board.settled()
    board.commit("chosen", 1)
    assert board.settled()


def test_a_failing_follower_never_blocks_its_step() -> None:
    async def story(rig: Rig) -> None:
        rig.publish({"a": "0"})
        await rig.settled()
        rig.follower.fail = 10_000
        rig.publish({"a": "1"}, {"b": "1"})
        await rig.settled(1.0)

    assert play(story).second.state == {"b": "1"}


EVENTS: Mapping[str, Callable[[Rig], None]] = {
    "publish x": lambda rig: rig.publish({"a": "x", "b": "1"}, {"c": "x"}),
    "publish y": lambda rig: rig.publish({"a": "y"}, {"c": "y", "d": "1"}),
    "drift": lambda rig: rig.first.drift("a", "foreign"),
    "drift of the second": lambda rig: rig.second.drift("z", "foreign"),
    "apply fails": lambda rig: setattr(rig.first, "fail_applies", rig.first.fail_applies + 1),
    "read fails": lambda rig: setattr(rig.first, "fail_reads", rig.first.fail_reads + 1),
    "second fails": lambda rig: setattr(rig.second, "fail_applies", rig.second.fail_applies + 1),
    "follower fails": lambda rig: setattr(rig.follower, "fail", rig.follower.fail + 1),
}


async def unroll(rig: Rig, names: tuple[str, ...], pause: float) -> None:
    rig.publish({"a": "start"}, {"c": "start"})
    for name in names:
        EVENTS[name](rig)
        await asyncio.sleep(pause)
    await rig.settled()
    await asyncio.sleep(60.0)


def assert_followed(rig: Rig) -> None:
    """Every change was followed, without a gap, from the first commit to the newest states."""
    assert rig.board.compiled is not None
    newest = rig.board.compiled.states.first
    ends = [after.first for _, after in rig.follower.followed]
    starts = [before.first for before, _ in rig.follower.followed]
    committed = [rig.published[applied.generation - 1] for applied in rig.heard.commits if applied.step == "first"]
    assert starts[1:] == ends[:-1]
    assert (starts[:1] or committed[:1]) == committed[:1]
    assert (ends[-1:] or committed[:1]) == [newest]


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.5])
def test_short_histories_in_every_order_end_right(pause: float) -> None:
    chosen = ("publish x", "drift", "apply fails", "read fails", "second fails")
    for names in permutations(chosen):
        rig = play(partial(unroll, names=names, pause=pause))
        assert rig.first.state == {"a": "x", "b": "1"}, names
        assert rig.second.state == {"c": "x"}, names
        assert_followed(rig)


@given(
    st.lists(st.sampled_from(sorted(EVENTS)), max_size=12).map(tuple),
    st.sampled_from([0.0, 0.003, 0.02, 0.4]),
    st.sampled_from([0.0, 0.004]),
)
def test_random_histories_end_right(names: tuple[str, ...], pause: float, slow: float) -> None:
    def story(rig: Rig) -> Any:
        rig.first.slow = rig.second.slow = slow
        return unroll(rig, names, pause)

    rig = play(story)
    assert rig.right(rig.first, "first")
    assert rig.right(rig.second, "second")
    assert_followed(rig)


def test_bring_to_applies_once_and_refusals_are_errors() -> None:
    async def run() -> None:
        target = FakeTarget({"old": "1"})
        step: AnyStep = Step("first", target, lambda states: states.first, {})
        assert str(await bring_to(step, {"a": "1"})) == "+a=1, -old"
        assert not await bring_to(step, {"a": "1"})
        with pytest.raises(ApplyError, match="b: bad is refused"):
            await bring_to(step, {"b": "bad"})

    run_virtual(run())
