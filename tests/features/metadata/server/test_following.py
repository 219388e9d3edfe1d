"""Following another process: started, connected to, lost and found again; what it told last stays meanwhile."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from podgate.features.metadata.filter import Client
from podgate.features.metadata.server.following import (
    AtSocket,
    InChild,
    WatcherLink,
    WatchSource,
    link_for,
    watch_words,
)
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.watched import LONGEST, THE_WATCH, WATCHED, Watched, line_of
from podgate.model.snapshot import Listed, Snapshot
from tests.support.asynchronous import in_loop
from tests.support.poll import poll_async

ONE, TWO = Watched(clients={"10.0.0.1": Client("a/b")}), Watched(clients={})
ENVIRON = {"PATH": "/usr/bin:/bin"}


def says(snapshot: Snapshot) -> tuple[Watched | None, str]:
    found = snapshot.kinds[WATCHED]
    lost = "".join(fault.message for fault in snapshot.faults)
    return (found.objects[THE_WATCH] if isinstance(found, Listed) else None), lost


async def first(link: WatcherLink, count: int, *, silence: float = 60.0) -> list[tuple[Watched | None, str]]:
    found = []
    async with asyncio.timeout(100), aclosing(WatchSource(link, silence=silence, pause=0.05).values()) as values:
        async for snapshot in values:
            found.append(says(snapshot))
            if len(found) == count:
                break
    return found


def child(script: str, tmp_path: Path) -> InChild:
    lines = {"ONE": line_of(ONE), "TWO": line_of(TWO), "FOREIGN": b'{"colour": "red"}\n', "LONG": b"x" * (LONGEST + 9)}
    for name, line in lines.items():
        (tmp_path / name).write_bytes(line)
    return InChild(["/bin/sh", "-c", f"cd {tmp_path}\n{script}"], ENVIRON)


@in_loop
async def test_at_once_nothing_is_known_then_each_thing_told(tmp_path: Path) -> None:
    found = await first(child("cat ONE; echo; cat TWO; exec sleep 60", tmp_path), 3)
    assert found == [(None, ""), (ONE, ""), (TWO, "")]


LOST = {
    "ended": ("cat ONE; exit 7", "has ended with exit code 7"),
    "killed": ("cat ONE; kill -9 $$", "has ended with exit code 137"),
    "amid a line": ("cat ONE; printf '{'; exit 0", "has ended with exit code 0"),
    "of another version": ("cat ONE FOREIGN; exec sleep 60", "take both from one image"),
    "too long": ("cat ONE LONG; exec sleep 60", "use fewer rules"),
    "silent": ("cat ONE; exec sleep 60", "was silent"),
}


@pytest.mark.parametrize(("script", "why"), LOST.values(), ids=LOST)
@in_loop
async def test_what_was_told_last_stays_and_a_new_process_is_started(script: str, why: str, tmp_path: Path) -> None:
    again = f"if [ -e began ]; then cat TWO; exec sleep 60; fi; touch began; {script}"
    found = await first(child(again, tmp_path), 4, silence=3.0 if why == "was silent" else 60.0)
    assert [watched for watched, _ in found] == [None, ONE, ONE, TWO]
    assert why in found[2][1]
    assert found[3][1] == ""


@in_loop
async def test_one_that_tells_something_and_dies_again_and_again_is_started_ever_more_seldom(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    # Nothing, then each of six processes and its end: 1, 2, 4, 8 and 16 pauses of 0.05 s lie between.
    assert len(await first(child("cat ONE; exit 1", tmp_path), 13)) == 13
    assert loop.time() - began >= 31 * 0.05


def test_the_child_has_ended_when_nobody_follows_any_more(tmp_path: Path) -> None:
    asyncio.run(first(child("echo $$ >pid; cat ONE; exec sleep 60", tmp_path), 2))
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@in_loop
async def test_a_program_that_cannot_be_started_is_said_after_some_attempts() -> None:
    assert await first(InChild(["/nowhere/python"], ENVIRON), 2) == [
        (None, ""),
        (None, "/nowhere/python: cannot be started: No such file or directory"),
    ]


@in_loop
async def test_a_socket_is_waited_for_and_connected_to_again(tmp_path: Path) -> None:
    path, told = str(tmp_path / "s"), [ONE]
    writers: list[asyncio.StreamWriter] = []

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line_of(told[-1]))
        writers.append(writer)

    found: list[tuple[Watched | None, str]] = []

    async def follow() -> None:
        async with aclosing(WatchSource(AtSocket(path), pause=0.05).values()) as values:
            async for snapshot in values:
                note(snapshot)

    def note(snapshot: Snapshot) -> None:
        found.append(says(snapshot))

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await poll_async(lambda: bool(found and found[-1][1]))
        assert found[-1][0] is None
        assert "does not answer" in found[-1][1]
        server = await asyncio.start_unix_server(serve, path)
        await poll_async(lambda: found[-1] == (ONE, ""))
        told.append(TWO)
        writers[0].close()
        await poll_async(lambda: found[-1] == (TWO, ""))
        assert any(watched == ONE and "has ended" in lost for watched, lost in found)
        following.cancel()
    for writer in writers:
        writer.close()
    server.close()


def test_no_process_is_started_where_nothing_asks_for_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    policy = str(tmp_path)
    environ = {"PODGATE_SOURCE": "/objects", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert link_for(Settings(policy=policy), "n", environ) is None
    (tmp_path / "b.yaml").write_text("")
    asks = (Settings(policy=policy), Settings(per_pod=True), Settings(source="/s"), Settings(kubeconfig="/k"))
    assert all(isinstance(link_for(each, "n", environ), InChild) for each in asks)
    assert isinstance(link_for(Settings(watch_socket="/s"), "n", environ), AtSocket)


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        (Settings(per_pod=True), []),
        (Settings(source="/s", policy="/p/"), ["--source", "/s", "--policy", "/p"]),
        (Settings(kubeconfig="/k", context="c"), ["--kubeconfig", "/k", "--context", "c"]),
        (Settings(policy="/p.yaml"), ["--policy", "/p.yaml", "--no-objects"]),
        (Settings(per_pod=True, policy="builtin:v0.1.12"), []),
    ],
)
def test_the_command_line_of_the_process(settings: Settings, more: list[str]) -> None:
    assert watch_words(settings, "n") == ["metadata", "watch", "--node-name", "n", *more]
