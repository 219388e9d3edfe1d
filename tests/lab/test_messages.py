"""Messages of any length, and a daemon that no client brings down."""

import asyncio
import gc
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from podgate.lab.daemon import ControlSocket, Ending
from podgate.lab.messages import (
    Answer,
    Apply,
    Connect,
    Done,
    Execute,
    Failed,
    Progress,
    Request,
    Signal,
    receive,
    send,
    taken,
)


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@pytest.mark.parametrize("count", [1, 500, 50_000])
def test_a_message_may_be_of_any_length(count: int) -> None:
    """A report or the progress of a lab has a line per Pod, and a packet has an end."""
    ours, theirs = pair()
    sent: list[Answer] = [
        Progress(
            tuple(f"Pod/default/web-{n}: waits for a long reason, and that is shown to people" for n in range(count))
        ),
        Done(value={"pods": [{"name": f"web-{n}", "x": "y" * 200} for n in range(count)]}),
    ]
    with ours, theirs:
        for message in sent:
            send(ours, message)
            assert receive(theirs) == (message, [])


def test_a_long_message_brings_its_descriptors() -> None:
    ours, theirs = pair()
    message = Execute("Pod", "default", "web", tuple("x" * 100 for _ in range(3000)))
    with ours, theirs, Path(os.devnull).open("rb") as file:
        send(ours, message, [file.fileno()] * 3)
        found = taken(theirs, cast("type[Request]", Request))
        assert found is not None
        assert found[0] == message
        for descriptor in found[1]:
            assert os.path.sameopenfile(descriptor, file.fileno())
            os.close(descriptor)
        assert len(found[1]) == 3


BAD = {
    "no message": b"{",
    "another kind": b'{"type": "Progress"}',
    "a signal that is none": b'{"type": "Signal", "number": 99999999999}',
    "a port that is none": b'{"type": "Connect", "target": "10.0.0.1", "port": 99999}',
    "a file that does not come": b"F",
    "longer than a packet": b"x" * 100_000,
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_message_is_refused_and_leaves_no_descriptor(data: bytes) -> None:
    ours, theirs = pair()
    with ours, theirs, Path(os.devnull).open("rb") as file:
        gc.collect()  # what other tests left open would close in between
        before = len(list(Path("/proc/self/fd").iterdir()))
        socket.send_fds(ours, [data], [] if data == b"F" else [file.fileno()])
        with pytest.raises(msgspec.DecodeError):
            taken(theirs, cast("type[Request]", Request))
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def served(tmp_path: Path, body: Callable[[Callable[[], socket.socket]], Awaitable[None]]) -> None:
    """Run a server without a cluster: what is asked of it here needs none."""
    path = str(tmp_path / "socket")

    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(path)
        return client

    async def run() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(8)
            listener.setblocking(False)
            server = ControlSocket(cast("Any", None), cast("Any", None), listener, Ending(), None)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(server.run())
                async with asyncio.timeout(60):
                    await body(connect)
                task.cancel()

    asyncio.run(run())


async def answer(client: socket.socket, request: Any) -> Answer:
    send(client, request)
    found = await asyncio.to_thread(receive, client)
    assert found is not None
    return found[0]


def test_a_request_without_its_file_ends_nothing(tmp_path: Path) -> None:
    async def body(connect: Callable[[], socket.socket]) -> None:
        for request in (Apply(), Execute("Pod", "", "x", ("true",)), Connect("x", 70_000)):
            with connect() as client:
                assert isinstance(await answer(client, request), Failed)
        with connect() as client:
            assert isinstance(await answer(client, Signal(1)), Failed)

    served(tmp_path, body)


def test_a_machine_without_descriptors_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def body(connect: Callable[[], socket.socket]) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with connect() as client:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                await asyncio.sleep(0.05)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert isinstance(await answer(client, Signal(1)), Failed)

    served(tmp_path, body)
    assert "a client cannot be taken: Too many open files" in capsys.readouterr().out
