"""Files on this node as inputs: bytes, or why there are none.

Here: the values. Not here: reading and watching (sources/files.py).
Invariant: a value carries no position and no time stamp, so an untouched or rewritten equal file is no change.
"""

from podgate.model.frozen import Frozen


class Present(Frozen, frozen=True, tag=True):
    """A regular file that was read whole and has been stable."""

    data: bytes


class Directory(Frozen, frozen=True, tag=True):
    """A directory. ``names`` are the plain names in it that the watch asked for, sorted; each has an entry itself."""

    names: tuple[str, ...]


class Missing(Frozen, frozen=True, tag=True):
    """Nothing is there: no such file, no such parent, or a link that leads nowhere."""

    dangling: bool = False


class Unreadable(Frozen, frozen=True, tag=True):
    """Something is there that cannot be read; ``why`` is the operating system's reason."""

    why: str


FileContent = Present | Directory | Missing | Unreadable


class FileWatch(Frozen, frozen=True):
    """A path to watch; of a directory, the files whose names match ``pattern`` (fnmatch) are read too."""

    path: str
    pattern: str = "*"
