"""Batch: changes of nf_tables that the kernel makes in one transaction, or not at all.

Here: putting messages together, and which of them was refused. Not here: the bytes of elements (nftables_elements.py),
what the messages mean.
Invariant: nothing is sent before ``commit``; when that raises, the kernel changed nothing.
"""

import errno
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from podgate.linux.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, Connection, NetlinkError, frame, text
from podgate.linux.nftables import DEL_ELEMENTS, DEL_TABLE, NAME, NEW_ELEMENTS, TABLE, batch, family_header
from podgate.linux.nftables_elements import SetShape, element_at, element_lists

_HEADER_BYTES: Final = 16


class BatchMessage(NamedTuple):
    """One message of a transaction; ``what`` says for people what it is about, as ``chain services``."""

    kind: int
    flags: int
    body: bytes
    what: str


class RefusedError(NetlinkError):
    """The kernel refused a transaction.

    Attributes:
        what: what it refused, as ``elements of map services``; empty for the transaction as a whole.
        element: the key of the refused element, if that is known: of an interval one bound.
    """

    def __init__(self, problem: NetlinkError, what: str, element: bytes | None) -> None:
        super().__init__(problem.errno or 0, problem.words, problem.sequence, problem.offset)
        self.what = what
        self.element = element


class Batch:
    """Changes of tables of one family."""

    def __init__(self, connection: Connection, family: int) -> None:
        self._connection = connection
        self._family = family
        self._parts: list[BatchMessage] = []

    def extend(self, parts: Iterable[BatchMessage]) -> None:
        """Add messages that are ready."""
        self._parts += parts

    def add(self, table: str, name: str, elements: Sequence[tuple[bytes, bytes | str]], shape: SetShape) -> None:
        """Add elements; intervals sorted by key: the kernel wants one without an end to be the last of a message."""
        self._fill(NEW_ELEMENTS, NLM_F_CREATE, (table, name), elements, shape)

    def delete(self, table: str, name: str, keys: Iterable[bytes], shape: SetShape) -> None:
        """Delete elements by their keys; those of intervals sorted."""
        self._fill(DEL_ELEMENTS, 0, (table, name), [(key, b"") for key in keys], shape)

    def _fill(
        self,
        kind: int,
        flags: int,
        place: tuple[str, str],
        elements: Sequence[tuple[bytes, bytes | str]],
        shape: SetShape,
    ) -> None:
        table, name = place
        start = family_header(self._family) + text(TABLE, table) + text(NAME, name)
        self._parts += [BatchMessage(kind, flags, start + listed, name) for listed in element_lists(elements, shape)]

    def commit(self) -> None:
        """Send it; raises RefusedError, and then nothing was changed. An empty batch does nothing."""
        if not self._parts:
            return
        frames = []
        sent: dict[int, BatchMessage] = {}
        for number, part in enumerate(self._parts, 1):
            # Refused messages are always reported; the last one's acknowledgement comes after the commit.
            answer = NLM_F_ACK if number == len(self._parts) else 0
            sequence = self._connection.next_sequence()
            frames.append(frame(part.kind, NLM_F_REQUEST | part.flags | answer, sequence, part.body))
            sent[sequence] = part
        results = self._connection.send_all(batch(self._connection, frames))
        for failure in results:
            if failure:
                raise _refused(failure, sent.get(failure.sequence))
        if not results:
            raise NetlinkError(errno.EPROTO, "the kernel did not acknowledge the transaction")


def delete_table(connection: Connection, family: int, table: str) -> None:
    """Delete a table with all that is in it; one that is not there is no error. Raises NetlinkError."""
    whole = Batch(connection, family)
    whole.extend([BatchMessage(DEL_TABLE, 0, family_header(family) + text(TABLE, table), f"table {table}")])
    try:
        whole.commit()
    except NetlinkError as problem:
        if problem.errno != errno.ENOENT:
            raise


def _refused(failure: NetlinkError, part: BatchMessage | None) -> RefusedError:
    if part is None:
        return RefusedError(failure, "", None)
    of_elements = part.kind in (NEW_ELEMENTS, DEL_ELEMENTS)
    found = element_at(part.body, failure.offset - _HEADER_BYTES) if of_elements and failure.offset else None
    return RefusedError(failure, part.what, found)
