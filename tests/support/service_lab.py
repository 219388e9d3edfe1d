"""Service traffic with real packets: a lab's network in this process, servers on endpoints, and many probes at once.

Here: the network (the lab's own, lab/network.py), servers that say who they are and whom they saw, probes.
Not here: rules, which an agent writes inside a node's namespace; what is expected (the tests).
Invariant: no two probes share a source port, so no connection that the kernel remembers answers for another; and the
namespaces go with their last descriptor, whatever happens to the test.
"""

import asyncio
import contextlib
import errno
import itertools
import selectors
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from podgate.lab.network import Topology, network, pod_namespace
from podgate.lab.wire import Wire
from podgate.linux.namespaces import inside_network
from podgate.model.machine import IPAddress
from tests.support.answering import Answering
from tests.support.netns import NetNamespace
from tests.support.sctp_init import Listeners

Protocol = Literal["tcp", "udp", "sctp"]

_FIRST_PORT: Final = 11_000
_LAST_PORT: Final = 29_999
"""Source ports: between those of a proxy's pages and the node ports, which a node's own probes must not take."""

_AGAIN: Final = 0.5
"""Seconds until an unanswered datagram is sent again: a new device may lose its first ones."""

_REFUSED: Final = (errno.ECONNREFUSED,)
_UNREACHABLE: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH)


class Probe(NamedTuple):
    """One message to send.

    Attributes:
        origin: the namespace that it comes from, as ``pod/default/client``.
        address: where it goes.
        source: the address that it is sent from; empty: the kernel's choice.
    """

    origin: str
    address: str
    protocol: Protocol
    port: int
    source: str = ""


class Seen(NamedTuple):
    """What came of a probe.

    Attributes:
        verdict: ``answered``, ``refused`` (reset or port unreachable), ``unreachable`` or ``silent``.
        endpoint: who answered, as ``10.16.1.6:80`` or ``[fd00::6]:80``.
        source: the address that it saw.
    """

    verdict: Literal["answered", "refused", "unreachable", "silent"]
    endpoint: str = ""
    source: str = ""


