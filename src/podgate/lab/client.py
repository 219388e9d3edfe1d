"""Starting a lab and talking to it, from outside.

Here: starting the init, requests to the daemon, running a command with this terminal, relaying a port.
Not here: arguments and printing (lab/cli.py), the daemon's side (lab/daemon.py).
Invariant: nothing here needs the lab's namespaces: all that crosses into them are descriptors over the socket.
"""

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from podgate.lab.cgroups import remove_leftovers
from podgate.lab.kubejoin import Join, read_note, write_note
from podgate.lab.messages import (
    Answer,
    Apply,
    Connect,
    Done,
    Execute,
    Failed,
    LabError,
    ObjectVersion,
    Progress,
    Request,
    Signal,
    Stop,
    Wait,
    receive,
    send,
    socket_address,
)
from podgate.lab.places import Places, lock
from podgate.lab.terminal import Terminal, is_interactive
from podgate.linux.namespaces import CLONE_NEWPID, unshare

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def start(places: Places, *, attached: bool = False, limits: bool = False, joined: Join | None = None) -> int:
    """Start a lab without objects and return once it takes requests. Gives the init's process id.

    ``joined`` is the cluster whose nodes it has. With ``attached`` the lab ends with this process; with ``limits``,
    resources.limits are enforced. This process cannot start others afterwards: its children would be born into the lab.
    """
    if os.geteuid() != 0:
        raise LabError("a lab needs root for its namespaces: run it with sudo")
    held = lock(places)
    if held is None:
        raise LabError(
            f"lab {places.name} runs already: `{places.command('apply', '-f PATH')}` changes it, "
            f"`{places.command('down')}` ends it"
        )
    remove_leftovers(places)
    shutil.rmtree(places.state, ignore_errors=True)
    places.state.mkdir(mode=0o700, parents=True)
    if joined is not None:
        write_note(places, joined)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    unshare(CLONE_NEWPID)
    words = [sys.executable, "-m", "podgate.lab.init", places.base, places.name, str(writer), str(held)]
    with places.log.open("ab") as log:
        init = subprocess.Popen(
            words + [word for word, said in (("attached", attached), ("limits", limits)) if said],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer, held),
            start_new_session=True,
        )
    os.close(writer)
    os.close(held)
    with os.fdopen(reader, "rb") as answers:
        said = answers.readline().decode().strip()
    if said != "ready":
        init.wait()
        raise LabError(f"the lab did not start: {said or last_lines(places)}")
    init.returncode = 0  # It outlives this process on purpose: nobody shall warn that it was not waited for.
    return init.pid


def last_lines(places: Places, count: int = 15) -> str:
    """Give the end of the lab's own log."""
    try:
        lines = places.log.read_text(errors="replace").splitlines()
    except OSError as error:
        return f"{places.log}: {error.strerror}"
    return "\n".join(lines[-count:]) or f"{places.log} is empty"


def joined_by(places: Places) -> Join | None:
    """Give the cluster that a lab has joined; None when it keeps its objects itself."""
    try:
        return read_note(places)
    except PermissionError as error:
        raise LabError(_of_root(places)) from error


def _of_root(places: Places) -> str:
    return f"lab {places.name} belongs to root: run this with sudo"


def require(places: Places) -> None:
    """Raise LabError unless a lab of that name answers."""
    _connected(places).close()


def answers(places: Places) -> bool:
    """Say whether a lab of that name answers us."""
    try:
        require(places)
    except LabError:
        return False
    return True


def _connected(places: Places) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        address, folder = socket_address(places.socket)
        try:
            connection.connect(address)
        finally:
            os.close(folder)
    except OSError as error:
        connection.close()
        if isinstance(error, PermissionError):
            raise LabError(_of_root(places)) from error
        raise LabError(f"lab {places.name} is not running: start it with `{places.command('up', 'DIR')}`") from error
    return connection


@contextmanager
def _asked(places: Places, request: Request, descriptors: Sequence[int] = ()) -> Iterator[socket.socket]:
    with _connected(places) as connection:
        send(connection, request, descriptors)
        yield connection


