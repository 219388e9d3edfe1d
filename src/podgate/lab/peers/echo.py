"""The echo server: tells who it was called by. It runs where an image has no command of its own.

Here: HTTP/1.1, TCP and UDP listeners, the access log. Not here: anything of the lab: this is a plain program.
Invariant: a connection is only closed when its client, or SIGTERM, asks for it, so that reuse can be seen.

Ports by argument or environment, lists with commas, ``off`` for none; the argument wins::

    --http / ECHO_HTTP   80    a JSON object: source, sourcePort, destination, destinationPort, hostname, method, host,
                               path, headers (of a name that is given twice the values are joined), bodyBytes,
                               connection and request: which connection since the start, which request on it, from 1
    --tcp  / ECHO_TCP    7     ``SOURCE PORT`` and a newline at once, then whatever is sent comes back
    --udp  / ECHO_UDP    7     ``SOURCE PORT``, a newline, and the datagram

The access log on stdout, a line per request, TCP connection and datagram::

    SOURCE - "METHOD PATH" STATUS      as 10.16.1.6 - "GET /" 200
    SOURCE - "TCP PORT" OK             as 10.16.1.6 - "TCP 7" OK; UDP likewise

Exit codes: 0 after SIGTERM (open requests have five seconds), 1 when a port is taken, 2 for wrong arguments.
"""

import argparse
import asyncio
import errno
import ipaddress
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import h11

_GRACE: Final = 5.0
_BACKLOG: Final = 1024
_LARGEST: Final = 65_535
_NO_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def _say(source: str, what: str, status: object) -> None:
    print(f'{source} - "{what}" {status}', flush=True)


def _plain(address: str) -> str:
    """Give an address without a zone, and an IPv4 one as such even if it came in IPv6 clothes."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


class _Served(asyncio.Protocol):
    """A connection that the server keeps account of."""

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.source, self.port = "", 0
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note who called."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_server gives
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.source, self.port = _plain(peer[0]), peer[1]
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        del exc
        self.server.forget(self)

    def finish(self) -> None:
        """Close unless something is going on; then it closes itself."""
        if not self.busy:
            self.transport.close()

    def pause_writing(self) -> None:
        """Read no more while the other side does not read either."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        self.transport.resume_reading()


class _Tcp(_Served):
    """Says who called, then gives back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who called."""
        super().connection_made(transport)
        _say(self.source, f"TCP {self.transport.get_extra_info('sockname')[1]}", "OK")
        self.transport.write(f"{self.source} {self.port}\n".encode())

    def data_received(self, data: bytes) -> None:
        """Give it back."""
        self.transport.write(data)


