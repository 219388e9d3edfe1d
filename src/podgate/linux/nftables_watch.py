"""nftables_watch: one table of nf_tables as others change it.

Here: the socket for requests, notifications, what was seen last, our own programs' transactions. Not here: what a table
holds and how it is read (targets/*/apply.py); whose a transaction is (nftables_drift.py); other refusals (refusals.py).
Invariant: what changes between a read and the start of the watch is told as well as what changes afterwards.
"""

import contextlib
import errno
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Final, Generic, TypeVar

from podgate.linux import refusals
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, Listener, NetlinkError, NotificationsLostError
from podgate.linux.nftables import NOTIFICATIONS, generation
from podgate.linux.nftables_drift import Drift

S = TypeVar("S")

NO_NF_TABLES: Final = (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EINVAL)
"""What a kernel without nf_tables answers."""

_LACKS: Final = "if the kernel lacks nf_tables (CONFIG_NF_TABLES), load the module nf_tables"

_UNKNOWN: Final = -1
"""No generation."""


class WatchedTable(Generic[S]):
    """One table, in one network namespace; nothing is opened before it is used.

    Args:
        drift: knows the table, and whose transactions are ours.
        namespace: an open network namespace; None for this process's own.
        buffer_bytes: kernel memory for notifications that wait to be read; when it is full, they are lost.
    """

    def __init__(self, drift: Drift, namespace: int | None, buffer_bytes: int) -> None:
        self._drift = drift
        self._namespace = namespace
        self._buffer_bytes = buffer_bytes
        self._connection: Connection | None = None
        self._seen: int | None = None
        self._held: S | None = None  # what the table held when ``_seen`` was the generation

    def close(self) -> None:
        """Close the socket; the next call opens another."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Be in the network namespace for the body."""
        return inside_network(self._namespace)

    @property
    def connection(self) -> Connection:
        """The socket for requests. Raises OSError."""
        if self._connection is None:
            with self.inside():
                self._connection = Connection(NETLINK_NETFILTER)
            self._drift.own_socket(self._connection.port)
        return self._connection

    def generation(self) -> int | None:
        """Give the number of the last transaction; None where the kernel has no nf_tables. Raises OSError."""
        try:
            return generation(self.connection)
        except NetlinkError as problem:
            if problem.errno in NO_NF_TABLES:
                return None
            raise

    def saw(self, number: int | None, held: S) -> None:
        """Note what the table held at a generation."""
        self._seen, self._held = number, held

    def doubt(self) -> None:
        """Note that others may have changed the table while we wrote it: a watch that starts later tells of it."""
        self._seen, self._held = _UNKNOWN, None

    @contextlib.contextmanager
    def writing(self, held: S) -> Iterator[int | None]:
        """Have the body change the table, and note what it holds then unless it fails; gives the generation before."""
        before, self._held = self.generation(), None
        yield before
        if self._seen == before:
            self.saw(self.generation(), held)

    @contextlib.contextmanager
    def running(self) -> Iterator[Callable[[int], None]]:
        """Take the transactions of programs that the body starts as ours; it tells their process ids."""
        first = self.generation() or 0
        runs = []
        try:
            yield lambda pid: runs.append(self._drift.run_started(pid, first))
        finally:
            for run in runs:
                run.last = self.generation() or 0

    async def changes(
        self, read: Callable[[], Awaitable[S]], differ: Callable[[S, S], bool]
    ) -> AsyncGenerator[str, None]:
        """Say in words what others change, once for all that the kernel had to report at once.

        Args:
            read: reads the table; it must call ``saw``.
            differ: says whether the table as read is another than the one that was noted.

        Raises:
            OSError: it cannot be watched; what ``read`` raises.
        """
        own = self.connection.port
        with self.inside():
            listener = Listener(NETLINK_NETFILTER, (NOTIFICATIONS,), self._buffer_bytes, deaf_to=own)
        with listener:
            if self._seen is not None and self.generation() != self._seen:
                held = self._held  # other tables, as our other family's, do not count
                if held is None or differ(await read(), held):
                    yield "the table changed before it was watched"
            while True:
                try:
                    what = self._drift.foreign(await listener.receive())
                except NotificationsLostError:
                    self._drift.lost()
                    what = "notifications were lost"
                if what:
                    yield what


def refused(what: str, error: Callable[[str, str], Exception]) -> contextlib.AbstractContextManager[None]:
    """Do as ``refusals.refused``, with what to do where the kernel lacks nf_tables."""
    return refusals.refused(what, error, _LACKS)
