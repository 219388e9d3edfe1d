"""upstream: connections to the metadata server, and the pool that lends them to requests.

Here: one request at a time on a connection, its answer passed on as it comes. Not here: clients (client.py), the
framing itself (answers.py).
Invariant: a connection serves another request only if the answer before was whole and nothing followed it.
"""

import asyncio
import socket
from typing import Final, Protocol, cast

from podgate.features.metadata.server.answers import (
    LAST_CHUNK,
    AnswerHead,
    AnswerHeads,
    BadAnswerError,
    Chunks,
    chunk,
)
from podgate.features.metadata.server.decisions import Decision
from podgate.features.metadata.server.limits import MAX_ANSWER_HEAD, MAX_COLLECTED

_END: Final = b"\r\n\r\n"


class Requester(Protocol):
    """Who waits for an answer: a client's connection, as the upstream's side knows it."""

    def lent(self, upstream: "Upstream", /) -> None:
        """Send the request on a connection."""

    def keeps(self, decision: Decision, /) -> bool:
        """Say whether the connection stays after this answer."""

    def close_after(self) -> None:
        """Note that the client was told of the end of the connection."""

    def deliver(self, data: bytes, /) -> None:
        """Give part of the answer to the client."""

    def deliver_whole(self, head: AnswerHead, body: bytes, /) -> bool:
        """Give a collected answer to the client; False when it cannot be."""

    def sent_all(self) -> bool:
        """Say whether the whole body of the request went upstream."""

    def stop_sending(self) -> None:
        """Read no more: the upstream does not take the body."""

    def go_on_sending(self) -> None:
        """Read on."""

    def finished(self, status: int, /) -> None:
        """End the request: its answer was written whole."""

    def failed(self, why: str, status: int, /) -> None:
        """End the request without an answer of the upstream."""


class Lender(Protocol):
    """Who lends connections to requests: the pool, as a connection knows it."""

    view: memoryview
    heads: AnswerHeads

    def opened(self, upstream: "Upstream", /) -> None:
        """Note a new connection."""

    def closed(self, upstream: "Upstream", /) -> None:
        """Forget a connection."""

    def release(self, upstream: "Upstream", /) -> None:
        """Take a connection back, after a whole answer."""

    def connect(self, requester: Requester, /) -> None:
        """Serve a request on the connection that is free next."""


