"""The host over fake sources and targets, in virtual time: what a user sees in logs, pages and kept files."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from podgate.engine.host import Host, Sources, Work
from podgate.engine.kept import KeptDirectory
from podgate.engine.status import Status
from podgate.joints import Compiled, Inputs, SourceError, Step
from podgate.model.files import FileContent, Missing, Present
from podgate.model.frozen import Frozen, ObjectRef, file_ref
from podgate.model.machine import Machine
from podgate.model.problems import Problem, problems_by_object
from podgate.model.snapshot import Snapshot
from podgate.observe.listen import Listen
from podgate.observe.logs import Log
from podgate.sources.constant import Constant
from tests.support.fake_target import FakeTarget, State
from tests.support.virtual_time import run_virtual

T = TypeVar("T")
PATH = "/etc/thing"


class States(Frozen, frozen=True):
    only: Mapping[str, str]


class Fed(Generic[T]):
    """A source that the test feeds; an exception in the queue is raised."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[T | Exception] = asyncio.Queue()

    async def values(self) -> AsyncIterator[T]:
        while True:
            value = await self.queue.get()
            if isinstance(value, Exception):
                raise value
            yield value


def compile_(inputs: Inputs) -> Compiled[States]:
    """The file's text is the wanted value; the word "broken" is a bad file, and "unknown" is nobody's knowledge."""
    content = inputs.files.get(PATH, Missing())
    text = content.data.decode() if isinstance(content, Present) else "default"
    if text == "unknown":
        return Compiled(States({}), degraded="nobody knows", holds=True)
    if text != "broken":
        wanted = frozenset({ObjectRef("Secret", text, "ns")})
        return Compiled(
            States({"value": text}), keep={"value": text.encode()}, wanted=wanted, problem_of=problem_of_refused
        )
    problem = Problem(file_ref(PATH), "error", "Broken", "value", "it is broken: mend it")
    kept = inputs.kept.get("value")
    return Compiled(
        States({"value": kept.decode() if kept else "default"}),
        problems_by_object([problem]),
        degraded="" if kept else "no good file yet",
    )


def problem_of_refused(key: object, why: str) -> Problem | None:
    return Problem(ObjectRef("Thing", "x"), "error", "Refused", str(key), why) if key == "value" else None


class Rig:
    def __init__(self, state_dir: Path, kept: type[KeptDirectory] = KeptDirectory) -> None:
        self.target = FakeTarget()
        self.wanted: list[frozenset[ObjectRef]] = []
        self.files = Fed[Mapping[str, FileContent]]()
        self.out = io.StringIO()
        self.status = Status("thing", ["only"], Log(self.out, "json", lambda: 0.0), lambda: 0.0)
        step: Step[States, State, Any] = Step("only", self.target, lambda states: states.only, {})
        work = Work(
            compiler=compile_,
            steps=(step,),
            samples=lambda _states: (),
            recover=lambda states: {"value": states["only"]["value"].encode()} if states["only"] else {},
            describe=lambda problem, _inputs: f"{problem.ref}:1: {problem.severity}: {problem.message}",
            want=self.wanted.append,
        )
        sources = Sources(Constant(Snapshot()), self.files, Constant(Machine()))
        self.host = Host(work, sources, kept(state_dir), self.status)
        self.stop = asyncio.Event()

    def write(self, text: str) -> None:
        self.files.queue.put_nowait({PATH: Present(text.encode())})

    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.out.getvalue().splitlines()]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)


def play(
    state_dir: Path,
    story: Callable[[Rig], Coroutine[Any, Any, None]],
    *,
    target: State | None = None,
    kept: type[KeptDirectory] = KeptDirectory,
) -> Rig:
    async def run() -> Rig:
        rig = Rig(state_dir, kept)
        rig.target.state = dict(target or {})
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.host.run(rig.stop, listen={}))
            await story(rig)
            rig.stop.set()
        return rig

    return run_virtual(run())