def _answered(connection: socket.socket) -> tuple[Answer, list[int]]:
    answer = receive(connection)
    if answer is None:
        raise LabError("the lab ended before it answered")
    if isinstance(answer[0], Failed):
        raise LabError(answer[0].message, answer[0].code)
    return answer


def ask(places: Places, request: Request, descriptors: Sequence[int] = ()) -> Done:
    """Send a request that has one answer. Raises LabError when it failed."""
    with _asked(places, request, descriptors) as connection:
        answer, _ = _answered(connection)
    return answer if isinstance(answer, Done) else Done()


def apply(places: Places, objects: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Apply objects that were checked before; gives a line per object: created, configured or unchanged."""
    descriptor = os.memfd_create("podgate-objects", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(objects))
        file.flush()
        return ask(places, Apply(), (descriptor,)).text


def wait(
    places: Places,
    seconds: float,
    progress: Callable[[Progress], None],
    versions: tuple[ObjectVersion, ...] = (),
) -> bool:
    """Wait until everything is ready; False when that took longer. ``versions``: see messages.Wait."""
    with _asked(places, Wait(versions)) as connection:
        deadline = time.monotonic() + seconds
        while True:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                answer, _ = _answered(connection)
            except TimeoutError:
                return False
            if isinstance(answer, Done):
                return True
            if isinstance(answer, Progress):
                progress(answer)


def end(places: Places, grace: float) -> None:
    """End the lab, and take its nodes out of the cluster that it joined."""
    joined = joined_by(places)
    try:
        stop(places, grace)
    except LabError:
        _clear_dead(places)
        raise
    if joined is not None:
        from podgate.lab.kubeverbs import unregister  # noqa: PLC0415 - a lab of its own needs no HTTP client

        unregister(joined, places.name)


def _clear_dead(places: Places) -> None:
    """Remove what a lab that was killed has left outside of its state directory, which stays for its logs."""
    held = lock(places) if os.geteuid() == 0 and places.state.exists() else None
    if held is not None:
        remove_leftovers(places)
        os.close(held)


def stop(places: Places, grace: float) -> None:
    """End the lab and remove its state directory; returns once every process of it has ended."""
    with _asked(places, Stop(grace)) as connection:
        _answered(connection)
        while receive(connection) is not None:
            continue
    held = lock(places, wait=True)
    remove_leftovers(places)
    shutil.rmtree(places.state, ignore_errors=True)
    places.lock.unlink(missing_ok=True)
    if held is not None:
        os.close(held)


def execute(places: Places, request: Execute) -> int:
    """Run a command with this process's standard streams and signals, or its terminal; give the exit code."""
    if is_interactive():
        terminal = Terminal()
        with _asked(places, request, (terminal.inner,) * 3) as connection:
            terminal.relay(connection)
            answer, _ = _answered(connection)
    else:
        with _asked(places, request, (0, 1, 2)) as connection:
            for number in _FORWARDED:
                signal.signal(number, lambda received, _frame: send(connection, Signal(received)))
            answer, _ = _answered(connection)
    return answer.code if isinstance(answer, Done) else 1


def dial(places: Places, target: str, port: int) -> socket.socket:
    """Give a TCP connection to a Pod, node, host or address of the lab."""
    with _asked(places, Connect(target, port)) as connection:
        _, descriptors = _answered(connection)
    return socket.socket(fileno=descriptors[0])


def forward(places: Places, listener: socket.socket, target: str, port: int, report: Callable[[str], None]) -> None:
    """Relay each connection of ``listener`` to a port in the lab, until interrupted."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    near, _address = listener.accept()
                    try:
                        far = dial(places, target, port)
                    except LabError as error:
                        report(str(error))
                        near.close()
                        continue
                    selector.register(near, selectors.EVENT_READ, far)
                    selector.register(far, selectors.EVENT_READ, near)
                else:
                    _relay(selector, key)


def _relay(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    source, sink = key.fileobj, key.data
    if not isinstance(source, socket.socket) or source.fileno() < 0:
        return
    try:
        data = source.recv(65536)
        sink.sendall(data)
    except OSError:
        data = b""
    if not data:
        for end in (source, sink):
            if end.fileno() >= 0 and end in selector.get_map():
                selector.unregister(end)
            end.close()
