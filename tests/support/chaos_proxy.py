"""A proxy between a client and an API server that does what networks, load balancers and servers do on bad days.

Here: delays, cuts, silence, half-closes, bytes in small pieces, and answers of its own (410, 429, 500); serving in this
event loop, or in a thread. Not here: reordering, which TCP does not do; what a client makes of it.
Invariant: what is passed on is passed on unchanged and in order, up to where a fault strikes.
"""

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

Asked = Callable[[str], bool]
"""Whether a fault is for this request, by its line, as ``GET /api/v1/pods?watch=true HTTP/1.1``."""

Do = Callable[[Callable[[], None]], None]
"""Does something in the proxy's own thread, and waits for it."""

_SECONDS = 100.0


class Fault(NamedTuple):
    """What happens to one request.

    Attributes:
        status: answer this ourselves, without asking the server; 0 to ask it.
        retry_after: the header of that answer.
        delay: seconds before anything is passed on.
        after: bytes of the server's answer that get through before ``then`` strikes; None: all.
        then: ``cut`` (reset), ``close`` (both ways, in order), ``half-close`` (no more bytes, but still listening),
            ``silence`` (nothing, for ever).
        piece: the answer comes in pieces of so many bytes; 0 as it comes.
        times: how many requests it strikes.
        asked: which.
    """

    status: int = 0
    reason: str = ""
    message: str = "the proxy says no"
    retry_after: int = 0
    delay: float = 0.0
    after: int | None = None
    then: str = "cut"
    piece: int = 0
    times: int = 1
    asked: Asked = lambda _line: True


class ChaosProxy:
    """Serves plain HTTP on 127.0.0.1 in front of ``upstream``, whose certificate ``context`` knows."""

    def __init__(self, upstream: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._context = context if parts.scheme == "https" else None
        self._faults: list[Fault] = []
        self._open: set[asyncio.StreamWriter] = set()
        self.lines: list[str] = []
        self.url = ""
        self.down = False

    def strike(self, *faults: Fault) -> None:
        """Have these faults strike the next requests that they are for."""
        self._faults += faults

    def calm(self) -> None:
        """Forget the faults that have not struck."""
        self._faults.clear()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self.url.rpartition(":")[2])

    @property
    def pending(self) -> int:
        """How many faults have not struck as often as they should."""
        return len(self._faults)

    def cut_all(self) -> None:
        """Reset every connection."""
        for writer in list(self._open):
            _reset(writer)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ChaosProxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut_all()

    def _next(self, line: str) -> Fault:
        for index, fault in enumerate(self._faults):
            if fault.asked(line):
                if fault.times > 1:
                    self._faults[index] = fault._replace(times=fault.times - 1)
                else:
                    del self._faults[index]
                return fault
        return Fault()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self.down:
                _reset(writer)
                return
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._one(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode("latin-1").split("\r\n")[:-2]
        named = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in headers)}
        body = await reader.readexactly(int(named.get("content-length", "0")))
        self.lines.append(line)
        fault = self._next(line)
        await asyncio.sleep(fault.delay)
        if fault.status:
            writer.write(_answer(fault))
            await writer.drain()
            return
        kept = [each for each in headers if each.partition(":")[0].lower() not in ("connection", "host")]
        request = "\r\n".join((line, f"Host: {self._host}", "Connection: close", *kept, "", "")).encode("latin-1")
        upstream, to_upstream = await asyncio.open_connection(self._host, self._port, ssl=self._context)
        try:
            to_upstream.write(request + body)
            await to_upstream.drain()
            await self._relay(reader, upstream, writer, fault)
        finally:
            # Closing in order would wait for the other side's goodbye, longer than some tests last.
            _reset(to_upstream)

    async def _relay(
        self, client: asyncio.StreamReader, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault
    ) -> None:
        """Pass the answer on until it ends, a fault strikes, or the client is gone."""
        gone = asyncio.get_running_loop().create_future()

        async def until_gone() -> None:
            with contextlib.suppress(OSError):
                while await client.read(1 << 16):
                    continue
            gone.set_result(None)

        async def until_passed() -> None:
            with contextlib.suppress(OSError):
                await self._pass(upstream, writer, fault)

        async with asyncio.TaskGroup() as group:
            passing = group.create_task(until_passed())
            waiting = group.create_task(until_gone())
            await asyncio.wait((passing, gone), return_when=asyncio.FIRST_COMPLETED)
            passing.cancel()
            waiting.cancel()

    async def _pass(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
        left = fault.after
        while True:
            data = await upstream.read(fault.piece or 1 << 16)
            if not data:
                return
            writer.write(data if left is None else data[:left])
            await writer.drain()
            if fault.piece:
                await asyncio.sleep(0)
            if left is not None:
                left -= len(data)
                if left <= 0:
                    await self._strike(writer, fault.then)
                    return

    async def _strike(self, writer: asyncio.StreamWriter, then: str) -> None:
        match then:
            case "cut":
                _reset(writer)
            case "half-close":
                writer.write_eof()
                await asyncio.sleep(3600)
            case "silence":
                await asyncio.sleep(3600)
            case _:
                writer.close()


@contextmanager
def in_thread(upstream: str, context: ssl.SSLContext | None) -> Iterator[tuple[ChaosProxy, Do]]:
    """Have a proxy in a thread of its own for the body; what is done to it is done there, by the second value.

    The thread ends, whatever becomes of the body.
    """
    proxy = ChaosProxy(upstream, context)
    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with proxy.serving():
            began.set_result((asyncio.get_running_loop(), over))
            await over.wait()

    async def done(what: Callable[[], None]) -> None:
        what()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, over = began.result(_SECONDS)
    try:
        yield proxy, lambda what: asyncio.run_coroutine_threadsafe(done(what), loop).result(_SECONDS)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _answer(fault: Fault) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status, "reason": fault.reason,
              "message": fault.message}  # fmt: skip
    body = json.dumps(status).encode()
    more = f"Retry-After: {fault.retry_after}\r\n" if fault.retry_after else ""
    head = (
        f"HTTP/1.1 {fault.status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body