def endpoint(address: str, port: int) -> str:
    """Show an address with a port."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6


_FREE_BIND: Final = {socket.AF_INET: (socket.IPPROTO_IP, 15), socket.AF_INET6: (socket.IPPROTO_IPV6, 78)}
"""IP_FREEBIND and IPV6_FREEBIND, from linux/in.h and linux/in6.h: bind an address that no device has."""

_KINDS: Final = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


class Servers:
    """Answer each connection and datagram with a line: the endpoint, and the source that it saw."""

    def __init__(self) -> None:
        self._answering = Answering(_answer)

    def listen(self, namespace: int, address: str, protocol: Protocol, port: int) -> None:
        """Serve at an endpoint, in the network namespace of that descriptor."""
        with inside_network(namespace):
            listening = socket.socket(_family(address), _KINDS[protocol])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A namespace may be a whole range by a route alone, as node-3 of service_flows.py.
        listening.setsockopt(*_FREE_BIND[listening.family], 1)
        listening.setblocking(False)
        listening.bind((address, port))
        if protocol == "tcp":
            listening.listen(512)
        self._answering.add(listening, endpoint(address, port))

    def close(self) -> None:
        self._answering.close()


def _answer(ready: socket.socket, name: str) -> None:
    if ready.type == socket.SOCK_DGRAM:
        _, peer = ready.recvfrom(100)
        ready.sendto(f"{name} {peer[0]}".encode(), peer)
    else:
        connection, peer = ready.accept()
        with connection:
            connection.sendall(f"{name} {peer[0]}".encode())


class _Asking:
    """A probe under way."""

    def __init__(self, probe: Probe, namespace: int, port: int) -> None:
        self.probe = probe
        family = _family(probe.address)
        with inside_network(namespace):
            self.socket = socket.socket(family, _KINDS[probe.protocol])
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((probe.source or ("" if family == socket.AF_INET else "::"), port))
        self.connected = False
        self.sent = 0.0

    def begin(self) -> Seen | None:
        """Connect; what comes of it at once, if anything does."""
        try:
            self.socket.connect((self.probe.address, self.probe.port))
        except BlockingIOError:
            pass
        except OSError as error:
            return _failed(error)
        return self.again()

    def again(self) -> Seen | None:
        """Send the datagram (once more)."""
        self.sent = time.monotonic()
        if self.probe.protocol == "udp":
            try:
                self.socket.send(b"who")
            except OSError as error:
                return _failed(error)
        return None

    def ready(self) -> Seen | None:
        """Take what is there."""
        try:
            said = self.socket.recv(200).decode()
        except BlockingIOError:
            return None
        except OSError as error:
            return _failed(error)
        name, _, source = said.partition(" ")
        return Seen("answered", name, source) if name else Seen("refused")


def _failed(error: OSError) -> Seen:
    if error.errno in _REFUSED:
        return Seen("refused")
    if error.errno in _UNREACHABLE:
        return Seen("unreachable")
    if error.errno == errno.EPERM:  # how a node hears that its own datagram was dropped on its way out
        return Seen("silent")
    raise error


class ServiceLab:
    """The network with its servers.

    Attributes:
        descriptors: the network namespaces by name: ``node/…``, ``pod/…``, ``host/…``.
    """

    def __init__(self, topology: Topology, wire: Wire, servers: Servers) -> None:
        self.descriptors: Mapping[str, int] = {name: box.network for name, box in wire.sandboxes.items()}
        self.servers = servers
        self._ports = itertools.cycle(range(_FIRST_PORT, _LAST_PORT))
        self._served: set[tuple[str, str, str, int]] = set()
        self._sctp = Listeners([(found, str(ip)) for found, ip in self._addresses(topology)])

    def _addresses(self, topology: Topology) -> Iterator[tuple[int, IPAddress]]:
        for pod in topology.pods:
            for ip in pod.addresses:
                yield self.descriptors[pod_namespace(pod.namespace, pod.name)], ip

    def close(self) -> None:
        self._sctp.close()

    def run(self, namespace: str, *command: str, text: str = "", check: bool = True) -> str:
        """Run a command in a namespace."""
        return self.namespace(namespace).run(*command, text=text, check=check)

    def namespace(self, name: str) -> NetNamespace:
        """Give a namespace as other tests' tools want it; it is the lab's, who closes it."""
        found = NetNamespace.__new__(NetNamespace)
        found.descriptor = self.descriptors[name]
        return found

    def serve_once(self, place: str, address: str, protocol: Protocol, port: int) -> None:
        """Serve at an address of a namespace, unless somebody does so already."""
        if (place, address, protocol, port) not in self._served:
            self._served.add((place, address, protocol, port))
            self.servers.listen(self.descriptors[place], address, protocol, port)

    def ask(self, probes: Sequence[Probe], seconds: float) -> list[Seen]:
        """Send all probes at once, and give what came of each within that time.

        Of SCTP an INIT is sent: it counts as answered by the Pod where it arrives.
        """
        found = self._ask([probe for probe in probes if probe.protocol != "sctp"], seconds)
        inits = [probe for probe in probes if probe.protocol == "sctp"]
        senders = [(self.descriptors[one.origin], one.address, one.port, next(self._ports)) for one in inits]
        arrived = self._sctp.send(senders, seconds)
        answers = (
            Seen("answered", endpoint(one.address, one.port), one.source) if one else Seen("silent") for one in arrived
        )
        others = iter(found)
        return [next(answers) if probe.protocol == "sctp" else next(others) for probe in probes]

    def _ask(self, probes: Sequence[Probe], seconds: float) -> list[Seen]:
        asking = [_Asking(probe, self.descriptors[probe.origin], next(self._ports)) for probe in probes]
        seen: dict[int, Seen] = {}
        with selectors.DefaultSelector() as selector:
            for index, one in enumerate(asking):
                selector.register(one.socket, selectors.EVENT_READ, index)
                if (found := one.begin()) is not None:
                    seen[index] = found
                    selector.unregister(one.socket)
            deadline = time.monotonic() + seconds
            while len(seen) < len(asking) and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(min(left, _AGAIN)):
                    if (found := asking[key.data].ready()) is not None:
                        seen[key.data] = found
                        selector.unregister(key.fileobj)
                for index in (index for index in range(len(asking)) if index not in seen):
                    one = asking[index]
                    if time.monotonic() - one.sent > _AGAIN and (found := one.again()) is not None:
                        seen[index] = found
                        selector.unregister(one.socket)
        for one in asking:
            one.socket.close()
        return [seen.get(index, Seen("silent")) for index in range(len(asking))]


@contextmanager
def service_lab(
    topology: Topology,
    endpoints: Iterable[tuple[str, str, Protocol, int]],
    more: Mapping[tuple[str, int], Sequence[str]] | None = None,
) -> Iterator[ServiceLab]:
    """Make the network and its servers for the body.

    Args:
        topology: nodes, Pods and outside hosts.
        endpoints: namespace, address, protocol and port of each server.
        more: further lines of ``ip -batch``, by namespace and version of IP.
    """
    warnings: list[str] = []
    wire = Wire(warnings.append)
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:

        async def gone() -> None:
            for sandbox in wire.sandboxes.values():
                await sandbox.stop()

        stack.callback(lambda: runner.run(gone()))
        runner.run(wire.apply(network(topology)))
        assert warnings == []
        servers = Servers()
        stack.callback(servers.close)
        lab = ServiceLab(topology, wire, servers)
        stack.callback(lab.close)
        for name in lab.descriptors:
            lab.namespace(name).until_up()
        for (name, version), lines in (more or {}).items():
            lab.run(name, "ip", f"-{version}", "-batch", "-", text="\n".join(lines) + "\n")
        for place, address, protocol, port in endpoints:
            lab.serve_once(place, address, protocol, port)
        yield lab
