"""Settling: when a path that changes is read, and when what was read counts. Pure: events and the time in, entries out.

Here: the state of one followed path and its two transitions. Not here: clocks, events of the kernel, reading.
Invariant: an entry without ``due`` is at rest and needs no timer; an entry with one gets there in a bounded time, so
the last of any burst of changes is read.

The rules, and why:

* A change is read once it has been left alone for ``Settling.settle``: editors and scripts write in several steps.
* A regular file that was just created is left to its writer, who will close it; at the latest ``PATIENCE`` later it is
  read anyway (a hard link is created and never closed).
* A swap of kubelet's ``..data`` link is one step by design, and read at once.
* Steady changes cannot hold off a reading for longer than ``PATIENCE``.
* A file that becomes empty or goes missing after it had content counts only when it stays so for ``Settling.persist``:
  editors truncate, or move away, before they write.
"""

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from podgate.model.files import FileContent, Missing, Present
from podgate.model.frozen import Frozen

PATIENCE: Final = 1.0
"""Seconds after its first unread change at which a path is read, whatever still happens to it."""

AGAIN: Final = 0.001
"""Seconds after which a path that moved while it was read is read again, at the earliest."""


class Settling(Frozen, frozen=True):
    """Seconds that a change must be left alone, and that an emptied or missing file must stay so."""

    settle: float = 0.020
    persist: float = 1.0


AT_ONCE: Final = Settling(settle=0.0, persist=0.0)
"""For directories whose every writer renames whole files into place."""


class Stamp(NamedTuple):
    """What stat(2) says of the object behind a path; two equal stamps mean that it was not written in between."""

    device: int
    inode: int
    mode: int
    size: int
    modified_ns: int
    changed_ns: int


class Touch(Enum):
    """How a path changed."""

    CHANGED = "changed"
    CREATED = "created"
    """A regular file that its writer may still have open."""
    SWAPPED = "swapped"
    """Kubelet's ``..data`` link on the way to it was renamed into place."""


class Glance(Frozen, frozen=True):
    """One reading of a path; ``whole`` is False when it was written to meanwhile."""

    content: FileContent
    stamp: Stamp | None
    whole: bool = True


class FollowedPath(Frozen, frozen=True):
    """One followed path.

    Attributes:
        published: what counts now; None until the first reading.
        due: when to read next; None at rest.
        first: when the oldest change came that no reading has covered.
        hollow: since when a path that had content has been found empty or missing.
        stamp: as of the newest change or reading.
        swapped: the newest changes included a swap, so nothing defers the reading.
    """

    published: FileContent | None = None
    due: float | None = None
    first: float | None = None
    hollow: float | None = None
    stamp: Stamp | None = None
    swapped: bool = False


def touched(entry: FollowedPath, now: float, touch: Touch, stamp: Stamp | None, settling: Settling) -> FollowedPath:
    """Give the entry after a change of its path at ``now``; ``stamp`` is what stat says right after it."""
    first = now if entry.first is None else entry.first
    swapped = entry.swapped or touch is Touch.SWAPPED
    wait = PATIENCE if touch is Touch.CREATED else settling.settle
    due = now if swapped else min(now + wait, first + PATIENCE)
    return msgspec.structs.replace(entry, due=due, first=first, stamp=stamp, swapped=swapped)


def looked(entry: FollowedPath, now: float, glance: Glance, settling: Settling) -> FollowedPath:
    """Give the entry after a reading at ``now``: published, or held back with a time for the next reading.

    The very first reading is published whatever it is, since there is nothing better; if it was not whole, another one
    follows.
    """
    first = entry.published is None
    impatient = entry.swapped or (entry.first is not None and now >= entry.first + PATIENCE)
    moving = not glance.whole or not (impatient or first or glance.stamp == entry.stamp)
    again = now + max(settling.settle, AGAIN)
    if moving and not first:
        return msgspec.structs.replace(entry, due=again, stamp=glance.stamp, swapped=False)
    if is_hollow(glance.content) and entry.published is not None and not is_hollow(entry.published):
        since = now if entry.hollow is None else entry.hollow
        if now < since + settling.persist:
            return FollowedPath(
                published=entry.published, due=since + settling.persist, hollow=since, stamp=glance.stamp
            )
    return FollowedPath(published=glance.content, due=again if moving else None, stamp=glance.stamp)


def is_hollow(content: FileContent) -> bool:
    """Say whether this is what an editor leaves for a moment: no file, or a file with nothing but white space."""
    return isinstance(content, Missing) or (isinstance(content, Present) and not content.data.strip())
