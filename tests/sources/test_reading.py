"""Reading a path without trusting it: every sort of thing that can be there, and the way to it through links.

Here: real files, links, pipes and devices. Not here: changes over time (test_files.py).
Invariant: no reading in here may block.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.sources.reading import read, stamp_of, walk

LIMIT = 100


def link(path: Path) -> None:
    (path / "b").write_text("x")
    (path / "a").symlink_to("b")


def directory(path: Path) -> None:
    (path / "a").mkdir()
    for name in ("x2", "x1", "y"):
        (path / "a" / name).touch()


def circle(path: Path) -> None:
    (path / "a").symlink_to("b")
    (path / "b").symlink_to("a")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "a"))


CASES: list[tuple[str, Callable[[Path], object], str, FileContent]] = [
    ("file", lambda d: (d / "a").write_text("x"), "a", Present(b"x")),
    ("empty", lambda d: (d / "a").touch(), "a", Present(b"")),
    ("nothing", lambda d: None, "a", Missing()),
    ("no parent", lambda d: None, "none/a", Missing()),
    ("parent is a file", lambda d: (d / "a").touch(), "a/b", Missing()),
    ("link", link, "a", Present(b"x")),
    ("dangling link", lambda d: (d / "a").symlink_to("b"), "a", Missing(dangling=True)),
    ("links in a circle", circle, "a", Unreadable(f"{os.strerror(40)}: its links lead in a circle")),
    ("at the limit", lambda d: (d / "a").write_bytes(b"x" * LIMIT), "a", Present(b"x" * LIMIT)),
    ("above it", lambda d: (d / "a").write_bytes(b"x" * 101), "a", Unreadable("it is larger than 100 bytes")),
    ("FIFO", lambda d: os.mkfifo(d / "a"), "a", Unreadable("it is a FIFO, not a regular file")),
    ("socket", listening, "a", Unreadable("it is a socket, not a regular file")),
    ("device", lambda d: (d / "a").symlink_to("/dev/tty"), "a", Unreadable("it is a device, not a regular file")),
    ("directory", directory, "a", Directory(("x1", "x2"))),
    ("NUL", lambda d: None, "a\0b", Unreadable("its name holds a NUL or another character that no file name can have")),
    ("long name", lambda d: None, "a" * 300, Unreadable(os.strerror(36))),
]


@pytest.mark.parametrize(("make", "name", "content"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.timeout(60)  # a FIFO that is opened would wait for ever
def test_whatever_is_there_becomes_a_value(
    tmp_path: Path, make: Callable[[Path], object], name: str, content: FileContent
) -> None:
    make(tmp_path)
    assert read(f"{tmp_path}/{name}", LIMIT, lambda name, _: name.startswith("x")).content == content
    walk(f"{tmp_path}/{name}")
    stamp_of(f"{tmp_path}/{name}")


def test_a_directory_that_is_not_wanted_is_unreadable(tmp_path: Path) -> None:
    assert read(str(tmp_path), LIMIT, None).content == Unreadable("it is a directory, not a regular file")


@pytest.mark.kernel
def test_a_file_without_permission_says_so_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0)
    program = "import sys; from podgate.sources.reading import read; print(read(sys.argv[1], 9, None).content.why)"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", program, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("Permission denied; give podgate's user read permission")


def test_a_path_without_links_is_looked_up_in_its_parent(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    trail = walk(f"{real}/a")
    assert trail.lookups == ((str(real), "a"),)
    assert trail.end == f"{real}/a"
    assert {"/", str(real), str(real.parent)} <= trail.through


def test_each_link_on_the_way_is_a_lookup_of_its_own(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    (real / "..v1").mkdir()
    (real / "..v1" / "config").write_text("x")
    (real / "..data").symlink_to("..v1")
    (real / "config").symlink_to("..data/config")
    assert walk(f"{real}/config").lookups == (
        (str(real), "config"),
        (str(real), "..data"),
        (f"{real}/..v1", "config"),
    )


@pytest.mark.parametrize("target", ["{real}/d/f", "../{name}/d/f", "./d//f"])
def test_absolute_relative_and_untidy_targets_lead_to_one_end(tmp_path: Path, target: str) -> None:
    real = tmp_path.resolve()
    (real / "d").mkdir()
    (real / "d" / "f").touch()
    (real / "a").symlink_to(target.format(real=real, name=real.name))
    trail = walk(f"{real}/a")
    assert trail.end == f"{real}/d/f"
    assert trail.lookups[-1] == (f"{real}/d", "f")


def test_where_a_parent_is_missing_the_deepest_existing_one_is_looked_at(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    assert walk(f"{real}/no/such/file").lookups == ((str(real), "no"),)


def test_a_relative_path_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert walk("a").lookups == ((str(tmp_path.resolve()), "a"),)


def test_dots_after_a_link_go_up_from_where_it_leads(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    (real / "x" / "y").mkdir(parents=True)
    (real / "l").symlink_to("x/y")
    assert walk(f"{real}/l/../f").end == f"{real}/x/f"
