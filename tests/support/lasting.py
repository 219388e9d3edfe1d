"""Clients that stay: TCP connections and UDP sockets that are opened once and used again and again.

Here: their server (UDP ones ask the servers of service_lab.py), asking all of them, who answered. Not here: a new
connection for each question (service_lab.py).
Invariant: a question is asked once and never again, so that one lost packet of UDP or one reset connection is seen.
"""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from podgate.linux.namespaces import inside_network
from tests.support.answering import Answering
from tests.support.service_lab import ServiceLab, endpoint

_SECONDS: Final = 60.0
"""How long an answer may take: TCP sends again by itself, and a busy machine is slow."""

_KINDS: Final = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


class Client(NamedTuple):
    """Who asks whom: the namespace, and an address with protocol and port."""

    origin: str
    address: str
    protocol: Literal["tcp", "udp"]
    port: int

    def __str__(self) -> str:
        return f"{self.origin} -> {endpoint(self.address, self.port)}/{self.protocol}"


def _socket(namespace: int, address: str, protocol: Literal["tcp", "udp"]) -> socket.socket:
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    with inside_network(namespace):
        return socket.socket(family, _KINDS[protocol])


@contextmanager
def lasting_servers(lab: ServiceLab, endpoints: Sequence[tuple[str, str]], port: int) -> Iterator[None]:
    """Answer each line of TCP connections with the endpoint's name, and keep them open; namespaces and addresses."""

    def answer(ready: socket.socket, name: str) -> None:
        if ready.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            answering.add(ready.accept()[0], name)
        elif ready.recv(100):
            ready.sendall(name.encode())
        else:
            answering.drop(ready)

    answering = Answering(answer)
    with contextlib.closing(answering):
        for place, address in endpoints:
            listening = _socket(lab.descriptors[place], address, "tcp")
            listening.bind((address, port))
            listening.listen(64)
            answering.add(listening, endpoint(address, port))
        yield


class Lasting:
    """Open clients.

    Attributes:
        endpoints: who answers each of them, which is to be the same for ever.
        faults: what went wrong, each once; a client that met a fault asks no more.
    """

    def __init__(self, lab: ServiceLab, clients: Sequence[Client]) -> None:
        self.faults: list[str] = []
        self._open: dict[Client, socket.socket] = {}
        for number, client in enumerate(clients):
            opened = _socket(lab.descriptors[client.origin], client.address, client.protocol)
            opened.settimeout(_SECONDS)
            opened.connect((client.address, client.port))
            self._open[client._replace(origin=f"{client.origin} (number {number})")] = opened
        self.endpoints: dict[Client, str] = {}
        self.endpoints = self.ask()

    def ask(self) -> dict[Client, str]:
        """Ask each that is without fault; who answered."""
        for client, opened in list(self._open.items()):
            with self._watched(client):
                opened.send(b"who")
        said: dict[Client, str] = {}
        for client, opened in list(self._open.items()):
            with self._watched(client):
                said[client] = opened.recv(100).decode().partition(" ")[0]
                if said[client] != self.endpoints.get(client, said[client]):
                    raise ConnectionError(f"went from {self.endpoints[client]} to {said[client] or 'nobody'}")
        return said

    @contextmanager
    def _watched(self, client: Client) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.faults.append(f"{client}: {error}")
            self._open.pop(client).close()

    def close(self) -> None:
        """Close all."""
        for opened in self._open.values():
            opened.close()
