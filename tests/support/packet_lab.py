"""The topology of packet tests: a pod, its node and an outside host, in three network namespaces.

    pod 10.244.1.2, fd00:10:244:1::2  --  node 10.244.1.1, fd00:10:244:1::1 / 192.0.2.1, 2001:db8:2::1
                                          node  --  ext 192.0.2.2, 2001:db8:2::2 and every address of ``OUTSIDE``

Here: addresses, routes, and an echo on UDP and TCP in each namespace that answers with the source it saw.
Not here: any rule; the test writes those.
Invariant: without rules every packet arrives with the address of its sender, in both directions.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple, Self

from podgate.linux.namespaces import inside_network
from tests.support.answering import Answering
from tests.support.netns import NetNamespace

Place = Literal["pod", "node", "ext"]
Protocol = Literal["udp", "tcp"]

POD: Final = {4: "10.244.1.2", 6: "fd00:10:244:1::2"}
NODE_INSIDE: Final = {4: "10.244.1.1", 6: "fd00:10:244:1::1"}
NODE: Final = {4: "192.0.2.1", 6: "2001:db8:2::1"}
NODE_SECONDARY: Final = {4: "192.0.2.77", 6: "2001:db8:2::77"}
EXT: Final = {4: "192.0.2.2", 6: "2001:db8:2::2"}
NODE_LOCAL: Final = "169.254.20.10"
"""An address on the node's loopback device, as of a node-local DNS cache."""

OUTSIDE: Final = (
    *("198.51.100.9", "203.0.113.5", "10.50.0.9", "10.20.20.9", "172.16.5.9", "192.168.7.9", "100.64.3.9"),
    *("169.254.77.7", "2001:db8:ff::9", "fd00:50::9"),
)
"""Addresses that the outside host answers besides its own; the node's default route leads to it."""

POD_NETWORK: Final = {4: "10.244.1.0/24", 6: "fd00:10:244:1::/64"}
ECHO_PORT: Final = 7777
_SECONDS: Final = 20.0
"""How long an answer may take: a busy machine is slow, and TCP sends again by itself."""
SILENCE_SECONDS: Final = 1.0
"""How long silence is listened to, where no answer is expected."""


class Seen(NamedTuple):
    """The source address and port that the far end saw."""

    address: str
    port: int


class NoAnswerError(AssertionError):
    """Nothing came back: the packet or its answer was dropped."""


@dataclass
class PacketLab:
    """The three namespaces, by name."""

    pod: NetNamespace
    node: NetNamespace
    ext: NetNamespace

    def at(self, place: Place) -> NetNamespace:
        return {"pod": self.pod, "node": self.node, "ext": self.ext}[place]

    def flow(self, origin: Place, source: tuple[str, int] | None = None, protocol: Protocol = "udp") -> "Flow":
        """Open a socket at a place, bound to ``source`` if given; a context manager."""
        return Flow(self.at(origin), source, protocol)

    def seen(
        self, origin: Place, destination: str, source: tuple[str, int] | None = None, protocol: Protocol = "udp"
    ) -> Seen:
        """Send one message from a fresh socket to the echo at ``destination`` and give the source it saw.

        Raises:
            NoAnswerError: nothing came back in 20 s.
        """
        with self.flow(origin, source, protocol) as flow:
            return flow.seen_by(destination)


class Flow:
    """One socket: over UDP its flow to a destination lives on from message to message."""

    def __init__(self, namespace: NetNamespace, source: tuple[str, int] | None, protocol: Protocol) -> None:
        self._namespace = namespace
        self._source = source
        self._kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket:
            self._socket.close()

    def seen_by(self, destination: str, seconds: float = _SECONDS) -> Seen:
        """Send one message and give the source that the echo saw.

        Raises:
            NoAnswerError: nothing came back in that time.
        """
        if self._socket is None:
            family = socket.AF_INET if ip_address(destination).version == 4 else socket.AF_INET6
            with inside_network(self._namespace.descriptor):
                self._socket = socket.socket(family, self._kind)
            self._socket.settimeout(seconds)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._source:
                self._socket.bind(self._source)
            if self._kind == socket.SOCK_STREAM:
                with _no_answer(destination):
                    self._socket.connect((destination, ECHO_PORT))
        self._socket.settimeout(seconds)
        with _no_answer(destination):
            if self._kind == socket.SOCK_STREAM:
                self._socket.sendall(b"who\n")
            else:
                self._socket.sendto(b"who\n", (destination, ECHO_PORT))
            answer = self._socket.recv(200)
        address, port = answer.decode().split()
        return Seen(address, int(port))