class _Http(_Served):
    """Answers requests one after the other; h11 does the framing."""

    def __init__(self, server: "Server") -> None:
        super().__init__(server)
        self._framing = h11.Connection(h11.SERVER)
        self._number = next(server.numbers)
        self._requests = itertools.count(1)
        self._request: h11.Request | None = None
        self._body = 0

    def data_received(self, data: bytes) -> None:
        """Take what came, and answer whatever is whole."""
        self._take(data)

    def eof_received(self) -> None:
        """Take the client's end of sending."""
        self._take(b"")

    def _take(self, data: bytes) -> None:
        try:
            self._framing.receive_data(data)
            while self._step(self._framing.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _step(self, event: object) -> bool:
        """Act on one event; False when more bytes are needed."""
        if isinstance(event, h11.Request):
            self._request, self._body, self.busy = event, 0, True
            if self._framing.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self.transport.write(self._framing.send(go_on) or b"")
        elif isinstance(event, h11.Data):
            self._body += len(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self._answer()
        else:
            if isinstance(event, h11.ConnectionClosed):
                self.transport.close()
            return False
        return True

    def _answer(self) -> None:
        request = self._request
        if request is None:
            return
        path = request.target.decode("ascii", "backslashreplace")
        body = json.dumps(self._seen(request, path), ensure_ascii=False, indent=2).encode() + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if self.server.stopping:
            headers.append(("Connection", "close"))
        self.busy = False
        self._send(h11.Response(status_code=200, reason=b"OK", headers=headers), body, head=request.method == b"HEAD")
        _say(self.source, f"{request.method.decode()} {path}", 200)
        if self._framing.our_state is h11.MUST_CLOSE or self._framing.their_state is h11.MUST_CLOSE:
            self.transport.close()
        else:
            self._framing.start_next_cycle()

    def _seen(self, request: h11.Request, path: str) -> dict[str, object]:
        headers: dict[str, str] = {}
        for name, value in request.headers.raw_items():
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        here = self.transport.get_extra_info("sockname")
        return {
            "source": self.source,
            "sourcePort": self.port,
            "destination": _plain(here[0]),
            "destinationPort": here[1],
            "hostname": socket.gethostname(),
            "method": request.method.decode("ascii"),
            "host": dict(request.headers).get(b"host", b"").decode("latin-1"),
            "path": path,
            "headers": headers,
            "bodyBytes": self._body,
            "connection": self._number,
            "request": next(self._requests),
        }

    def _send(self, response: h11.Response, body: bytes, *, head: bool) -> None:
        data = [self._framing.send(response)]
        if not head:
            data.append(self._framing.send(h11.Data(data=body)))
        data.append(self._framing.send(h11.EndOfMessage()))
        self.transport.write(b"".join(part for part in data if part))

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Say what was wrong with the request, and close."""
        if self._framing.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = f"{error}\n".encode()
            headers = [("Content-Length", str(len(body))), ("Connection", "close")]
            status = error.error_status_hint
            self._send(h11.Response(status_code=status, headers=headers), body, head=False)
            _say(self.source, "? ?", status)
        self.transport.close()


class Server:
    """All listeners of the process.

    Attributes:
        connections: those that are open.
        stopping: whether SIGTERM came.
    """

    def __init__(self) -> None:
        self.connections: set[_Served] = set()
        self.stopping = False
        self.numbers = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._datagrams: list[socket.socket] = []
        self._closed = asyncio.Event()

    async def listen(self, kind: str, ports: Sequence[int]) -> None:
        """Listen on all addresses of both families.

        Raises:
            OSError: a port is taken; the message names it.
        """
        loop = asyncio.get_running_loop()
        for port in ports:
            for listener in _sockets(socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM, port):
                if kind == "udp":
                    self._datagrams.append(listener)
                    loop.add_reader(listener, _answer_datagram, listener)
                else:
                    make = partial(_Http if kind == "http" else _Tcp, self)
                    server = await loop.create_server(make, sock=listener, backlog=_BACKLOG)
                    self._servers.append(server)

    async def stop(self) -> None:
        """Take nothing new, close what is idle, and give what is not five seconds."""
        self.stopping = True
        for listener in self._datagrams:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while self.connections:
                    self._closed.clear()
                    await self._closed.wait()

    def forget(self, connection: _Served) -> None:
        """Note that a connection is gone."""
        self.connections.discard(connection)
        self._closed.set()


def _sockets(kind: socket.SocketKind, port: int) -> Iterator[socket.socket]:
    """Bind one socket per family that the kernel has."""
    for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - a server
        try:
            bound = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            if kind == socket.SOCK_STREAM:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind == socket.SOCK_DGRAM:
                # The address that was called must be the one that answers, or no NAT recognises the answer.
                bound.setsockopt(*_INFO[family][:2], 1)
            bound.bind((anywhere, port))
        except OSError as error:
            if error.errno in _NO_FAMILY and family == socket.AF_INET6:
                continue
            raise OSError(error.errno, f"cannot listen on port {port}: {error.strerror}") from error
        yield bound


_IP_PKTINFO: Final = 8
"""From linux/in.h; Python's socket module has it from 3.14 on."""

_INFO: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, _IP_PKTINFO, _IP_PKTINFO),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, socket.IPV6_PKTINFO),
}
"""Per family: level, the option that asks for the called address, the message that carries it."""


def _answer_datagram(bound: socket.socket) -> None:
    level, _, kind = _INFO[bound.family]
    try:
        data, messages, _, peer = bound.recvmsg(_LARGEST, socket.CMSG_SPACE(64))
    except OSError:
        return  # nothing there after all (a bad checksum), or an error that an earlier answer met
    source = _plain(peer[0])
    told = [message for message in messages if message[:2] == (level, kind)]
    # The interface is left open for the routing table to choose, but for link-local addresses, which need it.
    if bound.family == socket.AF_INET:  # struct in_pktinfo: interface, local address, called address
        told = [(*one[:2], bytes(4) + one[2][4:8] + bytes(4)) for one in told]
    elif not peer[0].startswith("fe80:"):  # struct in6_pktinfo: local address, interface
        told = [(*one[:2], one[2][:16] + bytes(4)) for one in told]
    _say(source, f"UDP {bound.getsockname()[1]}", "OK")
    try:
        bound.sendmsg([f"{source} {peer[1]}\n".encode(), data], told, 0, peer)
    except OSError as error:
        print(f"no answer to {source}: {error.strerror}", file=sys.stderr, flush=True)


def _ports(text: str) -> tuple[int, ...]:
    if text == "off":
        return ()
    ports = tuple(int(part) for part in text.split(","))
    if not all(0 < port <= _LARGEST for port in ports):
        raise ValueError(text)
    return ports


_ports.__name__ = "list of ports"  # what argparse calls it in its message


async def _serve(wanted: dict[str, Sequence[int]], ready: Callable[[], None]) -> None:
    server = Server()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    for kind, ports in wanted.items():
        await server.listen(kind, ports)
    ready()
    await stop.wait()
    await server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="echo", description="Tell callers which address they come from.")
    for kind, default in (("http", "80"), ("tcp", "7"), ("udp", "7")):
        given = os.environ.get(f"ECHO_{kind.upper()}", default)
        text = f"{kind.upper()} ports, with commas between, or off (default: {default})"
        parser.add_argument(f"--{kind}", type=_ports, default=given, metavar="PORTS", help=text)
    arguments = parser.parse_args(argv)
    wanted = {kind: getattr(arguments, kind) for kind in ("http", "tcp", "udp")}
    shown = ", ".join(f"{kind} {port}" for kind, ports in wanted.items() for port in ports)
    try:
        asyncio.run(_serve(wanted, lambda: print(f"echo listens on {shown}", file=sys.stderr, flush=True)))
    except OSError as error:
        print(f"echo: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
