"""sending: the target that tells the proxy's process, over a unix socket or the standard output.

Here: lines out, to as many readers as there are. Not here: what a line holds (watched.py), the other end
(server/following.py).
Invariant: whoever connects gets all that is known at once; a reader that does not read is dropped, never waited for;
what nobody took is not written.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

from msgspec.structs import replace

from podgate.features.metadata.watched import BEAT, LONGEST, Watched, line_of
from podgate.joints import ApplyError, Key, Refused, Signal
from podgate.linux.waiting import for_ever
from podgate.targets.cell.diff import Plan, diff
from podgate.targets.cell.state import State

BEAT_SECONDS: Final = 5.0
"""Between two signs of life."""
TAKING: Final = 5.0
"""Seconds that something to say waits for a reader, which may just be starting."""
TOO_LONG: Final = f"more is known of Pods and policies than the {LONGEST} bytes of a line: use fewer rules"
_MODE: Final = 0o660
"""Of the socket: the proxy is another user, in a common group."""
_UNREAD: Final = 2 * LONGEST
"""Bytes that a reader may leave unread."""


class SendingTarget:
    """Tells every reader what is known.

    Args:
        path: the socket to listen at; None for the standard output, to one reader.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._told = State()
        self._line = b""
        self._told_at = 0.0
        self._readers: set[_Reader] = set()
        self._is_read = asyncio.Event()

    async def read(self) -> State:
        """Give what was told last, if anybody is there who was told."""
        return self._told if self._readers else State()

    def diff(self, have: State, want: State) -> Plan:
        """Give the plan."""
        return diff(have, want)

    async def apply(self, plan: Plan) -> Mapping[Key, str]:
        """Tell every reader; nothing is ever refused. Raises ApplyError for what is too long, and without a reader."""
        line = line_of(plan.want.value)
        if len(line) > LONGEST:
            self._fall_behind()
            raise ApplyError(TOO_LONG, "TooLong")
        self._tell(plan.want, line)
        try:
            async with asyncio.timeout(TAKING):
                await self._is_read.wait()
        except TimeoutError as error:
            where = self._path or "the standard output"
            raise ApplyError(f"nobody reads {where}: see whether podgate metadata run is there", "NoReader") from error
        return {}

    def _tell(self, state: State, line: bytes) -> None:
        self._told, self._line, self._told_at = state, line, asyncio.get_running_loop().time()
        self._write(line)

    def _fall_behind(self) -> None:
        """Say that what was said last is not followed from now on."""
        last: Watched = self._told.value or Watched(strictest=True)
        if last.why != TOO_LONG:
            said = replace(last, why=TOO_LONG, unheard=last.unheard or 0.0)
            self._tell(State(said), line_of(said))

    async def signals(self) -> AsyncIterator[Signal]:
        """Listen, and give a sign of life now and then; tells when the one reader of the standard output has gone."""
        gone = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await (self._to_output(gone) if self._path is None else self._listen(self._path, stack))
            except (OSError, ValueError) as error:
                raise ApplyError(f"{self._path or 'standard output'}: cannot be written to: {error}") from error
            stack.callback(self._close)
            while not gone.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_SECONDS):
                        await gone.wait()
                self._write(BEAT)
            yield Refused("standard output", "nobody reads it any more")
            await for_ever()

    async def _listen(self, path: str, stack: contextlib.AsyncExitStack) -> None:
        server = await asyncio.get_running_loop().create_unix_server(lambda: _Reader(self), path)
        stack.callback(_unlink, path)
        stack.callback(server.close)
        os.chmod(path, _MODE)  # noqa: PTH101 - one call

    async def _to_output(self, gone: asyncio.Event) -> None:
        await asyncio.get_running_loop().connect_write_pipe(lambda: _Reader(self, gone), sys.stdout.buffer)

    def _write(self, line: bytes) -> None:
        for reader in list(self._readers):
            reader.write(line)

    def _close(self) -> None:
        for reader in list(self._readers):
            reader.end()

    def opened(self, reader: "_Reader") -> None:
        """Take in a reader, and tell it all that is known."""
        self._readers.add(reader)
        self._is_read.set()
        reader.write(self._newest() or BEAT)

    def _newest(self) -> bytes:
        """Give what was said last as it is true now: what was old then is older by now."""
        watched = self._told.value
        if watched is None or watched.unheard is None:
            return self._line
        return line_of(replace(watched, unheard=watched.unheard + asyncio.get_running_loop().time() - self._told_at))

    def closed(self, reader: "_Reader") -> None:
        """Forget a reader."""
        self._readers.discard(reader)
        if not self._readers:
            self._is_read.clear()


class _Reader(asyncio.Protocol):
    """The connection to one reader, which says nothing."""

    def __init__(self, target: SendingTarget, gone: asyncio.Event | None = None) -> None:
        self._target = target
        self._gone = gone
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transports of its own, which do not inherit.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._target.opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._target.closed(self)
        if self._gone is not None:
            self._gone.set()

    def write(self, line: bytes) -> None:
        """Send a line; a reader that does not read is dropped."""
        if self._transport.get_write_buffer_size() > _UNREAD:
            self.end()
        else:
            self._transport.write(line)

    def end(self) -> None:
        """Drop the connection, with what was not sent yet."""
        self._transport.abort()


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - one call
