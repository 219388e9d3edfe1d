"""inotify(7) for asyncio: what happens in a set of directories.

Here: following directories by path, and their events as values. Not here: what an event means for a file, and when it
is read (sources/).
Invariant: nothing wakes up by itself: no timer, no thread; and only directories are watched, never files, since a file
that is replaced by a rename takes a watch on itself away.

What the kernel does not tell: a mount over a directory, and changes by other machines on a network file system.
"""

import os
from collections.abc import Collection, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Self

from inotify_simple import INotify, flags

from podgate.linux.waiting import readable


class What(Enum):
    """What happened to one name in a directory, or to the directory itself."""

    WRITTEN = "written"
    """A file was closed that had been open for writing, or its mode or owner changed."""
    CREATED = "created"
    """A name appeared: its writer may still have it open."""
    ARRIVED = "arrived"
    """A name was renamed into place."""
    LEFT = "left"
    """A name was renamed away or deleted."""
    GONE = "gone"
    """The directory itself was deleted, renamed or unmounted; ``name`` is empty."""
    OVERFLOW = "overflow"
    """Events were lost: look at everything. ``directory`` and ``name`` are empty."""


class Event(NamedTuple):
    """One event; ``directory`` is a path as it was given to ``follow``."""

    directory: str
    name: str
    what: What


_SELF: Final = flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
_NAMES: Final = (
    flags.CLOSE_WRITE
    | flags.ATTRIB
    | flags.CREATE
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.DELETE
    | flags.EXCL_UNLINK
)
_MEANINGS: Final = (
    (flags.Q_OVERFLOW, What.OVERFLOW),
    (flags.DELETE_SELF | flags.MOVE_SELF | flags.UNMOUNT, What.GONE),
    (flags.MOVED_TO, What.ARRIVED),
    (flags.MOVED_FROM | flags.DELETE, What.LEFT),
    (flags.CREATE, What.CREATED),
    (flags.CLOSE_WRITE | flags.ATTRIB, What.WRITTEN),
)


class Directories:
    """A set of watched directories. Use it as a context manager: leaving it closes the inotify descriptor."""

    def __init__(self) -> None:
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot watch files: {error.strerror}; raise sysctl fs.inotify.max_user_instances"
            ) from error
        self._paths: Mapping[int, frozenset[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inotify.close()

    def follow(self, contents: Collection[str], themselves: Collection[str] = ()) -> frozenset[str]:
        """Watch exactly these directories from now on.

        Each is looked up anew, so calling again after a directory was replaced follows the one that is there now.

        Args:
            contents: directories whose names matter.
            themselves: directories of which only their own removal or renaming matters.

        Returns:
            Those of ``contents`` and ``themselves`` that are watched; the others are not there, are no directories
            or may not be read.

        Raises:
            OSError: the kernel refuses more watches (ENOSPC: fs.inotify.max_user_watches).
        """
        masks = dict.fromkeys(themselves, int(_SELF))
        masks.update(dict.fromkeys(contents, int(_SELF | _NAMES)))
        found: dict[int, frozenset[str]] = {}
        wanted: dict[int, int] = {}
        for path, mask in sorted(masks.items()):  # which one is refused, and named, is not to be chance
            descriptor = self._add(path, mask)
            if descriptor is None:
                continue
            # Two paths may lead to one directory (a bind mount); a second call would replace the first one's mask.
            if mask | wanted.get(descriptor, 0) != mask:
                self._add(path, mask | wanted[descriptor])
            wanted[descriptor] = mask | wanted.get(descriptor, 0)
            found[descriptor] = found.get(descriptor, frozenset()) | {path}
        for descriptor in self._paths.keys() - found.keys():
            self._remove(descriptor)
        self._paths = found
        return frozenset().union(*found.values())

    async def events(self) -> tuple[Event, ...]:
        """Wait until something happened; give all that has, in order. Safe to cancel: no event is lost."""
        while not (events := self.pending()):
            await readable(self._inotify.fileno())
        return events

    def pending(self) -> tuple[Event, ...]:
        """Give what has happened and was not given yet, without waiting."""
        return tuple(
            event for raw in self._inotify.read(timeout=0) for event in self._meaning(raw.wd, raw.mask, raw.name)
        )

    def _meaning(self, descriptor: int, mask: int, name: str) -> tuple[Event, ...]:
        for bits, what in _MEANINGS:
            if mask & bits:
                if what is What.OVERFLOW:
                    return (Event("", "", what),)
                # Of a directory that is no longer followed late events may arrive; ATTRIB without a name is about the
                # directory itself.
                if what is not What.GONE and not name:
                    return ()
                return tuple(Event(path, name, what) for path in sorted(self._paths.get(descriptor, ())))
        return ()

    def _add(self, path: str, mask: int) -> int | None:
        try:
            return int(self._inotify.add_watch(path, mask))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except OSError as error:
            advice = "raise sysctl fs.inotify.max_user_watches"
            raise OSError(
                error.errno, f"cannot watch {path}: {os.strerror(error.errno or 0)}; {advice}", path
            ) from error

    def _remove(self, descriptor: int) -> None:
        try:
            self._inotify.rm_watch(descriptor)
        except OSError:
            return  # EINVAL: the kernel removed it together with its directory
