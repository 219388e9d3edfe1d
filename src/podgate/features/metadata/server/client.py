"""client: one connection of a Pod: requests in, each decided by itself, answers out.

Here: the states of a connection, back-pressure, when it ends. Not here: the framing of heads (head.py), decisions
(decisions.py), the upstream's side (upstream.py), limits across connections (proxy.py).
Invariant: a request is looked at only after the answer to the one before it is whole, so that each is filtered alone;
what is written to a client belongs to the request whose turn it is.
"""

import asyncio
from typing import Final, cast

from podgate.features.metadata.clients import source_text
from podgate.features.metadata.head import BadRequest, NeedMore, read_head
from podgate.features.metadata.server.answers import AnswerHead
from podgate.features.metadata.server.decisions import Decision, framing_refusal
from podgate.features.metadata.server.proxy_side import ProxySide
from podgate.features.metadata.server.sockets import has_closed, keep_alive, limit_hops, original_destination
from podgate.features.metadata.server.upstream import Upstream
from podgate.features.metadata.verdict import answer

NEVER: Final = float("inf")

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientConnection(asyncio.BufferedProtocol):
    """One connection of a client.

    Attributes:
        source: the client's address.
        decision: on the request whose turn it is; None between requests.
        deadline: when it is given up; seconds of the monotonic clock.
        began: when the request whose turn it is began.
        since: when the last request ended, or the connection began.
    """

    __slots__ = (
        *("_body_left", "_closes", "_is_checked", "_is_full", "_is_paused", "_is_refused", "_pending"),
        *(
            "began",
            "_proxy",
            "_searched",
            "_sent",
            "_time",
            "_transport",
            "_upstream",
            "_view",
            "deadline",
            "decision",
            "key",
        ),
        *("refuses", "since", "source"),
    )

    def __init__(self, proxy: "ProxySide[ClientConnection]", refuses: Decision | None = None) -> None:
        self._proxy = proxy
        self._view = proxy.view
        self._time = proxy.time
        self.refuses = refuses
        self._pending = bytearray()
        self._searched = 0
        self._body_left = 0
        self.began = 0.0
        self._closes = self._is_checked = self._is_full = self._is_paused = self._is_refused = self._sent = False
        self._transport: asyncio.Transport
        self._upstream: Upstream | None = None
        self.decision: Decision | None = None
        self.deadline = NEVER
        self.since = 0.0
        self.source = ""
        self.key = b""

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transports of its own, which do not inherit.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._proxy.limits.buffered)
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        self.source = source_text(peer[0]) if peer else ""
        self.key = self.source.encode() + b"\0"
        keep_alive(transport.get_extra_info("socket"))
        self._proxy.opened(self)
        if self.refuses is None and not self._proxy.admits(
            self.source,
            source_text(local[0]) if local else "",
            original_destination(transport.get_extra_info("socket")),
        ):
            self.refuses = self._proxy.stranger

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._view[:nbytes])
        if self.decision is None and not self._pending and not self._is_refused and not self._is_full:
            known = self._proxy.known(data, self)
            if known is not None:
                self._begin(known)
                return
        self._more(data)

    def eof_received(self) -> None:
        """Take the end of sending for the end of interest, as Go's server and nginx do."""
        if self.decision is not None:
            self._gone()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self.decision is not None:
            self._gone()
        self._proxy.closed(self)

    def pause_writing(self) -> None:
        self._is_full = True
        self.deadline = self._proxy.now + self._proxy.limits.taking
        if self._upstream is not None:
            self._upstream.pause()
        self._pause()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._upstream is not None:
            self._upstream.resume()
            self.deadline = self._answer_deadline()
        elif self.decision is None and not self._is_refused:
            self.deadline = self._proxy.now + self._proxy.limits.idle
        self._pump()

    # Requests.

    def _more(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self.decision is not None and self._body_left and self._upstream is not None and not self._pending:
            data = self._send_body(data)
        self._pending += data
        if self.decision is None:
            self._pump()
        elif len(self._pending) > self._proxy.limits.ahead:
            self._pause()

    def _pump(self) -> None:
        """Take requests from what was received, as long as it is their turn."""
        while self._pending and self.decision is None and not self._is_refused and not self._is_full:
            read = read_head(self._pending, self._searched)
            if isinstance(read, NeedMore):
                if not self._searched:
                    self.deadline = self._proxy.now + self._proxy.limits.head
                self._searched = read.searched
                break
            self._searched = 0
            if isinstance(read, BadRequest):
                self.began = self._time()
                self._refuse(framing_refusal(read))
                return
            raw = bytes(self._pending[: read.size])
            del self._pending[: read.size]
            self._begin(self._proxy.decide(raw, read, self))
        if self._is_paused and not self._is_full and len(self._pending) <= self._proxy.limits.ahead:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _begin(self, decision: Decision) -> None:
        self.began = self._time()
        self._sent = False
        if self.refuses is not None:
            decision = self.refuses
        if decision.answer:
            if decision.keep_alive and not self._proxy.is_stopping:
                self._transport.write(decision.answer)
                self.since = self._time()
                self._proxy.answered(decision, self, decision.status, self.since - self.began)
                self.deadline = self._proxy.now + self._proxy.limits.idle
            else:
                self._refuse(decision)
            return
        if decision.token and not self._proxy.is_token_of(decision.token, self.owner(decision)):
            self._refuse(self._proxy.unknown_token)
            return
        if not self._is_checked:
            self._is_checked = True
            if self._proxy.pool.is_ours(self.peer()):
                self._refuse(self._proxy.loop_found)
                return
        self.decision = decision
        self._closes = not decision.keep_alive
        self._body_left = decision.length
        self.deadline = self._answer_deadline()
        self._proxy.pool.start(self)

    def _answer_deadline(self) -> float:
        decision = self.decision
        if decision is not None and decision.waits and not self._body_left:
            return NEVER
        return self._proxy.now + self._proxy.limits.answer

    def _refuse(self, decision: Decision) -> None:
        """Answer, and close once the client has read it: closing with unread input would reset the connection."""
        self._is_refused = True
        self._pending.clear()
        self._transport.write(decision.answer)
        self._proxy.answered(decision, self, decision.status, self._time() - self.began)
        self._linger()

    def _linger(self) -> None:
        self._is_refused = True
        self._pending.clear()
        if self._transport.is_closing():
            return
        if self._proxy.is_stopping:
            self._transport.close()  # what is written still goes out
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has gone already (ENOTCONN)
            self._transport.abort()
            return
        slow = self._transport.get_write_buffer_size() > 0
        self.deadline = self._proxy.now + (self._proxy.limits.taking if slow else self._proxy.limits.linger)
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    # What the upstream's side tells.

    def lent(self, upstream: Upstream) -> None:
        """Send the request on a connection."""
        decision = self.decision
        assert decision is not None  # noqa: S101 - the pool looked
        self._upstream = upstream
        upstream.start(self, decision)
        if decision.length:
            if decision.expects:
                self._transport.write(_CONTINUE)
            self._pending = bytearray(self._send_body(bytes(self._pending)))

    def _send_body(self, data: bytes) -> bytes:
        """Send what belongs to the body, give the rest."""
        body, rest = data[: self._body_left], data[self._body_left :]
        if body and self._upstream is not None:
            self._upstream.send_body(body)
            self._body_left -= len(body)
            self.deadline = self._answer_deadline()
        return rest

    def deliver(self, data: bytes) -> None:
        """Give part of the answer to the client."""
        self._sent = True
        self._transport.write(data)
        if not self._is_full:
            self.deadline = self._answer_deadline()

    def deliver_whole(self, head: AnswerHead, body: bytes) -> bool:
        """Give a collected answer to the client, changed where the verdict says so; False when it cannot be."""
        decision = self.decision
        assert decision is not None  # noqa: S101 - there is an answer
        changed = self._proxy.changed(decision, head, body, self)
        if changed is None:
            return False
        lines, body = changed
        self._closes = self._closes or decision.old_version or not self.keeps(decision)
        ending = b"Content-Length: %d\r\n" % len(body)
        if self._closes:
            ending += b"Connection: close\r\n"
        self._transport.write(lines + ending + b"\r\n" + body)
        self._sent = True
        return True

    def keeps(self, decision: Decision) -> bool:
        """Say whether the connection stays after this answer."""
        return decision.keep_alive and not self._proxy.is_stopping and not self._body_left

    def close_after(self) -> None:
        """Note that the client was told of the end of the connection."""
        self._closes = True

    def sent_all(self) -> bool:
        """Say whether the whole body of the request went upstream."""
        return not self._body_left

    def finished(self, status: int) -> None:
        """End the request: its answer was written whole."""
        decision = self.decision
        assert decision is not None  # noqa: S101 - there was an answer
        self.decision = self._upstream = None
        self.since = self._time()
        self._proxy.answered(decision, self, status, self.since - self.began)
        if self._closes or self._body_left or self._proxy.is_stopping:
            self._linger()
            return
        self.deadline = self._proxy.now + (self._proxy.limits.taking if self._is_full else self._proxy.limits.idle)
        if self._pending or self._is_paused:
            self._pump()

    def failed(self, why: str, status: int) -> None:
        """End the request without an answer of the upstream: 502, or 503 when there is no room."""
        decision = self.decision
        if decision is None:
            return
        self.decision = self._upstream = None
        self._proxy.failed(why, status)
        self._proxy.answered(decision, self, status, self._time() - self.began)
        if self._sent:
            self._is_refused = True
            self._transport.abort()  # half an answer must not look like a whole one
            return
        self._transport.write(answer(status, "", close=True))
        self._linger()

    def stop_sending(self) -> None:
        """Read no more: the upstream does not take the body."""
        self._pause()

    def go_on_sending(self) -> None:
        """Read on."""
        if self._is_paused and not self._is_full:
            self._is_paused = False
            self._transport.resume_reading()

    # What the proxy asks for.

    def is_idle(self) -> bool:
        """Say whether nothing is owed to the client."""
        return self.decision is None

    def give_up(self) -> None:
        """End a long poll with 503, which its client takes as a wish to ask again."""
        self._let_go()
        self.failed("", 503)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def expired(self) -> None:
        """End what took too long, or whose client has gone unseen."""
        if self.decision is None:
            self._transport.abort()
        elif self._is_full or self.has_gone():
            self._gone()
        else:
            waits_for_client = bool(self._body_left)
            self._let_go()
            self.failed("" if waits_for_client else "no answer in time", 408 if waits_for_client else 504)

    def has_gone(self) -> bool:
        """Say whether a client that is not read has closed its side: tcp(7), TCP_INFO."""
        if not self._is_paused or self.decision is None:
            return False
        return has_closed(self._transport.get_extra_info("socket"))

    def limit_hops(self, hops: int) -> None:
        """Let packets of this connection be forwarded at most ``hops`` - 1 times (ip(7), IP_TTL)."""
        limit_hops(self._transport.get_extra_info("socket"), hops)

    def owner(self, decision: Decision) -> str:
        """Give whom a token is bound to: the Pod, or the address when the Pod is not known."""
        return (decision.verdict.client if decision.verdict is not None else "") or self.source

    def peer(self) -> tuple[str, int]:
        """Give the client's end."""
        peer = self._transport.get_extra_info("peername")
        return (peer[0], peer[1]) if peer else ("", 0)

    def _gone(self) -> None:
        """Forget the request of a client that has gone, and let the upstream know at once."""
        decision = self.decision
        if decision is None:
            return
        self.decision = None
        self._is_refused = True
        self._let_go()
        self._proxy.answered(decision, self, 499, self._time() - self.began)
        self._transport.abort()

    def _let_go(self) -> None:
        """Give up the upstream's side of the request."""
        if self._upstream is not None:
            self._upstream.drop()
            self._upstream = None
        else:
            self._proxy.pool.forget(self)

    def _pause(self) -> None:
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()
