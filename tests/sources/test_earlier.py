"""What files said last: a process that starts beside a broken file knows what an earlier one read."""

import stat
from pathlib import Path

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.snapshot import Snapshot, Watch
from podgate.sources.earlier import FOLDER, EarlierTexts
from podgate.sources.manifests import SnapshotReader

GOOD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: one}\n"
BROKEN = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: [\n"
INVALID = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: 7\n"
OTHER = GOOD.replace("name: a", "name: other")
A = ObjectRef("ConfigMap", "a", "default")


def started(folder: Path, state: Path, *, writes: bool = True) -> Snapshot:
    """Read as a process does that has just started."""
    return SnapshotReader(str(folder), (Watch(CONFIG_MAP),), EarlierTexts(str(state), writes=writes)).load()


def said(snapshot: Snapshot) -> dict[str, str]:
    return {ref.name: obj.data["x"] for ref, obj in snapshot.objects(CONFIG_MAP).items()}


def made(tmp_path: Path) -> tuple[Path, Path]:
    folder, state = tmp_path / "objects", tmp_path / "state"
    folder.mkdir()
    (folder / "a.yaml").write_text(GOOD)
    (folder / "other.yaml").write_text(OTHER)
    return folder, state


def copies(state: Path) -> list[Path]:
    return sorted((state / FOLDER).iterdir())


def test_a_start_beside_a_broken_file_has_what_the_file_said_last(tmp_path: Path) -> None:
    folder, state = made(tmp_path)
    assert said(started(folder, state)) == {"a": "one", "other": "one"}
    for newer, bad in (("two", BROKEN), ("three", INVALID)):
        (folder / "a.yaml").write_text(bad)
        (folder / "other.yaml").write_text(OTHER.replace("one", newer))
        snapshot = started(folder, state)
        assert said(snapshot) == {"a": "one", "other": newer}
        assert [fault.severity for fault in snapshot.faults] == ["error"]
        # What is bad is no copy; the one of before outlives any number of starts.
        assert said(started(folder, state)) == said(snapshot)


def test_a_newer_good_text_and_a_file_that_is_gone_count(tmp_path: Path) -> None:
    folder, state = made(tmp_path)
    started(folder, state)
    (folder / "a.yaml").write_text(GOOD.replace("one", "two"))
    started(folder, state)
    (folder / "a.yaml").write_text(BROKEN)
    assert said(started(folder, state)) == {"a": "two", "other": "one"}
    (folder / "a.yaml").unlink()
    assert said(started(folder, state)) == {"other": "one"}
    assert len(copies(state)) == 1
    (folder / "a.yaml").write_text(BROKEN)
    assert said(started(folder, state)) == {"other": "one"}


def test_copies_are_their_owner_s_alone(tmp_path: Path) -> None:
    folder, state = made(tmp_path)
    started(folder, state)
    assert stat.S_IMODE((state / FOLDER).stat().st_mode) == 0o700
    assert [stat.S_IMODE(copy.stat().st_mode) for copy in copies(state)] == [0o600, 0o600]


def test_files_without_anything_that_is_watched_are_not_copied(tmp_path: Path) -> None:
    folder, state = made(tmp_path)
    (folder / "secret.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
    started(folder, state)
    assert len(copies(state)) == 2


def test_whoever_only_looks_writes_nothing(tmp_path: Path) -> None:
    folder, state = made(tmp_path)
    started(folder, state, writes=False)
    assert not state.exists()
    started(folder, state)
    (folder / "a.yaml").write_text(BROKEN)
    (folder / "other.yaml").unlink()
    assert said(started(folder, state, writes=False)) == {"a": "one"}
    assert len(copies(state)) == 2


def test_an_unchanged_text_is_not_written_again(tmp_path: Path) -> None:
    folder, state = made(tmp_path)
    started(folder, state)
    before = [copy.stat().st_ino for copy in copies(state)]
    started(folder, state)
    assert [copy.stat().st_ino for copy in copies(state)] == before


def test_a_state_directory_that_cannot_be_written_is_said_and_takes_nothing_else(tmp_path: Path) -> None:
    folder, _ = made(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    snapshot = started(folder, file)
    assert said(snapshot) == {"a": "one", "other": "one"}
    (fault,) = snapshot.faults
    assert (fault.reason, fault.severity) == ("NotKept", "warning")
    assert "--state-dir" in fault.message


def test_without_a_state_directory_nothing_is_kept(tmp_path: Path) -> None:
    folder, _ = made(tmp_path)
    reader = SnapshotReader(str(folder), (Watch(CONFIG_MAP),))
    reader.load()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["objects"]
