"""Settling: histories of changes and readings, without a clock.

Here: each rule as a history of (time, event) with the expected deadlines and publications, and a property over random
histories. Not here: inotify and files. Invariant: times are in milliseconds; nothing waits.
"""

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.sources.settling import AT_ONCE, FollowedPath, Glance, Settling, Stamp, Touch, is_hollow, looked, touched

GOOD, NEW, EMPTY, GONE = Present(b"good"), Present(b"new"), Present(b""), Missing()
SETTLING = Settling()


def stamp(number: int) -> Stamp:
    return Stamp(1, number, 0o100644, 4, number, number)


def ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def touch(entry: FollowedPath, at: int, how: Touch = Touch.CHANGED, number: int = 1) -> FollowedPath:
    return touched(entry, at / 1000, how, stamp(number), SETTLING)


def look(entry: FollowedPath, at: int, content: FileContent, number: int = 1, *, whole: bool = True) -> FollowedPath:
    return looked(entry, at / 1000, Glance(content, stamp(number), whole), SETTLING)


REST = FollowedPath(published=GOOD, stamp=stamp(0))


def test_the_first_reading_counts_whatever_it_is() -> None:
    for content in (GOOD, EMPTY, GONE, Unreadable("why"), Directory(())):
        entry = look(touch(FollowedPath(), 0, Touch.SWAPPED), 0, content)
        assert (entry.published, entry.due) == (content, None)


def test_a_first_reading_that_was_not_whole_is_followed_by_another() -> None:
    entry = look(touch(FollowedPath(), 0, Touch.SWAPPED), 0, NEW, whole=False)
    assert (entry.published, ms(entry.due)) == (NEW, 20)


def test_a_change_is_read_20_ms_later_and_then_counts() -> None:
    entry = touch(REST, 100)
    assert ms(entry.due) == 120
    entry = look(entry, 120, NEW)
    assert (entry.published, entry.due) == (NEW, None)


def test_each_further_change_defers_the_reading() -> None:
    entry = touch(touch(REST, 100), 115)
    assert ms(entry.due) == 135


def test_steady_changes_defer_it_by_one_second_at_most() -> None:
    entry = REST
    for at in range(0, 2000, 15):
        entry = touch(entry, at)
    assert ms(entry.due) == 1000


def test_a_file_that_was_written_since_its_last_event_is_read_again() -> None:
    entry = look(touch(REST, 100, number=1), 120, NEW, number=2)
    assert (entry.published, ms(entry.due)) == (GOOD, 140)
    assert look(entry, 140, NEW, number=2).published == NEW


def test_a_file_that_never_rests_is_taken_after_one_second_if_it_was_read_whole() -> None:
    entry = touch(REST, 0, number=1)
    assert look(entry, 1000, NEW, number=9, whole=False).published == GOOD
    assert look(entry, 1000, NEW, number=9).published == NEW


def test_a_swap_is_read_at_once_whatever_comes_with_it() -> None:
    entry = touch(touch(touch(REST, 100), 110, Touch.SWAPPED, number=2), 111)
    assert ms(entry.due) == 111
    assert look(entry, 111, NEW, number=3).published == NEW


def test_a_created_file_is_left_to_its_writer() -> None:
    entry = touch(REST, 100, Touch.CREATED)
    assert ms(entry.due) == 1100
    assert ms(touch(entry, 400).due) == 420


def test_a_created_file_that_nobody_closes_is_read_after_one_second() -> None:
    entry = look(touch(REST, 100, Touch.CREATED, number=1), 1100, NEW, number=1)
    assert (entry.published, entry.due) == (NEW, None)


@pytest.mark.parametrize("hollow", [EMPTY, GONE, Present(b" \n")])
def test_an_emptied_or_missing_file_must_stay_so_for_a_second(hollow: FileContent) -> None:
    entry = look(touch(REST, 100), 120, hollow)
    assert (entry.published, ms(entry.due)) == (GOOD, 1120)
    entry = look(entry, 1120, hollow)
    assert (entry.published, entry.due) == (hollow, None)


def test_further_changes_while_it_is_empty_do_not_start_the_second_again() -> None:
    entry = look(touch(REST, 100), 120, EMPTY)
    entry = look(touch(entry, 600), 620, GONE)
    assert (entry.published, ms(entry.due)) == (GOOD, 1120)


def test_content_that_comes_back_counts_at_once() -> None:
    entry = look(touch(REST, 100), 120, EMPTY)
    entry = look(touch(entry, 600), 620, NEW)
    assert (entry.published, entry.due, entry.hollow) == (NEW, None, None)


def test_from_empty_to_missing_nothing_is_held_back() -> None:
    entry = look(touch(FollowedPath(published=EMPTY), 100), 120, GONE)
    assert (entry.published, entry.due) == (GONE, None)


def test_an_unreadable_file_counts_without_waiting() -> None:
    assert look(touch(REST, 100), 120, Unreadable("why")).published == Unreadable("why")


def test_where_all_writers_rename_nothing_waits() -> None:
    entry = touched(REST, 0.1, Touch.CHANGED, stamp(1), AT_ONCE)
    assert ms(entry.due) == 100
    entry = looked(entry, 0.1, Glance(GONE, stamp(1)), AT_ONCE)
    assert (entry.published, entry.due) == (GONE, None)


Step = tuple[int, Literal["touch", "create", "swap", "write"], FileContent]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from(["touch", "create", "swap", "write"]),
        st.sampled_from([GOOD, NEW, EMPTY, GONE]),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, settling=st.sampled_from([SETTLING, AT_ONCE]))
def test_after_any_history_the_last_content_counts_in_bounded_time(steps: list[Step], settling: Settling) -> None:
    """The oracle is the file itself: each writing is followed by an event, as the kernel's close is."""
    file: FileContent = GOOD
    version = 0
    entry = FollowedPath(published=file, stamp=stamp(version))
    now = 0.0

    def run(until: float) -> None:
        nonlocal entry
        while entry.due is not None and entry.due <= until:
            before = entry
            entry = looked(entry, entry.due, Glance(file, stamp(version)), settling)
            assert entry.published in {before.published, file}
            assert entry.due is None or before.due is None or entry.due > before.due

    kinds = {"touch": Touch.CHANGED, "create": Touch.CREATED, "swap": Touch.SWAPPED, "write": Touch.CHANGED}
    for wait, kind, content in steps:
        now += wait / 1000
        run(now)
        if kind == "write":
            file, version = content, version + 1
        entry = touched(entry, now, kinds[kind], stamp(version), settling)
        assert entry.due is not None
    run(now + 2.1)
    assert entry.due is None
    assert entry.published == file or (is_hollow(file) and is_hollow(entry.published or GONE))
