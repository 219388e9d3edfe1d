"""FileSource: node-local configuration files, and each change of them.

Here: which names of a directory are read, and how large a file may be. Not here: when a change counts (settling.py),
and what is in a file (the features).
Invariant: every watched path has an entry at every moment; two values that follow each other differ.
"""

import fnmatch
from collections.abc import AsyncIterator, Mapping
from typing import Final

from podgate.model.files import FileContent, FileWatch
from podgate.sources.following import Root, followed, load
from podgate.sources.reading import IsWanted

MAX_BYTES: Final = 1 << 20
"""A larger file is Unreadable. It is the size limit of a ConfigMap too (kubernetes.io, "ConfigMaps")."""


class FileSource:
    """The files that some watches name, as a source."""

    def __init__(self, watches: tuple[FileWatch, ...]) -> None:
        self._watches = watches

    def values(self) -> AsyncIterator[Mapping[str, FileContent]]:
        """Give the files now, and again whenever one differs. A relative path is below the working directory.

        Raises:
            SourceError: the kernel refuses to watch.
        """
        return followed(_roots(self._watches))


def load_files(watches: tuple[FileWatch, ...]) -> Mapping[str, FileContent]:
    """Give the files once, for verbs that do not wait."""
    return load(_roots(watches))


def _roots(watches: tuple[FileWatch, ...]) -> tuple[Root, ...]:
    patterns: dict[str, tuple[str, ...]] = {}
    for watch in watches:
        patterns[watch.path] = (*patterns.get(watch.path, ()), watch.pattern)
    return tuple(Root(path=path, wanted=_wanted(among), limit=MAX_BYTES) for path, among in patterns.items())


def _wanted(patterns: tuple[str, ...]) -> IsWanted:
    return lambda name, _is_directory: is_wanted(name, patterns)


def is_wanted(name: str, patterns: tuple[str, ...]) -> bool:
    """Say whether a name in a watched directory is read.

    Hidden names are not, since kubelet and editors keep their own business there, unless the pattern begins with a dot
    too; nor are names that end in ``~``, which are copies that editors leave.
    """
    return not name.endswith("~") and any(
        fnmatch.fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))
        for pattern in patterns
    )
