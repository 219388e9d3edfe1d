"""Starting processes in containers of a real kernel, and finding what they leave behind."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from podgate.lab.containers import Program
from podgate.lab.mounts import read_machine
from podgate.lab.remains import Remains
from podgate.lab.rootfs import RootRequest, VolumeBind, container_root
from podgate.lab.runner import StartError, start, start_apart, start_in
from podgate.lab.wire import Sandbox
from podgate.linux.processes import Child
from tests.support.asynchronous import in_loop
from tests.support.poll import poll, poll_async

pytestmark = pytest.mark.kernel

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
LASTING, OTHER = (f"sleep {number + os.getpid()}" for number in (100_000_000, 200_000_000))
"""Command lines that no other test run on this machine has."""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox.start("sandboxed")
    yield made
    asyncio.run(made.stop())


class Containers:
    """Starts containers that are all killed in the end."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.log = folder / "log"
        self.children: list[Child] = []

    def start(self, script: str, folder: str = "/") -> Child:
        root = container_root(read_machine(), RootRequest((VolumeBind(str(self.folder), "/shared"),)))
        program = Program(("sh", "-c", script), ENVIRONMENT, folder)
        child = start(program, self.sandbox.child.pid, root, str(self.folder), str(self.log))
        self.children.append(child)
        return child


@pytest.fixture
def containers(sandbox: Sandbox, tmp_path: Path) -> Iterator[Containers]:
    made = Containers(sandbox, tmp_path)
    yield made
    for child in made.children:
        if child.exit_code is None:
            with Remains(child.pid) as remains:
                child.send(signal.SIGKILL)
                remains.kill()
            os.waitpid(child.pid, 0)


@in_loop
async def test_a_container_has_the_sandboxes_network_and_name_and_its_own_files(containers: Containers) -> None:
    child = containers.start("hostname; ls /sys/class/net; cat /etc/hostname; pwd; echo problem >&2", "/srv")
    assert await child.wait() == 0
    assert containers.log.read_text() == "sandboxed\nlo\nlocalhost\n/srv\nproblem\n"
    assert list(containers.folder.glob("tmp*")) == []


def test_a_sandbox_is_not_ended_by_what_containers_send(sandbox: Sandbox) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        sandbox.child.send(number)
    ignored = int(Path(f"/proc/{sandbox.child.pid}/status").read_text().split("SigIgn:")[1].split()[0], 16)
    assert ignored >> (signal.SIGTERM - 1) & 1
    assert Path(f"/proc/{sandbox.child.pid}/ns/net").exists()
    assert Path(f"/proc/{sandbox.child.pid}/comm").read_text() == "cat\n"


@in_loop
async def test_exit_codes_and_signals_are_told_apart(containers: Containers) -> None:
    assert await containers.start("exit 7").wait() == 7
    assert await containers.start("kill -15 $$").wait() == 128 + 15


@in_loop
async def test_a_second_command_sees_the_same_files(containers: Containers) -> None:
    child = containers.start("echo inside > /tmp/here; echo there; exec sleep 1000")
    await poll_async(lambda: containers.log.exists() and containers.log.read_text())
    reader, writer = os.pipe()
    program = Program(("sh", "-c", "cat /tmp/here; hostname"), ENVIRONMENT)
    command = start_in(program, containers.sandbox.child.pid, child.pid, (0, writer, writer))
    os.close(writer)
    assert await command.wait() == 0
    with os.fdopen(reader) as output:
        assert output.read() == "inside\nsandboxed\n"
    assert await child.stop(1.0) == 128 + signal.SIGTERM


@in_loop
async def test_a_command_apart_has_a_root_of_its_own(containers: Containers) -> None:
    reader, writer = os.pipe()
    root = container_root(read_machine(), RootRequest(hostname="apart"))
    program = Program(("cat", "/etc/hostname"), ENVIRONMENT)
    command = start_apart(program, containers.sandbox.child.pid, root, str(containers.folder), (0, writer, writer))
    os.close(writer)
    assert await command.wait() == 0
    with os.fdopen(reader) as output:
        assert output.read() == "apart\n"


def test_a_program_that_cannot_start_says_why(containers: Containers) -> None:
    root = container_root(read_machine(), RootRequest())
    program = Program(("/no/such/program",), ENVIRONMENT)
    with pytest.raises(StartError, match=r"/no/such/program: .*No such file"):
        start(program, containers.sandbox.child.pid, root, str(containers.folder), str(containers.log))


def test_a_mount_that_cannot_be_made_says_which(containers: Containers) -> None:
    root = container_root(read_machine(), RootRequest((VolumeBind("/no/such/source", "/x"),)))
    program = Program(("true",), ENVIRONMENT)
    with pytest.raises(StartError, match="/no/such/source"):
        start(program, containers.sandbox.child.pid, root, str(containers.folder), str(containers.log))


@in_loop
async def test_one_that_does_not_listen_is_killed(containers: Containers) -> None:
    child = containers.start("trap '' TERM; echo deaf; while :; do sleep 0.01; done")
    await poll_async(lambda: containers.log.exists() and containers.log.read_text())
    assert await child.stop(0.1) == 128 + signal.SIGKILL
    child.send(signal.SIGTERM)  # nobody is hit


@in_loop
async def test_what_a_container_leaves_is_found_and_nothing_else(containers: Containers) -> None:
    other = containers.start(f"exec {OTHER}")
    child = containers.start(f"setsid {LASTING} & echo started; wait")
    await poll_async(lambda: running(LASTING) and running(OTHER))
    with Remains(child.pid) as remains:
        child.send(signal.SIGKILL)
        await child.wait()
        assert running(LASTING)
        remains.kill()
    poll(lambda: not running(LASTING))
    assert running(OTHER)
    await other.stop(1.0)


def running(command: str) -> bool:
    wanted = command.replace(" ", "\0") + "\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_text() == wanted:
                    return True
            except OSError:
                continue
    return False
