"""Network namespaces for tests: made, entered, wired together and gone with their last descriptor.

Here: namespaces without a name, so that nothing is left behind whatever happens to the test. Not here: the topology of
packet tests (packet_lab.py).
Invariant: only the calling thread, or a thread made for it, is ever inside; the test's own namespace stays untouched.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from podgate.linux.namespaces import CLONE_NEWNET, inside_network, open_namespace, setns, unshare
from tests.support.poll import poll

T = TypeVar("T")


class NetNamespace:
    """A network namespace that lives as long as its descriptor or a process or socket in it."""

    def __init__(self) -> None:
        self.descriptor = _in_thread(_fresh)
        self.run("ip", "link", "set", "lo", "up")

    def close(self) -> None:
        os.close(self.descriptor)

    def run(self, *command: str, text: str = "", check: bool = True) -> str:
        """Run a command inside and give what it printed; ``text`` is its input. A failure raises with its message."""
        with inside_network(self.descriptor):
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a process inside; the caller ends it."""
        with inside_network(self.descriptor):
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @contextmanager
    def running(self, *command: str, says: str = "") -> Iterator[subprocess.Popen[str]]:
        """Have a process inside while the body runs, and kill it then. ``says``: the line that it begins with."""
        process = self.start(*command)
        try:
            if says:
                assert process.stdout is not None
                assert process.stdout.readline() == f"{says}\n"
            yield process
        finally:
            process.kill()
            process.communicate()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread that is inside, and give what it gives or raises."""

        def inside() -> T:
            setns(self.descriptor, CLONE_NEWNET)
            return function()

        return _in_thread(inside)

    def run_async(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in an event loop of its own, in a thread that is inside."""
        return self.call(lambda: asyncio.run(main()))

    def sysctl(self, name: str, value: str) -> None:
        """Set a sysctl below net, as ``ipv4.ip_forward``."""
        with inside_network(self.descriptor):
            (Path("/proc/sys/net") / name.replace(".", "/")).write_text(value)

    def connect(self, interface: str, other: "NetNamespace", other_interface: str) -> None:
        """Make a pair of devices, one end here and one in the other namespace, both up."""
        path = f"/proc/self/fd/{other.descriptor}"
        with inside_network(self.descriptor):
            subprocess.run(
                [*["ip", "link", "add"], interface, *["type", "veth", "peer", "name"], other_interface, "netns", path],
                pass_fds=(other.descriptor,),
                check=True,
            )
        self.run("ip", "link", "set", interface, "up")
        other.run("ip", "link", "set", other_interface, "up")
        self.until_up()
        other.until_up()

    def until_up(self) -> None:
        """Wait until the kernel has noticed the carriers of all devices; it drops what is sent before, without a word.

        A test's devices have their other end in another namespace of the test, and are all set up.
        """

        def states() -> set[str]:
            lines = self.run("ip", "-brief", "link", "show").splitlines()
            return {line.split()[1] for line in lines if not line.startswith("lo ")}

        poll(lambda: states() <= {"UP"})


def _fresh() -> int:
    unshare(CLONE_NEWNET)
    return open_namespace("net", "thread-self")


def _in_thread(function: Callable[[], T]) -> T:
    results: list[T] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as problem:  # noqa: BLE001 - raised again in the thread of the test
            failures.append(problem)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


@contextmanager
def netns() -> Iterator[NetNamespace]:
    """Make a namespace for the body."""
    namespace = NetNamespace()
    try:
        yield namespace
    finally:
        namespace.close()
