"""Watching directories: each kind of event, directories that come and go, no wake-up without a reason.

Here: the real inotify on real directories. Not here: what a source makes of the events.
Invariant: a test waits for events with a deadline, and asserts the whole list.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from podgate.linux.inotify import Directories, Event, What


def gather(watched: Directories, until: Callable[[tuple[Event, ...]], bool]) -> tuple[Event, ...]:
    """Collect events until the predicate holds, for at most a minute."""

    async def collect() -> tuple[Event, ...]:
        events: tuple[Event, ...] = ()
        async with asyncio.timeout(60):
            while not until(events):
                events += await watched.events()
        return events

    return asyncio.run(collect())


def events_of(directory: Path, action: Callable[[], object]) -> list[tuple[str, What]]:
    with Directories() as watched:
        assert watched.follow([str(directory)]) == {str(directory)}
        action()
        (directory / "end").mkdir()
        events = gather(watched, lambda events: any(event.name == "end" for event in events))
        return [(event.name, event.what) for event in events if event.name != "end"]


def test_writing_a_new_file_is_its_creation_and_its_closing(tmp_path: Path) -> None:
    assert events_of(tmp_path, lambda: (tmp_path / "f").write_text("x")) == [
        ("f", What.CREATED),
        ("f", What.WRITTEN),
    ]


def test_writing_without_closing_is_no_event(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with (tmp_path / "f").open("w") as writer:

        def write() -> None:
            writer.write("y")
            writer.flush()

        assert events_of(tmp_path, write) == []


def test_a_rename_is_a_leaving_and_an_arrival(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert events_of(tmp_path, lambda: (tmp_path / "a").rename(tmp_path / "b")) == [
        ("a", What.LEFT),
        ("b", What.ARRIVED),
    ]


def test_deleting_and_changing_the_mode_are_seen_and_reading_is_not(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    def act() -> None:
        (tmp_path / "f").read_text()
        (tmp_path / "f").chmod(0)
        (tmp_path / "f").unlink()

    assert events_of(tmp_path, act) == [("f", What.WRITTEN), ("f", What.LEFT)]


@pytest.mark.parametrize("remove", [Path.rmdir, lambda path: path.rename(f"{path}-away")], ids=["deleted", "renamed"])
def test_a_directory_that_goes_says_so_and_the_next_one_of_that_name_is_followed(
    tmp_path: Path, remove: Callable[[Path], object]
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    with Directories() as watched:
        watched.follow([str(directory)])
        remove(directory)
        assert gather(watched, bool) == (Event(str(directory), "", What.GONE),)
        assert watched.follow([str(directory)]) == frozenset()
        directory.mkdir()
        assert watched.follow([str(directory)]) == {str(directory)}
        (directory / "f").mkdir()
        assert gather(watched, bool) == (Event(str(directory), "f", What.CREATED),)


def test_of_an_ancestor_only_its_own_end_matters(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    with Directories() as watched:
        watched.follow([], [str(directory)])
        (directory / "f").write_text("x")
        directory.rename(tmp_path / "e")
        assert gather(watched, bool) == (Event(str(directory), "", What.GONE),)


def test_a_directory_that_is_no_longer_followed_is_silent(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with Directories() as watched:
        watched.follow([str(tmp_path / "a"), str(tmp_path / "b")])
        watched.follow([str(tmp_path / "b")])
        (tmp_path / "a" / "f").mkdir()
        (tmp_path / "b" / "f").mkdir()
        assert gather(watched, bool) == (Event(str(tmp_path / "b"), "f", What.CREATED),)


def test_one_directory_under_two_paths_keeps_the_wider_interest(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    paths = [str(tmp_path / "d"), str(tmp_path / "link")]
    with Directories() as watched:
        watched.follow([paths[0]], [paths[1]])
        (tmp_path / "d" / "f").mkdir()
        assert gather(watched, bool) == tuple(Event(path, "f", What.CREATED) for path in paths)


def test_what_cannot_be_watched_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with Directories() as watched:
        missing = [str(tmp_path / "none"), str(tmp_path / "file"), str(tmp_path / "file" / "below")]
        assert watched.follow([str(tmp_path), *missing]) == {str(tmp_path)}


def test_lost_events_are_told(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip("this machine queues too many events to fill the queue quickly")
    (tmp_path / "a").write_text("x")
    with Directories() as watched:
        watched.follow([str(tmp_path)])
        here, there = tmp_path / "a", tmp_path / "b"
        for _ in range(limit // 4 + 10):
            here.rename(there)
            there.rename(here)
        assert gather(watched, bool)[-1] == Event("", "", What.OVERFLOW)


def test_a_cancelled_wait_loses_no_event(tmp_path: Path) -> None:
    async def wait_twice() -> tuple[Event, ...]:
        with Directories() as watched:
            watched.follow([str(tmp_path)])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await watched.events()
            (tmp_path / "f").mkdir()
            async with asyncio.timeout(60):
                return await watched.events()

    assert asyncio.run(wait_twice()) == (Event(str(tmp_path), "f", What.CREATED),)