class Upstream(asyncio.BufferedProtocol):
    """One connection to the metadata server.

    Attributes:
        name: our end, as (address, port): what a client's end must never be.
        ticket: what the pool counted it by while it was being opened.
        since: when it was last put into the pool; seconds of the monotonic clock.
        is_used: an earlier request was answered on it, so the server may be about to close it.
        got: bytes of an answer have come since the request was sent.
    """

    __slots__ = (
        *("_chunks", "_client", "_collected", "_decision", "_head", "_is_paused", "_left", "_pending"),
        *("_pool", "_view", "got", "is_used", "name", "since", "ticket", "transport"),
    )

    def __init__(self, pool: Lender, ticket: object) -> None:
        self._pool = pool
        self.ticket = ticket
        self._view = pool.view
        self._client: Requester | None = None
        self._decision: Decision | None = None
        self._head: AnswerHead | None = None
        self._pending = b""
        self._is_paused = False
        self._left = 0
        self._chunks: Chunks | None = None
        self._collected: list[bytes] | None = None
        self.name: tuple[str, int] = ("", 0)
        self.since = 0.0
        self.is_used = False
        self.got = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transports of its own, which do not inherit.
        self.transport = transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("sockname")
        self.name = (name[0], name[1])
        self._pool.opened(self)

    def start(self, client: Requester, decision: Decision) -> None:
        """Send the head of a request; the answer goes to the client."""
        self._client = client
        self._decision = decision
        self.got = False
        self.transport.write(decision.forward)

    def send_body(self, data: bytes) -> None:
        """Send part of the request's body."""
        self.transport.write(data)

    def drop(self) -> None:
        """Close at once: the client has gone, or does not wait any longer."""
        self._client = None
        self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._view[:nbytes])
        client, decision = self._client, self._decision
        if client is None or decision is None:
            self.transport.abort()  # bytes that nobody asked for
            return
        self.got = True
        try:
            if self._head is None:
                self._take_head(data, client, decision)
            else:
                self._take_body(data, client, decision)
        except BadAnswerError as error:
            self._fail(f"the upstream's answer cannot be passed on: {error}", 502)

    def _take_head(self, data: bytes, client: Requester, decision: Decision) -> None:
        if self._pending:
            data, self._pending = self._pending + data, b""
        while True:
            end = data.find(_END, 0, MAX_ANSWER_HEAD)
            if end < 0:
                if len(data) >= MAX_ANSWER_HEAD:
                    raise BadAnswerError("its head is too long")
                self._pending = data
                return
            end += 4
            head = self._pool.heads.read(data[:end])
            if head.status >= 200:
                break
            if head.status == 101:
                raise BadAnswerError("it switches protocols, which nobody asked for")
            data = data[end:]  # 100, 102, 103: for this hop, or nothing that must be passed on
            if not data:
                return
        self._head = head
        rest = data[end:]
        if self._collects(decision, head):
            self._collected = []
            self._begin_body(head, decision)
            self._take_body(rest, client, decision)
            return
        if (
            head.framing == "length"
            and len(rest) == head.length
            and decision.keep_alive
            and not decision.old_version
            and not decision.head_only
        ):
            client.deliver(head.whole + rest if rest else head.whole)
            self._complete(head, client)
            return
        self._begin_body(head, decision)
        client.deliver(self._head_for(head, client, decision))
        self._take_body(rest, client, decision)

    def _collects(self, decision: Decision, head: AnswerHead) -> bool:
        """Say whether the body has to be seen whole before any of it goes on."""
        return (
            decision.verdict is not None
            and head.status == 200
            and not decision.head_only
            and bool(decision.verdict.redact or decision.verdict.token == "issue")  # noqa: S105 - a word
        )

    def _begin_body(self, head: AnswerHead, decision: Decision) -> None:
        self._left = 0 if decision.head_only else head.length
        if head.framing == "chunked" and not decision.head_only:
            self._chunks = Chunks()

    def _head_for(self, head: AnswerHead, client: Requester, decision: Decision) -> bytes:
        """Give the head with the fields of the connection to this client."""
        extra = b""
        if not decision.head_only and head.framing != "length" and not decision.old_version:
            extra += b"Transfer-Encoding: chunked\r\n"
        if not client.keeps(decision) or (decision.old_version and self._ends_by_closing(head, decision)):
            extra += b"Connection: close\r\n"
            client.close_after()
        elif decision.old_version:
            extra += b"Connection: keep-alive\r\n"
        return head.lines + extra + b"\r\n"

    @staticmethod
    def _ends_by_closing(head: AnswerHead, decision: Decision) -> bool:
        return head.framing != "length" and not decision.head_only

    def _take_body(self, data: bytes, client: Requester, decision: Decision) -> None:
        head = self._head
        assert head is not None  # noqa: S101 - the caller looked
        if self._chunks is not None:
            payload = self._chunks.feed(data)
            self._pass_on(payload, client, decision, framed=True)
            if self._chunks.is_done:
                self._complete(head, client)
            return
        if head.framing == "close" and not decision.head_only:
            self._pass_on(data, client, decision, framed=True)
            return
        if len(data) > self._left:
            self._pass_on(data[: self._left], client, decision, framed=False)
            self._left = 0
            self._complete(head, client, reusable=False)
            return
        self._left -= len(data)
        self._pass_on(data, client, decision, framed=False)
        if not self._left:
            self._complete(head, client)

    def _pass_on(self, payload: bytes, client: Requester, decision: Decision, *, framed: bool) -> None:
        if self._collected is not None:
            self._collected.append(payload)
            if sum(map(len, self._collected)) > MAX_COLLECTED:
                raise BadAnswerError(f"it is longer than {MAX_COLLECTED} bytes, and must be seen whole")
        elif payload:
            client.deliver(chunk(payload) if framed and not decision.old_version else payload)

    def _complete(self, head: AnswerHead, client: Requester, *, reusable: bool = True) -> None:
        """End the answer; the connection goes back to the pool or closes."""
        decision, collected = self._decision, self._collected
        assert decision is not None  # noqa: S101 - there is an answer
        self._client = self._decision = self._head = self._chunks = self._collected = None
        self.is_used = True
        ends_by_closing = self._ends_by_closing(head, decision) and head.framing == "close"
        if collected is not None:
            if not client.deliver_whole(head, b"".join(collected)):
                self.transport.abort()
                client.failed("the upstream's answer holds a secret and cannot be read, so it is not passed on", 502)
                return
        elif self._ends_by_closing(head, decision) and not decision.old_version:
            client.deliver(LAST_CHUNK)
        if reusable and head.reusable and not ends_by_closing and client.sent_all():
            self._pool.release(self)
        else:
            self.transport.close()
        client.finished(head.status)

    def _fail(self, why: str, status: int) -> None:
        client = self._client
        self._client = None
        self.transport.abort()
        if client is not None:
            client.failed(why, status)

    def eof_received(self) -> None:
        """Let asyncio close the connection; connection_lost says what that means."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.closed(self)
        client, decision, head = self._client, self._decision, self._head
        if client is None or decision is None:
            return
        if exc is None and head is not None and head.framing == "close" and not decision.head_only:
            self._complete(head, client, reusable=False)
            return
        self._client = None
        if self.is_used and not self.got and decision.repeatable:
            self._pool.connect(client)  # the server closed it while the request was on its way
            return
        client.failed("the upstream closed the connection before its answer was whole", 502)

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.stop_sending()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.go_on_sending()

    def pause(self) -> None:
        """Read no more: the client does not take what it gets."""
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._is_paused:
            self._is_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()


def upstream_socket(family: socket.AddressFamily, buffer: int) -> socket.socket:
    """Make a socket whose receive buffer is small: what a paused upstream sends must not fill the memory limit."""
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    return made
