"""Children held by pidfds, and signals that follow a parent's end."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podgate.linux.processes import Child
from podgate.linux.waiting import readable
from tests.support.asynchronous import in_loop
from tests.support.poll import poll


def child(script: str, output: int = 1) -> Child:
    actions = [(os.POSIX_SPAWN_DUP2, output, 1)]
    return Child(os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ, file_actions=actions))


@in_loop
async def test_waiting_gives_the_exit_code_again_and_again() -> None:
    ended = child("exit 5")
    assert [await ended.wait(), await ended.wait(), ended.exit_code] == [5, 5, 5]


@in_loop
async def test_several_tasks_wait_for_one_child() -> None:
    ended = child("sleep 0.05; exit 3")
    assert await asyncio.gather(*(ended.wait() for _ in range(3))) == [3, 3, 3]


@in_loop
async def test_a_cancelled_wait_leaves_the_child_to_others() -> None:
    ended = child("sleep 1; exit 4")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ended.wait()
    assert await ended.wait() == 4


@in_loop
async def test_a_signals_end_is_128_and_its_number() -> None:
    ended = child("exec sleep 1000")
    ended.send(signal.SIGTERM)
    assert await ended.wait() == 128 + signal.SIGTERM


@in_loop
async def test_a_child_that_was_reaped_gets_no_signal() -> None:
    ended = child("exit 0")
    await ended.wait()
    ended.send(signal.SIGKILL)
    assert ended.exit_code == 0


@in_loop
async def test_a_deaf_child_is_killed_after_its_grace() -> None:
    reader, writer = os.pipe()
    deaf = child("trap '' TERM; echo deaf; while :; do sleep 0.01; done", writer)
    os.close(writer)
    await readable(reader)
    os.close(reader)
    assert await deaf.stop(0.05) == 128 + signal.SIGKILL


def test_a_process_dies_with_its_parent() -> None:
    inner = (
        "import signal; from podgate.linux.processes import die_with_parent\n"
        "die_with_parent(); print('armed', flush=True); signal.pause()"
    )
    outer = (
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {inner!r}])\n"
        "print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        (pid,) = lines - {"armed"}
        parent.kill()
    poll(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1])


@in_loop
async def test_two_tasks_wait_for_one_descriptor() -> None:
    reader, writer = os.pipe()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(readable(reader)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        os.write(writer, b"x")
    os.close(reader)
    os.close(writer)