def test_nothing_is_written_before_every_source_has_spoken(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(100)
        assert rig.target.reads <= 1  # to recover what was kept; nothing else
        assert rig.target.state == {}
        assert rig.status.readyz()[0] == 503
        rig.write("one")
        await rig.until(lambda: rig.status.readyz()[0] == 200)

    assert play(tmp_path, story).target.state == {"value": "one"}


def test_the_hash_of_what_is_in_force_is_told_where_something_is_kept_and_changes_with_it(tmp_path: Path) -> None:
    def hashes(rig: Rig) -> list[str]:
        named = [reading for reading in rig.status.readings() if reading.name == "podgate_thing_config_info"]
        return [value for reading in named for _, value in reading.labels]

    async def story(rig: Rig) -> None:
        assert hashes(rig) == []
        rig.write("broken")  # nothing is kept yet
        await rig.until(lambda: rig.target.state == {"value": "default"})
        assert hashes(rig) == []
        rig.write("one")
        await rig.until(lambda: rig.target.state == {"value": "one"})
        first = hashes(rig)
        rig.write("two")
        await rig.until(lambda: rig.target.state == {"value": "two"})
        assert len(first) == len(hashes(rig)) == 1
        assert hashes(rig) != first

    play(tmp_path, story)


def test_a_bad_file_keeps_the_last_good_one_and_is_said_once(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        rig.write("good")
        await rig.until(lambda: rig.target.state == {"value": "good"})
        rig.write("broken")
        await rig.until(lambda: any("broken" in message for message in rig.messages()))
        rig.target.drift("value", "foreign")
        await rig.until(lambda: rig.target.state == {"value": "good"})
        assert rig.status.readyz()[0] == 200
        rig.write("better")
        await rig.until(lambda: rig.target.state == {"value": "better"})

    rig = play(tmp_path, story)
    assert rig.messages().count("/etc/thing:1: error: it is broken: mend it") == 1
    assert "problem solved" in rig.messages()
    assert "drift healed" in rig.messages()


def test_the_source_is_told_which_objects_a_compile_wants(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        rig.write("one")
        await rig.until(lambda: len(rig.wanted) == 1)
        rig.write("broken")
        await rig.until(lambda: len(rig.wanted) == 2)

    rig = play(tmp_path, story)
    assert rig.wanted == [frozenset({ObjectRef("Secret", "one", "ns")}), frozenset()]


def test_a_watch_that_fails_is_said_once_and_when_it_works_again(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        for trouble in ("cannot watch Pod: gone", "cannot watch Pod: gone", "", ""):
            rig.status.watch("watch Pod", trouble)

    rig = play(tmp_path, story)
    assert [message for message in rig.messages() if "Pod" in message or "fault" in message] == [
        "cannot watch Pod: gone",
        "fault gone",
    ]


def test_the_last_good_one_survives_a_restart(tmp_path: Path) -> None:
    async def good(rig: Rig) -> None:
        rig.write("good")
        await rig.until((tmp_path / "value").exists)

    async def bad(rig: Rig) -> None:
        rig.write("broken")
        await rig.until(lambda: rig.status.readyz()[0] == 200)

    play(tmp_path, good)
    assert play(tmp_path, bad).target.state == {"value": "good"}


def test_a_bad_file_at_the_very_first_start_writes_the_defaults_and_is_not_ready(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        rig.write("broken")
        await rig.until(lambda: rig.target.state == {"value": "default"})
        await asyncio.sleep(1)
        assert rig.status.readyz() == (503, "text/plain; charset=utf-8", b"no good file yet\n")

    assert "degraded" in play(tmp_path, story).messages()


def test_what_nobody_knows_leaves_what_is_in_force_as_it_is(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        rig.write("unknown")
        await asyncio.sleep(60)
        assert rig.target.state == {"value": "from before"}
        assert b"nobody knows" in rig.status.readyz()[2]
        rig.write("one")
        await rig.until(lambda: rig.status.readyz()[0] == 200)
        rig.write("unknown")
        await asyncio.sleep(60)

    assert play(tmp_path, story, target={"value": "from before"}).target.state == {"value": "one"}


def test_without_a_state_directory_the_target_remembers(tmp_path: Path) -> None:
    unwritable = tmp_path / "file"
    unwritable.write_bytes(b"")

    async def story(rig: Rig) -> None:
        rig.write("broken")
        await rig.until(lambda: rig.status.readyz()[0] == 200)

    rig = play(unwritable, story, target={"value": "from the kernel"})
    assert rig.target.state == {"value": "from the kernel"}
    assert any("cannot be read" in message for message in rig.messages())


def test_what_is_kept_where_nothing_can_be_written_may_be_older_than_what_the_target_holds(tmp_path: Path) -> None:
    async def good(rig: Rig) -> None:
        rig.write("older")
        await rig.until((tmp_path / "value").exists)

    async def bad(rig: Rig) -> None:
        rig.write("broken")
        await rig.until(lambda: rig.status.readyz()[0] == 200)

    class ReadOnly(KeptDirectory):
        def is_writable(self) -> bool:
            return False

    play(tmp_path, good)
    assert play(tmp_path, bad, target={"value": "newer"}).target.state == {"value": "older"}
    assert play(tmp_path, bad, target={"value": "newer"}, kept=ReadOnly).target.state == {"value": "newer"}
    assert play(tmp_path, bad, kept=ReadOnly).target.state == {"value": "older"}


def test_a_source_that_fails_is_said_once_and_tried_again(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        for _ in range(5):
            rig.files.queue.put_nowait(SourceError("the disk is gone: bring it back"))
        rig.write("one")
        await rig.until(lambda: rig.target.state == {"value": "one"})

    rig = play(tmp_path, story)
    assert rig.messages().count("the disk is gone: bring it back") == 1
    assert "fault gone" in rig.messages()


def test_a_failing_target_is_said_once_and_makes_the_feature_unready_after_a_while(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        rig.write("one")
        await rig.until(lambda: rig.status.readyz()[0] == 200)
        rig.target.fail_applies = 6
        rig.write("two")
        await rig.until(lambda: rig.status.readyz()[0] == 503)
        assert b"applying failed half-way" in rig.status.healthz()[2]
        assert rig.status.healthz()[0] == 200
        await rig.until(lambda: rig.status.readyz()[0] == 200)

    rig = play(tmp_path, story)
    assert rig.messages().count("step failed") == 1
    assert "step works again" in rig.messages()
    page = rig.status.metrics()[2].decode()
    assert 'podgate_thing_sync_total{result="failure",step="only"} 6' in page
    assert 'podgate_thing_errors_total{reason="ApplyFailed"} 6' in page
    assert "podgate_thing_ready 1" in page


@pytest.mark.parametrize(("failures", "code", "state"), [(0, 0, "one"), (2, 0, "one"), (99, 1, None)])
def test_once_writes_and_ends_and_says_by_its_exit_code_whether_all_is_well(
    tmp_path: Path, failures: int, code: int, state: str | None
) -> None:
    async def run() -> Rig:
        rig = Rig(tmp_path)
        rig.target.fail_applies = failures
        rig.write("one")
        assert await rig.host.run(rig.stop, once=True, listen={}) == code
        return rig

    rig = run_virtual(run())
    if state:
        assert rig.target.state == {"value": state}
        assert (tmp_path / "value").read_text() == state


def test_pages_that_cannot_be_served_are_named_with_what_to_do(tmp_path: Path) -> None:
    async def run() -> Rig:
        rig = Rig(tmp_path)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = Listen("127.0.0.1", taken.getsockname()[1])
            async with asyncio.TaskGroup() as group:
                group.create_task(rig.host.run(rig.stop, listen={address: {}}))
                await rig.until(lambda: "cannot serve" in rig.out.getvalue())
                rig.stop.set()
        return rig

    (said,) = [message for message in asyncio.run(run()).messages() if "cannot serve" in message]
    assert said.endswith(": Address already in use: end the other program, or give another address")


def test_a_refused_key_is_a_problem_of_the_object_behind_it_while_it_is_refused(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        rig.write("bad one")
        await rig.until(lambda: b"Thing/x: value: bad one is refused" in rig.status.healthz()[2])
        await asyncio.sleep(1.0)
        rig.write("good")
        await rig.until(lambda: b"Thing/x" not in rig.status.healthz()[2])

    said = play(tmp_path, story).messages()
    assert said.count("Thing/x:1: error: bad one is refused") == 1
    assert said.count("problem solved") == 1


def test_once_gives_up_when_inputs_do_not_come_and_says_which(tmp_path: Path) -> None:
    async def run() -> Rig:
        rig = Rig(tmp_path)
        assert await rig.host.run(rig.stop, once=True, listen={}) == 1
        return rig

    assert any(message.startswith("no files within") for message in run_virtual(run()).messages())


def test_once_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    async def run() -> None:
        rig = Rig(tmp_path)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(rig.host.run(rig.stop, once=True, listen={}))
            await asyncio.sleep(1)
            rig.stop.set()
            async with asyncio.timeout(1):
                assert await task == 1

    run_virtual(run())


def test_a_bug_in_a_task_ends_the_host(tmp_path: Path) -> None:
    async def run() -> None:
        rig = Rig(tmp_path)
        rig.files.queue.put_nowait(ZeroDivisionError("a bug"))
        await rig.host.run(rig.stop, listen={})

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(run())
    assert caught.group_contains(ZeroDivisionError)
