"""following: what the watching process tells, as a source of the proxy's process.

Here: starting that process, or connecting to it, and doing so again; its lines as snapshots. Not here: what is in a
line (watched.py), what becomes of it (running.py), the other end (watcher/).
Invariant: before the first line nothing is known; after it, what was told last stays until something newer is told,
whatever becomes of the watching process; which Pod has which address alone grows old (freshness.py).
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple, Protocol

from podgate.features.metadata.freshness import STALE_AFTER, Knowledge
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.watched import LONGEST, THE_WATCH, WATCHED, Watched, read_line
from podgate.linux.processes import Child
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

SILENCE: Final = 60.0
"""Seconds without a line, of which one comes every few, after which the watching process is taken for dead."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 30.0
_STEADY: Final = 30.0
"""Seconds after which a watching process is taken for one that works, and not for one that dies again and again: each
start costs half a second of processor time."""
GRACE: Final = 2.0
"""Seconds that the watching process has to end when it is told to."""
_QUIETLY: Final = 4
"""Attempts that may fail before anything was heard: another container may just be starting."""
_YAML: Final = (".yaml", ".yml")


class WatchLostError(Exception):
    """There is no watching process, or it is of no use; the message says why and what to do."""


class OpenLink(NamedTuple):
    """The lines of the watching process, and what tells why there are no more."""

    reader: asyncio.StreamReader
    why_over: Callable[[], Awaitable[str]]


class WatcherLink(Protocol):
    """A way to the watching process."""

    def opened(self) -> AbstractAsyncContextManager[OpenLink]:
        """Give its lines while entered. Raises WatchLostError when it cannot be reached."""
        ...


class AtSocket:
    """The watching process serves a unix socket, as another container does."""

    def __init__(self, path: str) -> None:
        self._path = path

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenLink]:
        """Connect."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=LONGEST)
        except OSError as error:
            why = error.strerror or str(error)
            raise WatchLostError(
                f"podgate metadata watch does not answer at {self._path} ({why}): see its log"
            ) from error
        try:
            yield OpenLink(reader, self._why_over)
        finally:
            writer.close()

    async def _why_over(self) -> str:
        return f"podgate metadata watch at {self._path} has ended: see its log"


class InChild:
    """The watching process is a child of this one, and writes to a socket instead of its standard output.

    Args:
        words: what to run; nothing secret is among it.
        environ: its environment.
    """

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._words = tuple(words)
        self._environ = dict(environ)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenLink]:
        """Start it; it has ended when this is left. It ends by itself when this process is killed: nobody reads it."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                child = self._started(theirs)
        except WatchLostError:
            ours.close()
            raise
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST)
            try:
                yield OpenLink(reader, lambda: _why_ended(child))
            finally:
                writer.close()
        finally:
            await child.stop(GRACE)

    def _started(self, output: socket.socket) -> Child:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
        ]
        try:
            return Child(os.posix_spawn(self._words[0], self._words, self._environ, file_actions=actions))
        except OSError as error:
            raise WatchLostError(f"{self._words[0]}: cannot be started: {error.strerror or error}") from error


async def _why_ended(child: Child) -> str:
    code = await child.stop(GRACE)
    return f"the watching process has ended with exit code {code}, and is started again: see the lines above"


