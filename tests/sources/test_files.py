"""FileSource: real edits of real files, and what arrives.

Here: editors' and kubelet's ways to change a file, directories, paths that come and go, the cost of waiting.
Not here: the timing rules themselves (test_settling.py).
Invariant: but for one test, time is virtual: the kernel's events are real and there at once, waiting takes no time, and
a duration is exact whatever else the machine does.
"""

import asyncio
import contextlib
import errno
import gc
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from podgate.model.files import Directory, FileContent, FileWatch, Missing, Present, Unreadable
from podgate.sources.files import FileSource, load_files
from tests.support.asynchronous import in_loop
from tests.support.virtual_time import in_virtual_time, jumps, now
from tests.support.volume import Volume

Files = Mapping[str, FileContent]


class Reader:
    """Takes values from a source in a task, and keeps them with the time at which they came."""

    def __init__(self) -> None:
        self.values: list[Files] = []
        self.times: list[float] = []
        self.news = asyncio.Condition()

    async def run(self, values: AsyncIterator[Files]) -> None:
        async for value in values:
            self.values.append(value)
            self.times.append(now())
            async with self.news:
                self.news.notify_all()

    async def until(self, path: object, content: FileContent, within: float = 5.0) -> float:
        """Wait until the newest value says so; give when it came."""
        async with asyncio.timeout(within), self.news:
            await self.news.wait_for(lambda: bool(self.values) and self.values[-1].get(str(path)) == content)
        return self.times[-1]


@contextlib.asynccontextmanager
async def reading(*watches: FileWatch) -> AsyncIterator[Reader]:
    reader = Reader()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run(FileSource(watches).values()))
        async with asyncio.timeout(5), reader.news:
            await reader.news.wait_for(lambda: bool(reader.values))
        yield reader
        task.cancel()


def watch(path: Path, pattern: str = "*") -> FileWatch:
    return FileWatch(str(path), pattern)