@contextmanager
def _no_answer(destination: str) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, ConnectionError) as problem:
        raise NoAnswerError(f"no answer from {destination} port {ECHO_PORT}: {problem}") from problem
    except OSError as problem:
        raise NoAnswerError(f"{destination} cannot be reached: {problem}") from problem


class _Echo:
    """Answers each UDP datagram and TCP line with the source it came from, from the address it was sent to."""

    def __init__(self, namespace: NetNamespace) -> None:
        with inside_network(namespace.descriptor):
            families, kinds = (socket.AF_INET, socket.AF_INET6), (socket.SOCK_DGRAM, socket.SOCK_STREAM)
            listening = [self._listening(family, kind) for family in families for kind in kinds]
        self._answering = Answering(self._answer)
        for each in listening:
            self._answering.add(each)

    def close(self) -> None:
        self._answering.close()

    @staticmethod
    def _listening(family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_STREAM:
            listening.bind(("", ECHO_PORT))
            listening.listen()
        else:
            # An answer must leave from the address that was asked, which a wildcard socket knows by PKTINFO only.
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            else:
                listening.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            listening.bind(("", ECHO_PORT))
        return listening

    def _answer(self, ready: socket.socket, _data: object) -> None:
        if ready.type == socket.SOCK_DGRAM:
            _, control, _, peer = ready.recvmsg(200, 200)
            ready.sendmsg([_name(peer)], [_answer_from(item) for item in control], 0, peer)
        elif ready.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            connection, _ = ready.accept()
            self._answering.add(connection)
        elif ready.recv(200):
            ready.sendall(_name(ready.getpeername()))
        else:
            self._answering.drop(ready)


_IP_PKTINFO: Final = 8


def _name(peer: tuple[str, int]) -> bytes:
    return f"{peer[0]} {peer[1]}".encode()


def _answer_from(item: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    level, kind, data = item
    if level == socket.IPPROTO_IP:
        # struct in_pktinfo: index, local address, destination address. Leave the choice of the device to the routes.
        local = data[4:8]
        return level, kind, struct.pack("=I4s4s", 0, local, b"\0" * 4)
    return level, kind, data[:16] + struct.pack("=I", 0)


def _wire(lab: PacketLab) -> None:
    for namespace in (lab.pod, lab.node, lab.ext):
        # Without duplicate address detection link-local addresses are good at once, which neighbour discovery needs.
        namespace.sysctl("ipv6.conf.default.accept_dad", "0")
        namespace.sysctl("ipv6.conf.default.dad_transmits", "0")
    lab.pod.connect("eth0", lab.node, "pod0")
    lab.node.connect("eth0", lab.ext, "eth0")
    batches = {
        lab.pod: [
            f"addr add {POD[4]}/24 dev eth0",
            f"addr add {POD[6]}/64 dev eth0 nodad",
            f"route add default via {NODE_INSIDE[4]}",
            f"route add default via {NODE_INSIDE[6]}",
        ],
        lab.node: [
            f"addr add {NODE_INSIDE[4]}/24 dev pod0",
            f"addr add {NODE_INSIDE[6]}/64 dev pod0 nodad",
            f"addr add {NODE[4]}/24 dev eth0 brd +",
            f"addr add {NODE[6]}/64 dev eth0 nodad",
            f"addr add {NODE_SECONDARY[4]}/24 dev eth0",
            # Deprecated: never chosen by itself, as an address that is bound on purpose.
            f"addr add {NODE_SECONDARY[6]}/64 dev eth0 nodad preferred_lft 0",
            f"addr add {NODE_LOCAL}/32 dev lo",
            f"route add default via {EXT[4]}",
            f"route add default via {EXT[6]}",
        ],
        lab.ext: [
            f"addr add {EXT[4]}/24 dev eth0",
            f"addr add {EXT[6]}/64 dev eth0 nodad",
            *(f"addr add {address} dev lo" for address in OUTSIDE),
            f"route add {POD_NETWORK[4]} via {NODE[4]}",
            f"route add {POD_NETWORK[6]} via {NODE[6]}",
        ],
    }
    for namespace, lines in batches.items():
        namespace.run("ip", "-batch", "-", text="\n".join(lines) + "\n")
    lab.node.sysctl("ipv4.ip_forward", "1")
    lab.node.sysctl("ipv6.conf.all.forwarding", "1")


@contextmanager
def packet_lab() -> Iterator[PacketLab]:
    """Make the topology for the body."""
    with contextlib.ExitStack() as stack:
        namespaces = []
        for _ in range(3):
            namespaces.append(NetNamespace())
            stack.callback(namespaces[-1].close)
        lab = PacketLab(*namespaces)
        _wire(lab)
        for namespace in namespaces:
            echo = _Echo(namespace)
            stack.callback(echo.close)
        yield lab