class WatchSource:
    """What the watching process tells, as snapshots of one kind.

    Args:
        link: the way to it.
        silence: seconds without a line after which it is taken for dead; ``stale_after`` at most.
        stale_after: seconds without knowing for which the addresses of Pods count still.
        pause: seconds before the first new attempt; each further one waits twice as long, until one lasts.
    """

    def __init__(
        self,
        link: WatcherLink,
        *,
        silence: float = SILENCE,
        stale_after: float = STALE_AFTER,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self._link = link
        # What was forgotten is told again to who connects again.
        self._silence = min(silence, stale_after)
        self._stale_after = stale_after
        self._pause = pause
        self._news: asyncio.Queue[Watched | WatchLostError | None] = asyncio.Queue()

    async def values(self) -> AsyncGenerator[Snapshot, None]:
        """Give at once that nothing is known, then what counts whenever that changes; never ends by itself."""
        clock, limit = asyncio.get_running_loop().time, self._stale_after
        known, given = Knowledge(), snapshot_of(None)
        yield given
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._listen(), name="the watching process")
            try:
                while True:
                    known = (await self._next_of(known, known.turn(clock(), limit))).aged(clock(), limit)
                    newest = snapshot_of(known.counting(clock(), limit), known.lost)
                    if newest != given:
                        given = newest
                        yield given
            except GeneratorExit:
                # Whoever closes us must not get it back inside of a group.
                return
            finally:
                task.cancel()

    async def _next_of(self, known: Knowledge, turn: float | None) -> Knowledge:
        """Give what the next news make of what is known; at the turn that is what it was."""
        try:
            async with asyncio.timeout_at(turn):
                news = await self._news.get()
        except TimeoutError:
            return known
        if isinstance(news, WatchLostError):
            return known.without(str(news))
        now = asyncio.get_running_loop().time()
        return known.alive(now) if news is None else known.told(news, now)

    async def _listen(self) -> None:
        """Pass on whatever is heard, and that nothing is heard any more."""
        clock = asyncio.get_running_loop().time
        pause, failures, told, lost = self._pause, 0, False, WatchLostError()
        while True:
            try:
                async with self._link.opened() as lines:
                    opened = clock()
                    while True:
                        watched = await _next(lines, self._silence)
                        if clock() - opened >= _STEADY:
                            pause = self._pause
                        if watched is not None:
                            failures, told = 0, True
                        self._news.put_nowait(watched)
            except WatchLostError as error:
                lost = error
            failures += 1
            if told or failures > _QUIETLY:
                self._news.put_nowait(lost)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)


async def _next(lines: OpenLink, silence: float) -> Watched | None:
    """Give what the next line says; None for a sign of life. Raises WatchLostError."""
    try:
        async with asyncio.timeout(silence):
            line = await lines.reader.readline()
    except TimeoutError as error:
        raise WatchLostError(f"podgate metadata watch was silent for {silence:.0f} s: see its log") from error
    except OSError:
        line = b""
    except ValueError as error:
        raise WatchLostError(f"podgate metadata watch says more than {LONGEST} bytes: use fewer rules") from error
    if not line.endswith(b"\n"):
        raise WatchLostError(await lines.why_over())
    try:
        return read_line(line)
    except ValueError as error:
        raise WatchLostError(
            f"podgate metadata watch is of another version: take both from one image ({error})"
        ) from error


def snapshot_of(watched: Watched | None, lost: str = "") -> Snapshot:
    """Give what is known as a snapshot, and why it may be old as its fault."""
    known = Absent("no source") if watched is None else Listed(Table.of({THE_WATCH: watched}))
    return Snapshot({WATCHED: known}, (Problem(THE_WATCH, "error", "WatchLost", "", lost),) if lost else ())


def link_for(settings: Settings, node_name: str, environ: Mapping[str, str]) -> WatcherLink | None:
    """Give the way to the watching process; None where the settings ask for nothing that needs one."""
    if settings.watch_socket is not None:
        return AtSocket(settings.watch_socket)
    if settings.follows_objects or _holds_yaml(settings.policy_path):
        return InChild([sys.executable, "-P", "-m", "podgate.cli", *watch_words(settings, node_name)], environ)
    return None


def watch_words(settings: Settings, node_name: str) -> list[str]:
    """Give the command line of the watching process."""
    words = ["metadata", "watch", "--node-name", node_name]
    pairs = (
        ("--source", settings.source),
        ("--kubeconfig", settings.kubeconfig),
        ("--context", settings.context),
        ("--policy", settings.policy_path),
    )
    words += [word for flag, value in pairs if value is not None for word in (flag, value)]
    return words if settings.follows_objects else [*words, "--no-objects"]


def _holds_yaml(path: str | None) -> bool:
    """Say whether a policy file, or one of a folder, is YAML, which this process cannot read."""
    if path is None:
        return False
    try:
        names = os.listdir(path)  # noqa: PTH208 - pathlib is half a MiB in this small process
    except OSError:
        names = []
    return any(name.endswith(_YAML) for name in (path, *names))
