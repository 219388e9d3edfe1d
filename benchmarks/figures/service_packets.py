"""Figures of the first packet: how long a connection through a Service takes, by how many Services there are.

Here: a client, a node and a server, once with many Services and once with few, asked in turns. Not here: what the
rules cost to write (services.py).
Invariant: every connection is a new one to the kernel, and both nodes are the same but for the number of Services.

    client 10.9.0.2  --  10.9.0.1 node 10.8.0.1  --  10.8.0.2 server, which has all of 11.0.0.0/8
"""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.figures.service_child import Node, decoded
from benchmarks.figures.service_objects import PODS, cluster_ip, objects
from benchmarks.support import Row, percentile
from podgate.linux.namespaces import inside_network
from tests.support.netns import NetNamespace, netns

FEW: Final = 10
BATCH: Final = 50
"""Connections to one node before it is the other one's turn."""

_PORT, _TARGET_PORT = 80, 8080
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: an end without waiting, so that no port stays in use."""


class Way:
    """A client that connects to a server through a node with Services."""

    def __init__(self, client: NetNamespace, server: socket.socket, services: int) -> None:
        self._client, self._server, self._services = client, server, services
        self._asked = 0

    def batch(self) -> list[float]:
        """Connect a few times, to one Service after the other; give the seconds of each."""
        taken = []
        for _ in range(BATCH):
            self._asked += 1
            address = (cluster_ip(self._asked * 7919 % self._services), _PORT)
            with inside_network(self._client.descriptor):
                asking = socket.socket()
            with asking:
                asking.settimeout(5.0)
                asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                started = time.perf_counter()
                asking.connect(address)
                taken.append(time.perf_counter() - started)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._server.accept()[0].close()
        return taken


@contextmanager
def path(services: int) -> Iterator[Way]:
    """Have the three places, and the rules of so many Services with two endpoints each."""
    with netns() as client, netns() as node, netns() as server:
        client.connect("east", node, "west")
        node.connect("east", server, "west")
        for place, address, device in ((client, "10.9.0.2", "east"), (node, "10.9.0.1", "west"),
                                       (node, "10.8.0.1", "east"), (server, "10.8.0.2", "west")):  # fmt: skip
            place.run("ip", "address", "add", f"{address}/24", "dev", device)
        client.run("ip", "route", "add", "default", "via", "10.9.0.1")
        server.run("ip", "route", "add", "default", "via", "10.8.0.1")
        node.run("ip", "route", "add", PODS, "via", "10.8.0.2")
        server.run("ip", "route", "add", "local", PODS, "dev", "lo")
        node.sysctl("ipv4.ip_forward", "1")
        with inside_network(server.descriptor):
            listening = socket.create_server(("0.0.0.0", _TARGET_PORT), backlog=4 * BATCH)
        with listening:
            listening.setblocking(False)
            target = _load(node, services)
            try:
                yield Way(client, listening, services)
            finally:
                target.close()


def _load(namespace: NetNamespace, services: int) -> Node:
    snapshot = decoded(json.dumps(each).encode() for each in objects(services, 2))
    node = Node(namespace)
    asyncio.run(node.bring(snapshot))
    return node


def packets(_folder: Path, quick: bool) -> list[Row]:
    """Measure connections, in turns."""
    many, turns = (500, 10) if quick else (30_000, 200)
    with ExitStack() as stack:
        paths = {count: stack.enter_context(path(count)) for count in (FEW, many)}
        taken: dict[int, list[float]] = {count: [] for count in paths}
        for turn in range(turns + 1):
            for count, each in paths.items():
                seconds = each.batch()
                if turn:  # the first one learns neighbours and fills caches
                    taken[count] += seconds
    return [_row(name, share, many, taken) for name, share in (("median", 0.5), ("p99", 0.99))]


def _row(name: str, share: float, many: int, taken: dict[int, list[float]]) -> Row:
    ours, few = (percentile(taken[count], share) for count in (many, FEW))
    return Row(
        f"first packet, TCP connect through a cluster IP, {many:,} x 2: {name}",
        "within 10 %",
        _micro(ours),
        f"{len(taken[many])} connections",
        f"{FEW} x 2 {_micro(few)}: ratio {ours / few:.2f}",
    )


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"
