"""Pages over HTTP: health, readiness and metrics, for probes and scrapers.

Here: a small server for GET and HEAD of a fixed set of paths. Not here: one connection (page_connection.py); reading
addresses (listen.py); what the pages say: each is a function that is called when somebody asks.
Invariant: what a client sends costs bounded memory and bounded time: a head of 8 KiB, no body, one request at a time,
64 connections, 30 s to say something whole or to take what was said.
"""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final

from podgate.observe.accepting import Accepting, Shortage
from podgate.observe.answers import TEXT, Answer, Page
from podgate.observe.listen import Listen

if TYPE_CHECKING:
    from podgate.observe.page_connection import PageConnection

BACKLOG: Final = 100
"""Connections that the kernel keeps until they are taken."""

MOST_CONNECTIONS: Final = 64
"""Connections of one server."""


class Crowd:
    """The connections of one server, or of several that share a limit.

    Args:
        most: how many may be open; a further one ends the one that has been silent for longest, so that a crowd of idle
            clients never keeps a probe out.
    """

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self._most = most
        self._open: dict[PageConnection, None] = {}

    def opened(self, connection: "PageConnection") -> None:
        """Take in a connection, and end the most silent one when there are too many."""
        if len(self._open) >= self._most:
            next(iter(self._open)).abort()
        self._open[connection] = None

    def spoke(self, connection: "PageConnection") -> None:
        """Note that a connection sent a whole request: it is the last to give way."""
        if self._open.pop(connection, self) is not self:
            self._open[connection] = None

    def closed(self, connection: "PageConnection") -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def end(self) -> None:
        """End all."""
        for connection in list(self._open):
            connection.abort()


class PageServer:
    """Serves pages while ``listening`` is entered.

    Args:
        pages: a page for each path; ``*`` for all that have none. Read at each request.
        idle: seconds for a whole request to arrive, or an answer to be taken.
        crowd: its connections; None for a limit of its own.
    """

    def __init__(self, pages: Mapping[str, Page], *, idle: float = 30.0, crowd: Crowd | None = None) -> None:
        self._pages = pages
        self._idle = idle
        self._crowd = Crowd() if crowd is None else crowd

    @contextlib.asynccontextmanager
    async def listening(self, listen: Listen, tell: Callable[[str], None] = lambda _why: None) -> AsyncIterator[Listen]:
        """Listen; gives the address with the port that was taken. At the end all connections are closed.

        ``tell`` is told why new connections wait for a free descriptor, and an empty text when they do no more.

        Raises:
            OSError: the address is in use, not this machine's, or not permitted.
        """
        bound = _bound_unix(listen.path) if listen.path else _bound_tcp(listen)
        inode = os.stat(listen.path).st_ino if listen.path else 0  # noqa: PTH116 - one call beside its twin below
        bound.listen(BACKLOG)
        shortage = Shortage(tell)
        accepting = Accepting(bound, self._connected, shortage)
        try:
            yield listen if listen.path else Listen(listen.host, accepting.port)
        finally:
            shortage.forget()
            accepting.close()
            await accepting.settled()
            self._crowd.end()
            if listen.path:
                _unlink_own(listen.path, inode)

    def _connected(self) -> "PageConnection":
        """Serve a connection. The first one pays for loading h11: a start does not wait for it."""
        from podgate.observe.page_connection import PageConnection  # noqa: PLC0415 - see above

        return PageConnection(self)

    def opened(self, connection: "PageConnection") -> None:
        """Take in a connection."""
        self._crowd.opened(connection)

    def spoke(self, connection: "PageConnection") -> None:
        """Note that a connection sent a whole request."""
        self._crowd.spoke(connection)

    def closed(self, connection: "PageConnection") -> None:
        """Forget a connection."""
        self._crowd.closed(connection)

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
