"""A program runs to its end, with limits on its time and on what it writes."""

import asyncio
import mmap
import os
from pathlib import Path

import pytest

from podgate.linux.running import Ended, excerpt, find_program, run
from tests.support.netns import NetNamespace, netns


def ran(*command: str, text: str = "", seconds: float = 60.0, output_bytes: int = 1 << 20) -> Ended:
    path = find_program(command[0])
    assert path is not None
    return asyncio.run(run((path, *command[1:]), text, seconds=seconds, output_bytes=output_bytes))


def test_text_goes_in_and_both_outputs_come_out_apart() -> None:
    assert ran("sh", "-c", "cat; echo bad >&2; exit 3", text="good\n") == Ended(3, "good\n", "bad\n", is_cut=False)


def test_a_program_ended_by_a_signal_gives_128_and_its_number() -> None:
    assert ran("sh", "-c", "kill -9 $$").code == 137


def test_what_is_written_beyond_the_limit_is_cut() -> None:
    ended = ran("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x", output_bytes=5000)
    assert (ended.output, ended.is_cut) == ("x" * (-(-5000 // mmap.PAGESIZE) * mmap.PAGESIZE), True)


def test_a_program_that_takes_too_long_is_killed_and_reaped() -> None:
    started: list[int] = []
    with pytest.raises(TimeoutError):
        asyncio.run(run(("/bin/sleep", "100"), seconds=0.05, started=started.append))
    (process,) = started
    with pytest.raises(ChildProcessError):
        os.waitpid(process, os.WNOHANG)


def test_only_the_named_variables_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_ONE", "1")
    monkeypatch.setenv("LOST_ONE", "1")

    async def shown() -> str:
        return (await run(("/usr/bin/env",), keep=("KEPT_ONE", "MISSING"))).output

    assert asyncio.run(shown()).splitlines() == [f"PATH={os.defpath}", "KEPT_ONE=1"]


@pytest.mark.kernel
def test_it_runs_inside_a_network_namespace() -> None:
    def links(namespace: NetNamespace | None) -> str:
        where = None if namespace is None else namespace.descriptor
        return asyncio.run(run(("/bin/readlink", "/proc/self/ns/net"), namespace=where)).output

    with netns() as other:
        assert links(other) != links(None)
        assert links(other).startswith("net:[")


def test_the_first_program_that_is_installed_is_found() -> None:
    assert find_program("no-such-program", "sh") == find_program("sh")
    assert find_program("no-such-program") is None


def test_a_program_is_an_executable_file_and_may_be_given_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, mode in (("data", 0o644), ("good", 0o755), ("late", 0o755)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "tool").touch(mode)
    (tmp_path / "folder" / "tool").mkdir(parents=True)
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / place) for place in ("folder", "data", "good", "late")))
    assert find_program("tool") == str(tmp_path / "good" / "tool")
    assert find_program(str(tmp_path / "late" / "tool")) == str(tmp_path / "late" / "tool")
    assert find_program(str(tmp_path / "data" / "tool")) is None


def test_an_excerpt_marks_its_line() -> None:
    assert excerpt(["a", "b", "c", "d", "e", "f"], 2) == "     1  a\n>    2  b\n     3  c\n     4  d"
