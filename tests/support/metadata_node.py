"""A node between a Pod and a cloud's metadata server, for tests of the node's rules in the real kernel.

    pod 10.244.1.2  --  node (the proxy's ports on 169.254.169.252)  --  ext: the cloud, 169.254.169.254, fd20:ce::254

Here: who answers where, and what a client gets to see. Not here: any rule.
Invariant: each listener says its own name, so that a test sees where a connection ended.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from podgate.linux.namespaces import inside_network
from tests.support.netns import NetNamespace
from tests.support.packet_lab import EXT, PacketLab, packet_lab

CLOUD: Final = "169.254.169.254"
CLOUD6: Final = "fd20:ce::254"
LOCAL: Final = "169.254.169.252"
UPLINK: Final = "eth0"
_SECONDS: Final = 20.0
"""Until an answer that comes late. A lost SYN is sent again after one second (RFC 6298), and the first packets of a new
device are lost while its carrier is being noticed, which takes a while on a busy machine."""


@contextmanager
def metadata_node(ports: tuple[int, ...] = (53, 80, 443, 8080)) -> Iterator[PacketLab]:
    """Make the topology, with the cloud answering on some ports and without a proxy."""
    with packet_lab() as lab, contextlib.ExitStack() as stack:
        lab.ext.run("ip", "addr", "add", f"{CLOUD}/32", "dev", "lo")
        lab.ext.run("ip", "addr", "add", f"{CLOUD6}/128", "dev", "lo", "nodad")
        lab.node.run("ip", "route", "add", CLOUD, "via", EXT[4])
        for address in (CLOUD, CLOUD6):
            for port in ports:
                stack.enter_context(serving(lab.ext, address, port, "cloud"))
        yield lab


@contextmanager
def serving(namespace: NetNamespace, address: str, port: int, name: str) -> Iterator[None]:
    """Answer every line on a port with a name, until the end; the port is closed then, with its connections."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside_network(namespace.descriptor):
        listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    connections: list[socket.socket] = []

    def talk(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while connection.recv(100):
                connection.sendall(name.encode())

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connections.append(connection)
                threading.Thread(target=talk, args=(connection,)).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        for each in (listening, *connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        thread.join()


class Asking:
    """One connection, kept open."""

    def __init__(
        self, namespace: NetNamespace, address: str, port: int, source: str = "", seconds: float = _SECONDS
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with inside_network(namespace.descriptor):
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.settimeout(seconds)
        if source:
            self._socket.bind((source, 0))
        self._to = (address, port)
        self._is_connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def answer(self) -> str:
        """Give who answers: a name, ``refused`` after a reset, ``silence`` when nobody does."""
        try:
            if not self._is_connected:
                self._socket.connect(self._to)
                self._is_connected = True
            self._socket.sendall(b"who\n")
            return self._socket.recv(100).decode() or "closed"
        except TimeoutError:
            return "silence"
        except ConnectionError:
            return "refused"


class LongPoll:
    """A connection on which the server speaks whenever a test wants it to, without being asked again.

    Args:
        client: where it is opened.
        to: the address and port that the client opens it to.
        server: who listens.
        at: the address and port that it listens at, where rules lead there from another one.
    """

    def __init__(
        self, client: NetNamespace, to: tuple[str, int], server: NetNamespace, at: tuple[str, int] | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
        with inside_network(server.descriptor):
            listening = socket.socket(family, socket.SOCK_STREAM)
        with inside_network(client.descriptor):
            self._client = socket.socket(family, socket.SOCK_STREAM)
        with listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(at or to)
            listening.listen()
            self._client.settimeout(_SECONDS)
            self._client.connect(to)
            self._server, _ = listening.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._server.close()

    def told(self, what: str) -> str:
        """Have the server say something; give what the client hears, ``cut`` where the server gets a reset."""
        return self._heard(what, self._server, self._client)

    def asked(self, what: str) -> str:
        """Have the client say something; give what the server hears, ``cut`` where the client gets a reset."""
        return self._heard(what, self._client, self._server)

    @staticmethod
    def _heard(what: str, speaker: socket.socket, hearer: socket.socket) -> str:
        try:
            speaker.sendall(what.encode())
            readable, _, _ = select.select([speaker, hearer], [], [], _SECONDS)
            if hearer in readable:
                return hearer.recv(100).decode()
            return "spoken to" if readable and speaker.recv(100) else "silence"
        except ConnectionError:
            return "cut"


def asked(namespace: NetNamespace, address: str, port: int, source: str = "", seconds: float = _SECONDS) -> str:
    """Give who answers a fresh connection, ``silence`` when nobody does for some seconds."""
    with Asking(namespace, address, port, source, seconds) as asking:
        return asking.answer()
