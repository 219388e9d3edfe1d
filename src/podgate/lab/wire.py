"""Network namespaces and the links between them, in the kernel.

Here: the pause process that holds each namespace, writing sysctls, running ``ip -batch``.
Not here: what the network should be (lab/network.py) or how to get there (lab/netplan.py).
Invariant: ``Wire.have`` is the network that the kernel holds, but for what the machine refused, which was reported.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from podgate.lab.netplan import Plan, plan, veth_line
from podgate.lab.network import Network
from podgate.linux.namespaces import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWUTS,
    inside_network,
    open_namespace,
    sethostname,
    unshare,
)
from podgate.linux.processes import Child


class Sandbox:
    """A network, host name and IPC namespace, held by a process that does nothing.

    Attributes:
        child: the pause process.
        network: an open descriptor of the network namespace.
    """

    def __init__(self, child: Child, leash: int) -> None:
        self.child = child
        self.network = open_namespace("net", child.pid)
        self._leash = leash

    @classmethod
    def start(cls, hostname: str) -> "Sandbox":
        """Start a pause process in namespaces of its own; returns once they are there."""
        held, leash = os.pipe2(os.O_CLOEXEC)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _pause(hostname, held, writer)
        os.close(writer)
        os.close(held)
        failure = os.read(reader, 1000)
        os.close(reader)
        if failure:
            os.close(leash)
            os.waitpid(pid, 0)
            raise OSError(f"cannot make network namespaces: {failure.decode()}; run the lab as root")
        return cls(Child(pid), leash)

    async def stop(self) -> None:
        """End the pause process; the namespace goes when its last process has."""
        os.close(self.network)
        os.close(self._leash)
        self.child.send(signal.SIGKILL)
        await self.child.wait()


def _pause(hostname: str, held: int, writer: int) -> None:
    """Become the pause process. Runs in the forked child and never returns.

    It reads from a pipe into which nobody writes, so it ends with the daemon. It ignores what can be ignored, and is
    not called sleep: containers see it, and ``pkill sleep`` in one must not take another's network away.
    """
    try:
        unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC)
        sethostname(hostname[:63])
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        null = os.open("/dev/null", os.O_RDWR)
        for standard, descriptor in enumerate((held, null, null)):
            os.dup2(descriptor, standard)
        os.execvp("cat", ["cat"])  # noqa: S606 - a shell would be one process more
    except OSError as error:
        os.write(writer, str(error).encode())
    finally:
        os._exit(127)


class Wire:
    """The network in the kernel. Not for several tasks at once: its methods follow each other."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.have = Network()
        self.sandboxes: dict[str, Sandbox] = {}
        self._warn = warn

    async def apply(
        self, want: Network, hostnames: Mapping[str, str] | None = None, restarted: frozenset[str] = frozenset()
    ) -> Plan:
        """Make the kernel hold ``want``; give what was done. A refusal of the machine is a warning."""
        todo = plan(self.have, want, restarted)
        self._batches(todo.before)
        for name in todo.stopped:
            await self.sandboxes.pop(name).stop()
        for name, sysctls in todo.started.items():
            self.sandboxes[name] = Sandbox.start((hostnames or {}).get(name, name.rsplit("/", 1)[-1]))
            self._write_sysctls(name, sysctls)
        if todo.veths:
            pids = {name: sandbox.child.pid for name, sandbox in self.sandboxes.items()}
            self._finish("the lab", _batch([veth_line(veth, pids) for veth in todo.veths]))
        self._batches(todo.after)
        self.have = want
        return todo

    def _batches(self, lines: Mapping[str, tuple[str, ...]]) -> None:
        running: list[tuple[str, _Batch]] = []
        for name, batch in lines.items():
            if name in self.sandboxes:
                with inside_network(self.sandboxes[name].network):
                    running.append((name, _batch(batch)))
        for name, process in running:
            self._finish(name, process)

    def _finish(self, where: str, batch: "_Batch") -> None:
        process, lines = batch
        _, complaint = process.communicate()
        if process.returncode != 0:
            self._warn(f"network of {where}: {explained(complaint, lines)}")

    def _write_sysctls(self, name: str, sysctls: tuple[tuple[str, str], ...]) -> None:
        with inside_network(self.sandboxes[name].network):
            for key, value in sysctls:
                try:
                    Path("/proc/sys", key).write_text(value)
                except FileNotFoundError:
                    if not key.startswith("net/ipv6/"):  # A kernel without IPv6 was reported once, at start.
                        self._warn(f"sysctl {key} of {name}: this kernel does not have it")
                except OSError as error:
                    self._warn(f"sysctl {key}={value} of {name}: {error.strerror}")


_Batch = tuple["subprocess.Popen[str]", tuple[str, ...]]


def _batch(lines: "list[str] | tuple[str, ...]") -> _Batch:
    """Start ``ip -batch`` in the caller's network namespace. ``-force``: one refused line does not stop the rest."""
    process = subprocess.Popen(
        ["ip", "-force", "-batch", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    if process.stdin is None:
        raise OSError("ip -batch: no pipe to write to")
    with suppress(BrokenPipeError):  # It says on stderr why it went.
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.close()
    process.stdin = None
    return process, tuple(lines)


def explained(complaint: str, lines: tuple[str, ...]) -> str:
    """Put the text of the line beside each ``Command failed -:N`` of ``ip -batch``."""
    said: list[str] = []
    for line in complaint.splitlines():
        _, failed, number = line.partition("Command failed -:")
        if failed and number.isdigit() and 0 < int(number) <= len(lines):
            said.append(f"in `ip {lines[int(number) - 1]}`")
        elif line.strip():
            said.append(line.strip())
    return " ".join(said)
