"""Pages over HTTP: health, readiness and metrics, for probes and scrapers.

Here: a small server for GET and HEAD of a fixed set of paths. Not here: reading addresses (listen.py); what the pages
say: each is a function that is called when somebody asks.
Invariant: what a client sends costs bounded memory and bounded time: a head of 8 KiB, no body, one request at a time,
64 connections, 30 s to say something whole or to take what was said.
"""

import asyncio
import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, cast

import h11

from podgate.observe.listen import Listen

HEAD_LIMIT: Final = 8 * 1024
"""Bytes of a request head, as nginx and Apache have it by default."""

LINGER: Final = 2.0
"""Seconds to let a client read a refusal: closing with unread input makes the kernel reset the connection."""

Answer = tuple[int, str, bytes]
"""Status, content type, body."""

Page = Callable[[], Answer]
"""Makes an answer from what is known already: quick, without I/O."""

TEXT: Final = "text/plain; charset=utf-8"


class PageServer:
    """Serves pages while ``listening`` is entered.

    Args:
        pages: a page for each path; ``*`` for all that have none. Read at each request.
        idle: seconds for a whole request to arrive, or an answer to be taken.
        connections: how many may be open; a further one ends the one that has been silent for longest, so that a crowd
            of idle clients never keeps a probe out.
    """

    def __init__(self, pages: Mapping[str, Page], *, idle: float = 30.0, connections: int = 64) -> None:
        self._pages = pages
        self._idle = idle
        self._most = connections
        self._open: dict[_Connection, None] = {}

    @contextlib.asynccontextmanager
    async def listening(self, listen: Listen) -> AsyncIterator[Listen]:
        """Listen; gives the address with the port that was taken. At the end all connections are closed.

        Raises:
            OSError: the address is in use, not this machine's, or not permitted.
        """
        bound = _bound_unix(listen.path) if listen.path else _bound_tcp(listen)
        inode = os.stat(listen.path).st_ino if listen.path else 0  # noqa: PTH116 - one call beside its twin below
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), sock=bound)
        try:
            yield listen if listen.path else Listen(listen.host, bound.getsockname()[1])
        finally:
            server.close()
            for connection in list(self._open):
                connection.abort()
            await server.wait_closed()
            if listen.path:
                _unlink_own(listen.path, inode)

    def opened(self, connection: "_Connection") -> None:
        """Take in a connection, and end the most silent one when there are too many."""
        if len(self._open) >= self._most:
            next(iter(self._open)).abort()
        self._open[connection] = None

    def spoke(self, connection: "_Connection") -> None:
        """Note that a connection sent a whole request: it is the last to give way."""
        if self._open.pop(connection, self) is not self:
            self._open[connection] = None

    def closed(self, connection: "_Connection") -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    @property
    def idle(self) -> float:
        """Seconds that a connection may be silent."""
        return self._idle

    def answer(self, method: bytes, target: bytes) -> Answer:
        """Give the answer to a request without a body."""
        if target.startswith(b"http://"):  # RFC 9112, 3.2.2: a server accepts the form meant for proxies
            target = b"/" + target.removeprefix(b"http://").partition(b"/")[2]
        page = self._pages.get(target.partition(b"?")[0].decode("ascii", "replace"), self._pages.get("*"))
        if page is None:
            return 404, TEXT, "no such page; there are {}\n".format(" ".join(sorted(self._pages))).encode()
        if method not in (b"GET", b"HEAD"):
            return 405, TEXT, b"only GET and HEAD\n"
        return page()


class _Connection(asyncio.Protocol):
    """One client: h11 reads, and each request is answered before the next is looked at."""

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have all methods of asyncio's, but do not inherit from it.
        self._transport = transport = cast("asyncio.Transport", transport)
        # A client that does not read holds one answer, not the answers to all that it sent ahead.
        transport.set_write_buffer_limits(high=0)
        self._server.opened(self)
        self._deadline(self._server.idle)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._server.closed(self)
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            self._http.receive_data(data)
            self._pump()

    def eof_received(self) -> bool:
        if not self._refused:
            with contextlib.suppress(h11.RemoteProtocolError):
                self._http.receive_data(b"")
            self._pump()
        return False  # asyncio closes once what is written has gone

    def pause_writing(self) -> None:
        self._full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._pump()

    def abort(self) -> None:
        """Close at once."""
        self._server.closed(self)
        if self._transport is not None:
            self._transport.abort()

    def _deadline(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _pump(self) -> None:
        """Answer whole requests while the client takes the answers."""
        while self._transport is not None and not self._full and not self._refused:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint, f"{error}\n".encode("ascii", "replace"))
                return
            if isinstance(event, h11.Request):
                self._request(event)
            elif isinstance(event, h11.ConnectionClosed):
                self._transport.close()
                return
            elif isinstance(event, h11.EndOfMessage) and self._http.our_state is h11.DONE:
                self._http.start_next_cycle()
            else:
                return

    def _request(self, request: h11.Request) -> None:
        size = len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers)
        if size > HEAD_LIMIT:  # h11 looks at its limit only when a head is not whole yet
            self._refuse(431, b"a request head is at most 8 KiB here\n")
            return
        if any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in request.headers
        ):
            self._refuse(413, b"no request has a body here\n")
            return
        self._server.spoke(self)
        self._deadline(self._server.idle)
        self._send(self._server.answer(request.method, request.target), head_only=request.method == b"HEAD")

    def _refuse(self, status: int, body: bytes) -> None:
        self._refused = True
        if self._transport is None:
            return
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send((status, TEXT, body), head_only=False, last=True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline(min(LINGER, self._server.idle))

    def _send(self, answer: Answer, *, head_only: bool, last: bool = False) -> None:
        assert self._transport is not None  # noqa: S101 - the callers looked; this tells mypy
        status, content_type, body = answer
        headers = [
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        headers += [("Allow", "GET, HEAD")] if status == 405 else []
        headers += [("Connection", "close")] if last else []
        parts = [self._http.send(h11.Response(status_code=status, headers=headers))]
        if not head_only:
            parts.append(self._http.send(h11.Data(data=body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._transport.write(b"".join(part for part in parts if part))
        if self._http.our_state is h11.MUST_CLOSE and not last:
            self._transport.close()


def _bound_tcp(listen: Listen) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in listen.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart does not wait for TIME_WAIT
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(listen.host != "::"))
        bound.bind((listen.host, listen.port))
    except OSError:
        bound.close()
        raise
    return bound


def _bound_unix(path: str) -> socket.socket:
    """Bind a path. A socket file that nobody serves is left over from a killed process and is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            bound.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _nobody_serves(path):
                raise
            os.unlink(path)  # noqa: PTH108 - as os.stat above
            bound.bind(path)
    except OSError:
        bound.close()
        raise
    return bound


def _nobody_serves(path: str) -> bool:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(path) == errno.ECONNREFUSED


def _unlink_own(path: str, inode: int) -> None:
    """Remove our socket file; one that another process put there since stays."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_ino == inode:  # noqa: PTH116 - as above
            os.unlink(path)  # noqa: PTH108 - as above
