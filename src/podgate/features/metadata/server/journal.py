"""journal: the access log, one line per request.

Here: lines, their rate, and writing them without ever waiting. Not here: what was decided; other log lines (observe).
Invariant: a reader of the log that stands still stops no request: lines are dropped and counted instead. A query value
is never in a line.
"""

import os
import select
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from podgate.features.metadata.server.counts import Counts
from podgate.features.metadata.server.decisions import Decision
from podgate.observe.logs import Log, as_json

DENIALS_A_SECOND: Final = 10
"""Denials of one client that are logged per second; the rest are counted, in one line."""

FLUSH_SECONDS: Final = 0.1
FLUSH_BYTES: Final = 16 * 1024
MOST_BYTES: Final = 256 * 1024
"""Bytes of lines that wait for a slow reader."""

LAST_SECONDS: Final = 0.5
"""How long a slow reader is waited for at the end."""

_PIECE: Final = select.PIPE_BUF
"""A pipe that is writable takes this much without blocking (pipe(7))."""

_MOST_SOURCES: Final = 1024


class Journal:
    """Writes lines for requests.

    Args:
        log: where other lines go; in text form, these too.
        counts: told of lines that were dropped.
        clock: seconds since 1970.
        later: calls a function after some seconds, as ``loop.call_later``.
        descriptor: where JSON lines go.
    """

    def __init__(
        self,
        log: Log,
        counts: Counts,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], object]], object],
        descriptor: int = 2,
    ) -> None:
        self._log = log
        self._counts = counts
        self._clock = clock
        self._later = later
        self._descriptor = descriptor
        self._as_json = log.form == "json"
        self._lines: list[str] = []
        self._size = 0
        self._waiting = b""
        self._is_planned = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._second, self._stamp = -1, ""
        self._denied: dict[str, int] = {}
        self._denied_at = -1

    def request(self, decision: Decision, source: str, status: int, seconds: float) -> None:
        """Write the line of a request that was answered; ``seconds`` is how long it took."""
        now = self._clock()
        if decision.answer and self._is_flood(source, int(now)):
            return
        milliseconds = round(seconds * 1000, 1)
        if not self._as_json:
            fields = decision.fields
            self._log.info("request", source=source, **fields, status=status, milliseconds=milliseconds)
            return
        line = (
            f'{{"time": "{self._time(now)}", "level": "info", "message": "request", "source": "{source}", '
            f'{decision.json}, "status": {status}, "milliseconds": {milliseconds}}}\n'
        )
        self._put(line)

    def _put(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= FLUSH_BYTES:
            self.flush()
        elif not self._is_planned:
            self._is_planned = True
            self._later(FLUSH_SECONDS, self.flush)

    def _time(self, now: float) -> str:
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._stamp}.{int((now - second) * 1000):03d}Z"

    def _is_flood(self, source: str, second: int) -> bool:
        if second != self._denied_at:
            self.tell_of_floods()
            self._denied_at = second
        count = self._denied.get(source, 0)
        if count == 0 and len(self._denied) >= _MOST_SOURCES:
            source = ""
            count = self._denied.get("", 0)
        self._denied[source] = count + 1
        return count >= DENIALS_A_SECOND

    def second_over(self) -> None:
        """Tell of the floods of a second that has passed, although no denial came after it."""
        if self._denied and int(self._clock()) != self._denied_at:
            self.tell_of_floods()

    def tell_of_floods(self) -> None:
        """Say how many denials of the last second have no line."""
        for source, count in self._denied.items():
            if count > DENIALS_A_SECOND:
                extra = count - DENIALS_A_SECOND
                self._counts.unlogged += extra
                self._tell_of(source or "many", extra)
        self._denied.clear()

    def _tell_of(self, source: str, count: int) -> None:
        if not self._as_json:
            self._log.warning("denials not logged", source=source, count=count)
            return
        fields = {"level": "warning", "message": "denials not logged", "source": source, "count": count}
        self._put(as_json({"time": self._time(self._clock()), **fields}) + "\n")

    def finish(self) -> None:
        """Write the last lines, also to a reader that is behind, if it catches up soon."""
        self.tell_of_floods()
        self.flush()
        until = time.monotonic() + LAST_SECONDS
        while self._waiting and self._poll.poll(max(0.0, until - time.monotonic()) * 1000):
            self.flush()

    def flush(self) -> None:
        """Write what the reader takes now; keep the rest, up to a limit."""
        self._is_planned = False
        data = self._waiting + "".join(self._lines).encode("utf-8", "backslashreplace")
        self._lines.clear()
        self._size = 0
        while data and self._poll.poll(0):
            try:
                # Whole lines, so that a line of another writer never stands inside one.
                written = os.write(self._descriptor, data[: data.rfind(b"\n", 0, _PIECE) + 1 or _PIECE])
            except OSError:
                self._counts.dropped_lines += data.count(b"\n")
                data = b""
                break
            data = data[written:]
        if len(data) > MOST_BYTES:
            cut = data.rfind(b"\n", 0, MOST_BYTES) + 1
            self._counts.dropped_lines += data.count(b"\n", cut)
            data = data[:cut]
        self._waiting = data
        if data and not self._is_planned:
            self._is_planned = True
            self._later(FLUSH_SECONDS, self.flush)
