"""Reading a path without trusting it: what its name leads to, and its content as a value.

Here: walking a path through its links, and reading what is at its end. Not here: when to read (settling.py) and what to
follow (following.py).
Invariant: nothing here blocks on what a path leads to (a FIFO, a device), and whatever is there becomes a value.
"""

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import Frozen
from podgate.sources.settling import Glance, Stamp

_LINKS: Final = 40
"""How many links Linux follows in one path (path_resolution(7))."""
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK: Final = 1 << 20

IsWanted = Callable[[str, bool], bool]
"""Whether a name of a directory is followed, given the name and whether it is a directory itself."""


class Trail(Frozen, frozen=True):
    """How the kernel gets from ``/`` to what a path leads to.

    Attributes:
        lookups: each (directory, name) whose change may lead the path elsewhere: links, and the last name that was
            looked up, which is missing where the path leads nowhere. Directories are real paths, without links.
        through: the real directories on the way.
        end: the real path that was reached, or would be.
    """

    lookups: tuple[tuple[str, str], ...] = ()
    through: frozenset[str] = frozenset()
    end: str = ""


def walk(path: str) -> Trail:
    """Follow a path, absolute or below the working directory, as path_resolution(7) says."""
    try:
        return _walk(path if path.startswith("/") else os.path.join(os.getcwd(), path))
    except ValueError:
        return Trail(end=path)  # a NUL in it: no such path can exist, so there is nothing to follow


def _walk(path: str) -> Trail:
    rest = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here = "/"
    through = {here}
    lookups: list[tuple[str, str]] = []
    links = 0
    while rest:
        name = rest.pop()
        if name == "..":
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        try:
            mode = os.lstat(there).st_mode
        except OSError:
            mode = 0
        if stat.S_ISLNK(mode):
            lookups.append((here, name))
            links += 1
            target = _target(there) if links <= _LINKS else None
            if target is None:
                here = there
                break
            rest += [part for part in reversed(target.split("/")) if part not in ("", ".")]
            here = "/" if target.startswith("/") else here
        elif stat.S_ISDIR(mode):
            if not rest:
                lookups.append((here, name))
            here = there
            through.add(here)
        else:
            lookups.append((here, name))
            here = there
            break
    return Trail(lookups=tuple(lookups), through=frozenset(through), end=here)


def _target(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None  # gone meanwhile: the lookup of its name is recorded, and its going is an event


def stamp_of(path: str) -> Stamp | None:
    """Give the stamp of what is behind a path; None if nothing is, or it cannot be told."""
    try:
        return _stamp(os.stat(path))
    except (OSError, ValueError):
        return None


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_directory(stamp: Stamp | None) -> bool:
    """Say whether a stamp is that of a directory."""
    return stamp is not None and stat.S_ISDIR(stamp.mode)


def is_regular(stamp: Stamp | None) -> bool:
    """Say whether a stamp is that of a regular file."""
    return stamp is not None and stat.S_ISREG(stamp.mode)


def read(path: str, limit: int, wanted: IsWanted | None) -> Glance:
    """Read what is behind a path.

    Args:
        path: the path.
        limit: bytes above which a file is Unreadable.
        wanted: which names of a directory are wanted, by name and whether that is a directory itself; None where a
            directory is not wanted at all.
    """
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            return Glance(_directory(path, wanted), _stamp(found))
        if not stat.S_ISREG(found.st_mode):
            return Glance(Unreadable(f"it is a {_sort(found.st_mode)}, not a regular file"), _stamp(found))
        return _regular(path, limit)
    except (FileNotFoundError, NotADirectoryError):
        return Glance(Missing(dangling=_is_link(path)), None)
    except OSError as error:
        return Glance(Unreadable(_why(error)), stamp_of(path))
    except ValueError:
        return Glance(Unreadable("its name holds a NUL or another character that no file name can have"), None)


def _directory(path: str, wanted: IsWanted | None) -> FileContent:
    if wanted is None:
        return Unreadable("it is a directory, not a regular file")
    with os.scandir(path) as found:
        return Directory(tuple(sorted(one.name for one in found if wanted(one.name, _is_directory(one)))))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link in a circle


def _regular(path: str, limit: int) -> Glance:
    descriptor = os.open(path, _FLAGS)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):  # replaced between stat and open
            return Glance(Unreadable("it changed while it was opened"), _stamp(before), whole=False)
        data = bytearray()
        while len(data) <= limit and (chunk := os.read(descriptor, min(_CHUNK, limit + 1 - len(data)))):
            data += chunk
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    whole = _stamp(before) == _stamp(after)
    if len(data) > limit:
        return Glance(Unreadable(f"it is larger than {limit} bytes"), _stamp(after))
    return Glance(Present(bytes(data)), _stamp(after), whole=whole)


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def _why(error: OSError) -> str:
    reason = os.strerror(error.errno or 0)
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return f"{reason}; give podgate's user read permission on it and on each directory above it"
        case errno.ELOOP:
            return f"{reason}: its links lead in a circle"
        case _:
            return reason


def _sort(mode: int) -> str:
    sorts = ((stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
    return next((word for test, word in sorts if test(mode)), "special file")
