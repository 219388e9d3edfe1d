"""Atomic files: old or new, never between, never lost.

Here: writing over, permissions, links, crashes at each system call, full and read-only file systems.
Not here: who calls it. Invariant: every test looks at the real file system afterwards.
"""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from podgate.linux.atomic import write_atomic


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_new_file_has_its_bytes_and_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write_atomic(str(tmp_path / "kept"), b"one")
    finally:
        os.umask(old)
    assert (tmp_path / "kept").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600
    assert names(tmp_path) == ["kept"]


def test_a_rewrite_replaces_the_file_under_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_atomic(str(path), b"one")
    with path.open("rb") as reader:
        write_atomic(str(path), b"two", mode=0o644)
        assert reader.read() == b"one"
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_link_is_replaced_and_what_it_pointed_at_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "kept").symlink_to("target")
    write_atomic(str(tmp_path / "kept"), b"new")
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert not (tmp_path / "kept").is_symlink()


def test_a_left_over_of_a_crash_is_removed_by_the_next_write_even_if_it_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / ".kept.new").symlink_to("victim")
    write_atomic(str(tmp_path / "kept"), b"new")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert names(tmp_path) == ["kept", "victim"]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"cannot write {tmp_path}/no/kept: No such file or directory"):
        write_atomic(str(tmp_path / "no" / "kept"), b"x")


def test_a_failed_rename_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with pytest.raises(IsADirectoryError, match="cannot write"):
        write_atomic(str(tmp_path / "kept"), b"x")
    assert names(tmp_path) == ["kept"]


PROGRAM = """
import sys
from podgate.linux.atomic import write_atomic
write_atomic(sys.argv[1], b"new" * 1000)
"""


@pytest.mark.parametrize("call", ["fchmod", "write", "rename"])
@pytest.mark.parametrize("error", ["signal=KILL", "error=ENOSPC:when=1", "error=EIO:when=1"])
def test_a_crash_or_failure_at_a_system_call_leaves_the_old_file(tmp_path: Path, call: str, error: str) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    done = traced(call, error, path)
    assert done.returncode == -signal.SIGKILL if error == "signal=KILL" else b"cannot write" in done.stderr
    assert path.read_bytes() == b"old"
    write_atomic(str(path), b"next")
    assert names(tmp_path) == ["kept"]
    assert path.read_bytes() == b"next"


@pytest.mark.parametrize(("when", "content"), [(1, b"old"), (2, b"new" * 1000)])
def test_a_crash_at_a_sync_leaves_the_old_or_the_new_file(tmp_path: Path, when: int, content: bytes) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    assert traced("fsync", f"signal=KILL:when={when}", path).returncode == -signal.SIGKILL
    assert path.read_bytes() == content


def traced(call: str, injection: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the write in a process of its own, with one system call killed or failed by strace."""
    command = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{injection}"]
    return subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, str(path)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        timeout=60,
    )


REPORT = """
import errno, os, sys
from podgate.linux.atomic import write_atomic
path = sys.argv[1]
try:
    write_atomic(path, b"x" * 1_000_000)
except OSError as error:
    print(errno.errorcode[error.errno], error.strerror, sorted(os.listdir(os.path.dirname(path))))
"""


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("options", "number"), [("size=64k", errno.ENOSPC), ("ro", errno.EROFS)], ids=["full", "read-only"]
)
def test_a_full_or_read_only_file_system_is_said_in_plain_words(tmp_path: Path, options: str, number: int) -> None:
    script = f'mount -t tmpfs -o {options} podgate-test "$1" && exec "$2" -c "$3" "$1/kept"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, REPORT],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    message = f"cannot write {tmp_path}/kept: {os.strerror(number)}"
    assert done.stdout.strip() == f"{errno.errorcode[number]} {message} []"
