"""What is kept on disk: whole or absent, its owner's alone, forgotten on request."""

import os
from pathlib import Path

import pytest

from podgate.engine.kept import MAX_BYTES, KeptDirectory, kept_in


def test_what_was_saved_is_loaded_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    kept = KeptDirectory(tmp_path / "a" / "state")
    assert kept.load() == ({}, {})
    kept.save({"config.json": b"one", "other": b"two"})
    kept.save({"config.json": b"three"})
    assert kept.load() == ({"config.json": b"three", "other": b"two"}, {})
    assert (tmp_path / "a" / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "state" / "config.json").stat().st_mode & 0o777 == 0o600


def test_what_was_kept_can_be_forgotten_twice(tmp_path: Path) -> None:
    kept = KeptDirectory(tmp_path / "state")
    kept.save({"config.json": b"one"})
    assert kept.forget()
    assert not (tmp_path / "state").exists()
    assert not kept.forget()


def test_without_a_folder_nothing_is_kept_and_nothing_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_bytes(b"not ours")
    kept = kept_in("")
    kept.save({"config.json": b"one"})
    assert kept.load() == ({}, {})
    assert kept.is_writable()
    assert not kept.forget()
    assert (tmp_path / "config.json").read_bytes() == b"not ours"
    assert kept_in("/x").path == Path("/x")


def test_a_foreign_file_in_the_directory_keeps_the_directory(tmp_path: Path) -> None:
    kept = KeptDirectory(tmp_path)
    kept.save({"config.json": b"one"})
    (tmp_path / "folder").mkdir()
    assert kept.forget()
    assert (tmp_path / "folder").exists()


def test_a_file_that_is_half_written_by_nobody_is_never_loaded(tmp_path: Path) -> None:
    (tmp_path / ".config.json.tmp").write_bytes(b"half")
    assert KeptDirectory(tmp_path).load() == ({}, {})


def test_what_is_no_file_of_ours_does_not_hide_what_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"good")
    (tmp_path / "lost+found").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert KeptDirectory(tmp_path).load() == ({"config.json": b"good"}, {})


def test_a_file_that_is_too_large_is_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"good")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(MAX_BYTES + 1)
    kept, faults = KeptDirectory(tmp_path).load()
    assert kept == {"config.json": b"good"}
    assert faults == {str(tmp_path / "large"): "it is larger than 16 MiB"}


def test_a_path_that_is_no_directory_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert KeptDirectory(path).load() == ({}, {str(path): "Not a directory"})
    with pytest.raises(OSError, match="File exists"):
        KeptDirectory(path).save({"config.json": b"x"})
