"""Starting processes in containers.

Here: fork, namespaces, root, exec; and the same for a command in a container that runs.
Not here: which process with which root and rights (lab/workload.py), waiting for its end (linux/processes.py).
Invariant: the parent learns in one read whether exec happened: nothing, or the reason why not.
"""

import fcntl
import os
import signal
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from podgate.lab.containers import Program
from podgate.lab.mounts import build_root, make_private
from podgate.lab.rootfs import RootStep
from podgate.linux.namespaces import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    open_namespace,
    setns,
    unshare,
)
from podgate.linux.processes import Child

_SHARED: Final = (("net", CLONE_NEWNET), ("uts", CLONE_NEWUTS), ("ipc", CLONE_NEWIPC))


class StartError(Exception):
    """A container's process could not be started; the message says at which step."""


def start(
    program: Program, sandbox: int, root: tuple[RootStep, ...], scratch: str, log: str, *, groups: tuple[str, ...] = ()
) -> Child:
    """Start a container's main process in the sandbox of process ``sandbox``; its output goes to the file ``log``.

    ``groups`` are the cgroup.procs files of the cgroups that it enters.
    """

    def enter() -> None:
        _join(sandbox)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _standard_streams((os.open("/dev/null", os.O_RDONLY), output, output))
        unshare(CLONE_NEWNS)
        make_private()
        build_root(root, scratch)

    return Child(_forked(program, enter, groups))


def start_in(
    program: Program, sandbox: int, container: int, streams: tuple[int, int, int], groups: tuple[str, ...] = ()
) -> Child:
    """Start a process beside process ``container``, seeing the same files, with the given standard streams."""

    def enter() -> None:
        mounts = open_namespace("mnt", container)
        _join(sandbox)
        _standard_streams(streams)
        setns(mounts, CLONE_NEWNS)

    return Child(_forked(program, enter, groups))


def start_apart(
    program: Program, sandbox: int, root: tuple[RootStep, ...], scratch: str, streams: tuple[int, int, int]
) -> Child:
    """Start a process in a sandbox with a root of its own and the given standard streams: a shell on a node."""

    def enter() -> None:
        _join(sandbox)
        _standard_streams(streams)
        unshare(CLONE_NEWNS)
        make_private()
        build_root(root, scratch)

    return Child(_forked(program, enter))


def _join(sandbox: int) -> None:
    descriptors = [(open_namespace(kind, sandbox), flag) for kind, flag in _SHARED]
    for descriptor, flag in descriptors:
        setns(descriptor, flag)
        os.close(descriptor)


def _standard_streams(streams: tuple[int, int, int]) -> None:
    # Duplicates first: a given stream may have the number of a standard one.
    copies = [os.dup(stream) for stream in streams]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)
        os.close(copy)


def _forked(program: Program, enter: Callable[[], None], groups: tuple[str, ...] = ()) -> int:
    """Fork; the child runs ``enter`` and the program. Raises StartError with the child's reason."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(program, enter, groups, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        failure = answers.read()
    if failure:
        os.waitpid(pid, 0)
        raise StartError(failure.decode(errors="replace"))
    return pid


def _become(program: Program, enter: Callable[[], None], groups: tuple[str, ...], writer: int) -> NoReturn:
    """Turn the forked child into the program. Never returns: whatever happens, the child ends here."""
    try:
        os.setsid()
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        entries = [os.open(group, os.O_WRONLY) for group in groups]  # Their paths end with the machine's root.
        enter()
        for entry in entries:  # Last, so that what building the root takes is not the container's.
            os.write(entry, b"0")
            os.close(entry)
        if os.isatty(0):
            with suppress(PermissionError):  # It belongs to another session already: then there is no job control.
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.makedirs(program.folder, exist_ok=True)
        os.chdir(program.folder)
        os.execvpe(program.words[0], program.words, dict(program.environment))  # noqa: S606 - a shell would be wrong
    except (OSError, ValueError) as error:
        os.write(writer, f"{program.words[0]}: {error}".encode())
    finally:
        os._exit(127)