@in_virtual_time
async def test_the_first_value_comes_at_once(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one")
    start = now()
    async with reading(watch(tmp_path / "f"), watch(tmp_path / "g")) as reader:
        assert reader.times == [start]
        assert reader.values == [{str(tmp_path / "f"): Present(b"one"), str(tmp_path / "g"): Missing()}]


@in_virtual_time
async def test_where_nothing_is_watched_that_is_the_value() -> None:
    async with reading() as reader:
        assert reader.values == [{}]


@in_virtual_time
async def test_an_edit_in_place_a_replacement_and_a_link_arrive(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    async with reading(watch(path)) as reader:
        start = now()
        path.write_text("two")
        assert await reader.until(path, Present(b"two")) - start == pytest.approx(0.02)
        (tmp_path / "g").write_text("three")
        (tmp_path / "g").rename(path)
        await reader.until(path, Present(b"three"))
        (tmp_path / "h").write_text("four")
        path.unlink()
        path.symlink_to("h")
        await reader.until(path, Present(b"four"))
        (tmp_path / "h").write_text("five")
        await reader.until(path, Present(b"five"))
        path.unlink()
        os.link(tmp_path / "h", path)
        (tmp_path / "h").unlink()
        path.write_text("six")
        await reader.until(path, Present(b"six"))
        assert len(reader.values) == 6


@in_virtual_time
async def test_a_slow_writer_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "f"
    async with reading(watch(path)) as reader:
        with path.open("w") as writer:
            for _ in range(5):
                writer.write("line\n")
                writer.flush()
                await asyncio.sleep(0.05)
        await reader.until(path, Present(b"line\n" * 5))
        assert len(reader.values) == 2


@pytest.mark.parametrize("how", ["truncate", "delete", "move away"])
@in_virtual_time
async def test_an_editor_that_empties_or_moves_the_file_first_is_not_believed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    async with reading(watch(path)) as reader:
        match how:
            case "truncate":
                path.write_text("")
            case "delete":
                path.unlink()
            case _:
                path.rename(tmp_path / "f~")
        await asyncio.sleep(0.3)
        path.write_text("two")
        await reader.until(path, Present(b"two"))
        assert len(reader.values) == 2


@pytest.mark.parametrize(("how", "content"), [("truncate", Present(b"")), ("delete", Missing())])
@in_virtual_time
async def test_a_file_that_stays_empty_or_missing_is_believed_after_a_second(
    tmp_path: Path, how: str, content: FileContent
) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    async with reading(watch(path)) as reader:
        start = now()
        if how == "truncate":
            path.write_text("")
        else:
            path.unlink()
        assert await reader.until(path, content) - start == pytest.approx(1.02)


@in_virtual_time
async def test_equal_content_is_no_new_value(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    async with reading(watch(path)) as reader:
        path.write_text("one")
        os.utime(path)
        path.chmod(0o600)
        (tmp_path / "neighbour").write_text("x")
        await asyncio.sleep(0.1)
        path.write_text("two")
        await reader.until(path, Present(b"two"))
        assert len(reader.values) == 2


@in_virtual_time
async def test_kubelet_s_swap_is_read_at_once(tmp_path: Path) -> None:
    volume, path = Volume(tmp_path / "volume"), tmp_path / "volume" / "config"
    volume.swap({"config": "v1"})
    async with reading(watch(path)) as reader:
        for version in range(2, 7):
            start = now()
            volume.swap({"config": f"v{version}"})
            assert await reader.until(path, Present(f"v{version}".encode())) == start
        assert len(reader.values) == 6


@in_virtual_time
async def test_a_key_that_kubelet_adds_or_takes_away_comes_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    volume, path = Volume(folder), folder / "config"
    volume.swap({"other": "x"})
    async with reading(watch(path), watch(folder)) as reader:
        assert reader.values[0][str(folder)] == Directory(("other",))
        volume.swap({"other": "x", "config": "v2"})
        await reader.until(path, Present(b"v2"))
        await reader.until(folder, Directory(("config", "other")))
        volume.swap({"other": "x"})
        await reader.until(path, Missing())
        await reader.until(folder, Directory(("other",)))


@in_virtual_time
async def test_a_directory_gives_its_matching_files_and_their_changes(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    for name in ("ip-masq-b", "ip-masq-a", "other", ".ip-masq-c", "ip-masq-a~"):
        (root / name).write_text(name)
    (root / "ip-masq-dir").mkdir()
    async with reading(watch(root, "ip-masq*")) as reader:
        names = ("ip-masq-a", "ip-masq-b", "ip-masq-dir")
        assert reader.values[0] == {
            str(root): Directory(names),
            str(root / "ip-masq-a"): Present(b"ip-masq-a"),
            str(root / "ip-masq-b"): Present(b"ip-masq-b"),
            str(root / "ip-masq-dir"): Unreadable("it is a directory, not a regular file"),
        }
        (root / "ip-masq-0").write_text("zero")
        await reader.until(root, Directory(("ip-masq-0", *names)))
        assert reader.values[-1][str(root / "ip-masq-0")] == Present(b"zero")
        (root / "ip-masq-b").write_text("b2")
        await reader.until(root / "ip-masq-b", Present(b"b2"))
        start = now()
        (root / "ip-masq-a").unlink()
        came = await reader.until(root, Directory(("ip-masq-0", "ip-masq-b", "ip-masq-dir")))
        assert came - start == pytest.approx(1.02)
        assert str(root / "ip-masq-a") not in reader.values[-1]


@in_virtual_time
async def test_a_directory_that_is_replaced_keeps_its_files_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    (root / "a").write_text("one")
    async with reading(watch(root)) as reader:
        shutil.rmtree(root)
        await asyncio.sleep(0.2)
        root.mkdir()
        (root / "a").write_text("two")
        await reader.until(root / "a", Present(b"two"))
        assert [value[str(root)] for value in reader.values] == [Directory(("a",))] * 2
        root.rename(tmp_path / "e")
        await reader.until(root, Missing())
        assert reader.values[-1] == {str(root): Missing()}
        (tmp_path / "e").rename(root)
        await reader.until(root / "a", Present(b"two"))


@in_virtual_time
async def test_a_path_appears_with_its_parents_and_goes_with_them(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "f"
    async with reading(watch(path)) as reader:
        path.parent.mkdir(parents=True)
        path.write_text("one")
        await reader.until(path, Present(b"one"))
        (tmp_path / "a").rename(tmp_path / "away")
        await reader.until(path, Missing())
        (tmp_path / "away").rename(tmp_path / "a")
        await reader.until(path, Present(b"one"))


@in_virtual_time
async def test_a_file_becomes_a_directory_and_a_file_again(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("one")
    async with reading(watch(path)) as reader:
        path.unlink()
        path.mkdir()
        (path / "x").write_text("two")
        await reader.until(path / "x", Present(b"two"))
        shutil.rmtree(path)
        path.write_text("three")
        await reader.until(path, Present(b"three"))
        assert set(reader.values[-1]) == {str(path)}


@in_virtual_time
async def test_a_dangling_link_is_followed_once_it_leads_somewhere(tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.symlink_to("far/target")
    async with reading(watch(path)) as reader:
        assert reader.values == [{str(path): Missing(dangling=True)}]
        (tmp_path / "far").mkdir()
        (tmp_path / "far" / "target").write_text("x")
        await reader.until(path, Present(b"x"))


@in_virtual_time
async def test_links_in_a_directory_that_lead_nowhere_or_in_a_circle_are_told_and_followed(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    (root / "circle").symlink_to("circle")
    (root / "dangling").symlink_to("../target")
    (root / "up").symlink_to("..")
    async with reading(watch(root)) as reader:
        assert reader.values[0] == {
            str(root): Directory(("circle", "dangling")),
            str(root / "circle"): Unreadable(f"{os.strerror(errno.ELOOP)}: its links lead in a circle"),
            str(root / "dangling"): Missing(dangling=True),
        }
        (tmp_path / "target").write_text("x")
        await reader.until(root / "dangling", Present(b"x"))


@in_virtual_time
async def test_a_relative_path_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    async with reading(FileWatch("d/")) as reader:
        assert reader.values == [{"d/": Directory(())}]
        (tmp_path / "d" / "f").write_text("x")
        await reader.until("d/f", Present(b"x"))
        (tmp_path / "d" / "f").unlink()
        await reader.until("d/", Directory(()))


@in_virtual_time
async def test_the_last_of_a_burst_arrives(tmp_path: Path) -> None:
    path = tmp_path / "f"
    async with reading(watch(path)) as reader:
        for number in range(500):
            path.write_text(str(number))
        await reader.until(path, Present(b"499"))


@in_virtual_time
async def test_each_of_many_awaited_edits_arrives(tmp_path: Path) -> None:
    await awaited_edits(tmp_path, 100)


@in_loop
async def test_awaited_edits_arrive_in_real_time_too(tmp_path: Path) -> None:
    await awaited_edits(tmp_path, 20)


async def awaited_edits(folder: Path, count: int) -> None:
    path = folder / "f"
    async with reading(watch(path)) as reader:
        for number in range(count):
            (folder / "new").write_text(str(number))
            (folder / "new").rename(path)
            await reader.until(path, Present(str(number).encode()), within=30.0)
        assert len(reader.values) == count + 1


@in_virtual_time
async def test_waiting_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    async with reading(watch(tmp_path / "f"), watch(tmp_path / "none"), watch(tmp_path)):
        before = jumps()
        await asyncio.sleep(3600.0)
        assert jumps() - before == 1, "something else had a timer"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@in_virtual_time
async def test_leaving_closes_the_descriptor(tmp_path: Path) -> None:
    gc.collect()  # what other tests left open would close in between
    before = open_files()
    async with reading(watch(tmp_path / "f")):
        assert open_files() > before
    assert open_files() == before


def test_one_reading_without_an_event_loop(tmp_path: Path) -> None:
    (tmp_path / "ip-masq-1").write_text("x")
    assert load_files((watch(tmp_path, "ip-*"), FileWatch("/nul\0"))) == {
        str(tmp_path): Directory(("ip-masq-1",)),
        str(tmp_path / "ip-masq-1"): Present(b"x"),
        "/nul\0": Unreadable("its name holds a NUL or another character that no file name can have"),
    }
