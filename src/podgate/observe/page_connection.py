"""page_connection: one connection of a client that asks for pages.

Here: requests in, answers out, by h11. Not here: which page answers, how many connections there are (pages.py).
Invariant: a request is looked at only after the answer to the one before was taken.
"""

import asyncio
import contextlib
import time
from typing import Final, Protocol, cast

import h11

from podgate.observe.answers import SERVER, TEXT, Answer

HEAD_LIMIT: Final = 8 * 1024
"""Bytes of a request head, as nginx and Apache have it by default."""

LINGER: Final = 2.0
"""Seconds to let a client read a refusal: closing with unread input makes the kernel reset the connection."""


class Answering(Protocol):
    """The server that a connection belongs to.

    Attributes:
        idle: seconds that a connection may be silent.
    """

    @property
    def idle(self) -> float: ...

    def opened(self, connection: "PageConnection", /) -> None:
        """Take in a connection."""

    def spoke(self, connection: "PageConnection", /) -> None:
        """Note that a connection sent a whole request."""

    def closed(self, connection: "PageConnection", /) -> None:
        """Forget a connection."""

    def answer(self, method: bytes, target: bytes, /) -> Answer:
        """Give the answer to a request without a body."""
        ...


class PageConnection(asyncio.Protocol):
    """One client: h11 reads, and each request is answered before the next is looked at."""

    def __init__(self, server: Answering) -> None:
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
        status, content_type, body, *more = answer
        headers = [
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Server", SERVER),
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        headers += [header for given in more for header in given]
        headers += [("Allow", "GET, HEAD")] if status == 405 else []
        headers += [("Connection", "close")] if last else []
        parts = [self._http.send(h11.Response(status_code=status, headers=headers))]
        if not head_only:
            parts.append(self._http.send(h11.Data(data=body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._transport.write(b"".join(part for part in parts if part))
        if self._http.our_state is h11.MUST_CLOSE and not last:
            self._transport.close()
