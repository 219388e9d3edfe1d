"""When a step may work again, as times: no clock runs here."""

from hypothesis import given
from hypothesis import strategies as st

from podgate.engine.pacing import FIRST_RETRY, HEAL_GAP, LAST_RETRY, Pace


def test_a_step_that_never_failed_never_waits() -> None:
    pace = Pace()
    for now in (0.0, 0.001, 5.0):
        assert pace.wait(now) == 0
        pace = pace.committed(now, healed=False)


def test_retries_wait_twice_as_long_each_time_up_to_a_bound() -> None:
    pace, now, waits = Pace(), 100.0, []
    for _ in range(12):
        pace = pace.failed(now, jitter=0.0)
        waits.append(round(pace.wait(now), 3))
        now += pace.wait(now)
    assert waits[:4] == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY, 8 * FIRST_RETRY]
    assert waits[-1] == LAST_RETRY
    assert waits == sorted(waits)


def test_jitter_adds_at_most_a_quarter() -> None:
    assert Pace().failed(0.0, jitter=1.0).wait(0.0) == FIRST_RETRY * 1.25


def test_a_commit_forgets_failures() -> None:
    pace = Pace().failed(0.0, 0.0).failed(1.0, 0.0).committed(2.0, healed=False)
    assert pace.failures == 0
    assert pace.wait(2.0) == 0


def test_the_first_heal_is_at_once_and_the_next_one_waits_for_the_gap() -> None:
    pace = Pace().drifted()
    assert pace.wait(10.0) == 0
    pace = pace.committed(10.0, healed=True).drifted()
    assert 0 < pace.wait(10.0) <= HEAL_GAP + 1e-9
    assert pace.wait(10.0 + HEAL_GAP + 0.001) == 0


def test_something_newer_than_what_failed_may_be_tried_at_once_but_a_heal_keeps_its_gap() -> None:
    pace = Pace()
    for _ in range(8):
        pace = pace.failed(10.0, 0.0)
    assert pace.wait(10.0) == LAST_RETRY
    assert pace.renewed().wait(10.0) == 0
    healed = Pace().committed(10.0, healed=True).failed(10.0, 0.0).failed(10.0, 0.0).failed(10.0, 0.0)
    assert 0 < healed.renewed().wait(10.0) <= HEAL_GAP + 1e-9


def test_a_pause_that_the_target_asks_for_holds_back_what_is_newer_too() -> None:
    pace = Pace().failed(10.0, 0.0, wait=300.0)
    assert pace.wait(10.0) == 300.0
    assert pace.renewed().wait(10.0) == 300.0
    assert pace.drifted().wait(10.0) == 300.0
    assert pace.committed(311.0, healed=False).renewed().wait(311.0) == 0


@given(st.lists(st.sampled_from(["failed", "committed", "healed", "drifted"]), max_size=30), st.floats(0, 1))
def test_no_history_makes_a_step_wait_longer_than_the_bound(history: list[str], jitter: float) -> None:
    pace, now = Pace(), 50.0
    for event in history:
        match event:
            case "failed":
                pace = pace.failed(now, jitter)
            case "drifted":
                pace = pace.drifted()
            case _:
                pace = pace.committed(now, healed=event == "healed")
        assert pace.wait(now) <= LAST_RETRY * 1.25
        now += 0.05
