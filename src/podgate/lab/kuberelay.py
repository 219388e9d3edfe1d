"""The API server as Pods see it: an outside machine of the lab whose port leads to the real one.

Here: which address and port that is, and the relay. Not here: the network around it (lab/network.py).
Invariant: bytes pass unread, so a Pod's TLS ends at the real server; the machine's network stays out of reach but for
that one port.
"""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from podgate.kubeapi.requests import Request
from podgate.lab.kinds import Object
from podgate.lab.network import HostNet
from podgate.linux.namespaces import inside_network
from podgate.model.frozen import Frozen

NAME: Final = "kube:apiserver"
"""No object can have this name, so no Host of a user is taken for it."""

SANDBOX: Final = f"host/{NAME}"
_CHUNK: Final = 1 << 16


class Entrance(Frozen, frozen=True):
    """Where Pods find the API server: what the Endpoints ``default/kubernetes`` say."""

    address: str
    port: int

    @property
    def host(self) -> HostNet:
        """It, as an outside machine of the lab."""
        return HostNet(NAME, (ip_address(self.address),))

    @property
    def environment(self) -> dict[str, str]:
        """What tells a client in a Pod. A kubelet gives the Service's address, which leads nowhere without a proxy."""
        return {"KUBERNETES_SERVICE_HOST": self.address, "KUBERNETES_SERVICE_PORT": str(self.port)}


LOOK_UP: Final = Request(
    "GET",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    (("labelSelector", "kubernetes.io/service-name=kubernetes"),),
    what="find the API server's own address",
)


def entrance(body: bytes) -> Entrance | None:
    """Read the answer to ``LOOK_UP``; None when it names no address yet."""
    slices: Iterable[Object] = msgspec.json.decode(body, type=dict[str, Any]).get("items") or ()
    for one in slices:
        for endpoint in one.get("endpoints") or ():
            for port in one.get("ports") or ():
                if endpoint.get("addresses") and port.get("port"):
                    return Entrance(endpoint["addresses"][0], int(port["port"]))
    return None


class Relay:
    """Relays connections from a socket in the lab to the API server.

    Args:
        target: the server's address and port, in the machine's network.
        machine: the machine's network namespace.
    """

    def __init__(self, target: tuple[str, int], machine: int) -> None:
        self._target = target
        self._machine = machine

    async def run(self, sandbox: int, where: Entrance) -> None:
        """Serve in the network namespace ``sandbox`` until cancelled."""
        family = _family(where.address)
        with inside_network(sandbox):
            listener = socket.socket(family, socket.SOCK_STREAM)
        with listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((where.address, where.port))
            listener.listen(128)
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.TaskGroup() as group:
                while True:
                    near, _ = await loop.sock_accept(listener)
                    group.create_task(self._serve(near))

    async def _serve(self, near: socket.socket) -> None:
        with inside_network(self._machine):
            far = socket.socket(_family(self._target[0]), socket.SOCK_STREAM)
        far.setblocking(False)
        with near, far, suppress(OSError):
            await asyncio.get_running_loop().sock_connect(far, self._target)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(near, far))
                group.create_task(_pass_on(far, near))


async def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until the source ends or either side breaks; the end is passed on, too."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(source, _CHUNK):
            await loop.sock_sendall(sink, data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
