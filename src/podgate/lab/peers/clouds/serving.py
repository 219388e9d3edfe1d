"""serving: a cloud over HTTP.

Here: connections, long polls, the record of what was asked. Not here: what is answered (gce.py and its siblings).
Invariant: what a request looked like on the wire is recorded before it is answered.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from email.utils import formatdate

import h11

from podgate.lab.peers.clouds.cloud import Asked, Cloud, Hold, Reply


class CloudServer:
    """Serves one cloud.

    Attributes:
        asked: every request so far.
        open: connections now.
    """

    def __init__(self, cloud: Cloud, note: Callable[[Asked], None] = lambda _asked: None) -> None:
        self.cloud = cloud
        self.asked: list[Asked] = []
        self.open = 0
        self._note = note
        self._changed = asyncio.Condition()

    async def put(self, path: str, value: str) -> None:
        """Change an entry, and wake who waits for a change."""
        self.cloud.put(path, value)
        async with self._changed:
            self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def listening(self, addresses: Iterable[tuple[str, int]]) -> AsyncIterator[list[tuple[str, int]]]:
        """Listen on addresses; gives them with the ports that were taken. Raises OSError."""
        async with contextlib.AsyncExitStack() as stack:
            taken = []
            for host, port in addresses:
                server = await asyncio.start_server(self._serve, host, port, backlog=1024)
                stack.callback(server.close)
                name = server.sockets[0].getsockname()
                taken.append((name[0], name[1]))
            yield taken

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await self._talk(reader, writer)
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError):
            pass  # the client is gone, or speaks no HTTP: a plain server closes
        finally:
            self.open -= 1
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
        request: h11.Request | None = None
        body = b""
        while True:
            event = framing.next_event()
            if event is h11.NEED_DATA:
                framing.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                request, body = event, b""
                if framing.they_are_waiting_for_100_continue:
                    writer.write(framing.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                reply = await self._reply(_asked(request, body), reader)
                if reply is None:
                    return
                _limit(writer, reply.hops)
                _send(framing, writer, reply, head_only=request.method == b"HEAD")
                await writer.drain()
                if framing.our_state is h11.MUST_CLOSE:
                    return
                framing.start_next_cycle()
            else:
                return

    async def _reply(self, asked: Asked, reader: asyncio.StreamReader) -> Reply | None:
        """Give the answer, after a wait where the cloud holds it; None when the client has gone meanwhile."""
        self.asked.append(asked)
        self._note(asked)
        answer = self.cloud.answer(asked)
        if isinstance(answer, Reply):
            return answer
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(reader.read(1))
            change = group.create_task(self._change(answer))
            await asyncio.wait((gone, change), return_when=asyncio.FIRST_COMPLETED)
            has_gone = gone.done() and not gone.result() and not change.done()
            gone.cancel()
            change.cancel()
        if has_gone:
            return None
        final = self.cloud.answer(asked, held=True)
        return final if isinstance(final, Reply) else Reply(500)

    async def _change(self, hold: Hold) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(hold.seconds), self._changed:
                await self._changed.wait()


def _asked(request: h11.Request, body: bytes) -> Asked:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw_items())
    return Asked(request.method.decode("latin-1"), request.target.decode("latin-1"), headers, body)


def _send(framing: h11.Connection, writer: asyncio.StreamWriter, reply: Reply, *, head_only: bool) -> None:
    headers = [*reply.headers, ("Date", formatdate(time.time(), usegmt=True)), ("Content-Length", str(len(reply.body)))]
    parts = [
        framing.send(h11.Response(status_code=reply.status, headers=headers, reason=_REASONS.get(reply.status, b"")))
    ]
    if not head_only:
        parts.append(framing.send(h11.Data(data=reply.body)))
    parts.append(framing.send(h11.EndOfMessage()))
    writer.write(b"".join(part for part in parts if part))


_REASONS = {200: b"OK", 301: b"Moved Permanently", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden"}


def _limit(writer: asyncio.StreamWriter, hops: int) -> None:
    if hops:
        connected: socket.socket = writer.get_extra_info("socket")
        six = connected.family == socket.AF_INET6
        level, option = (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) if six else (socket.IPPROTO_IP, socket.IP_TTL)
        connected.setsockopt(level, option, hops)
