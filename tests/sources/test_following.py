"""Following: after any history of changes it holds what one reading of the same paths gives.

Here: random histories on a real file system with the real inotify, under a time that the test moves. Not here: single
ways of editing (test_files.py). Invariant: the oracle is ``load``, which knows no events.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.linux.inotify import Directories, Event, What
from podgate.model.files import Directory, Present
from podgate.sources.following import Following, Root, load
from podgate.sources.settling import AT_ONCE, Settling

PATHS = ("f", "d", "d/f", "d/g", "d/e", "d/e/f", "l", "m", "..data", "..v1", "..v1/f", "d2")
TARGETS = ("f", "d/f", "d", "..data/f", "..v1", "nowhere", ".", "m", "d2/f")


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def folder(path: Path, text: str) -> None:
    path.mkdir()
    (path / "f").write_text(text)


OPERATIONS: dict[str, Callable[[Path, Path, str, str], object]] = {
    "write": lambda path, _other, text, _target: path.write_text(text),
    "empty": lambda path, _other, _text, _target: path.write_text(""),
    "remove": lambda path, _other, _text, _target: remove(path),
    "rename": lambda path, other, _text, _target: path.rename(other),
    "folder": lambda path, _other, _text, _target: path.mkdir(),
    "folders": lambda path, _other, text, _target: folder(path, text),
    "link": lambda path, _other, _text, target: path.symlink_to(target),
    "same": lambda path, _other, _text, _target: path.chmod(0o600 if path.is_file() else 0o755),
}

STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(OPERATIONS)),
        st.sampled_from(PATHS),
        st.sampled_from(PATHS),
        st.sampled_from(["one", "two", " "]),
        st.sampled_from(TARGETS),
        st.sampled_from([0.0, 0.005, 0.03, 0.5, 2.0]),
    ),
    max_size=25,
)
Step = tuple[str, str, str, str, str, float]


def run(following: Following, directories: Directories, start: float, end: float) -> None:
    """Let the time pass: events as they are, then each deadline until the end."""
    following.take(directories.pending(), start)
    following.settle(start)
    rounds = 0
    while (deadline := following.deadline) is not None and deadline <= end:
        following.take(directories.pending(), deadline)
        following.settle(deadline)
        rounds += 1
        assert rounds < 200, "it never comes to rest"


@settings(max_examples=120, deadline=None)
@given(steps=STEPS, recursive=st.booleans(), settling=st.sampled_from([Settling(), AT_ONCE]))
def test_any_history_ends_in_what_one_reading_gives(steps: list[Step], recursive: bool, settling: Settling) -> None:
    with tempfile.TemporaryDirectory() as name, Directories() as directories:
        base = Path(name)

        def wanted(name: str, _is_directory: bool) -> bool:
            return not name.startswith(".")

        roots = [Root(f"{base}/{path}", wanted, recursive, settling=settling) for path in ("f", "d", "l", "m", "d/f")]
        following = Following(roots, directories.follow, now=0.0)
        now = 0.0
        for operation, path, other, text, target, pause in steps:
            try:
                OPERATIONS[operation](base / path, base / other, text, target)
            except OSError:
                continue
            run(following, directories, now, now + pause)
            now += pause
        run(following, directories, now, now + 5.0)
        assert following.deadline is None
        assert following.contents() == load(roots)


def test_lost_events_are_made_up_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    with Directories() as directories:
        following = Following([Root(str(tmp_path), lambda *_: True)], directories.follow, now=0.0)
        (tmp_path / "a").write_text("two")
        (tmp_path / "b").write_text("new")
        directories.pending()
        following.take([Event("", "", What.OVERFLOW)], 1.0)
        following.settle(1.02)
        following.settle(1.04)
        assert following.contents() == {
            str(tmp_path): Directory(("a", "b")),
            str(tmp_path / "a"): Present(b"two"),
            str(tmp_path / "b"): Present(b"new"),
        }


@pytest.mark.parametrize("events", [(), (Event("/elsewhere", "x", What.WRITTEN),)])
def test_what_concerns_nothing_makes_nothing_due(tmp_path: Path, events: tuple[Event, ...]) -> None:
    with Directories() as directories:
        following = Following([Root(str(tmp_path / "f"), lambda *_: True)], directories.follow, now=0.0)
        following.changed = False
        following.take(events, 1.0)
        assert (following.deadline, following.changed) == (None, False)
