"""Trails: which followed paths an event concerns, and which directories have to be watched for that.

Here: the index over the trails of all followed paths. Not here: walking a path (reading.py), watching (linux/inotify).
Invariant: the index holds exactly the trails that were set and not dropped, so the directories to watch are no more and
no fewer than those that can change what a followed path leads to.
"""

from collections import Counter
from collections.abc import Collection
from typing import TypeVar

from podgate.sources.reading import Trail

K = TypeVar("K")


class Trails:
    """The trails of all followed paths, by path."""

    def __init__(self) -> None:
        self._trails: dict[str, tuple[Trail, bool]] = {}
        self._paths: dict[tuple[str, str], set[str]] = {}
        self._lists: dict[str, set[str]] = {}
        self._contents: Counter[str] = Counter()
        self._through: Counter[str] = Counter()

    @property
    def contents(self) -> Collection[str]:
        """The directories whose names matter."""
        return self._contents.keys()

    @property
    def through(self) -> Collection[str]:
        """The directories on the way, of which only their own end matters."""
        return self._through.keys()

    def of(self, path: str) -> Trail:
        """Give the trail of a path that is set."""
        return self._trails[path][0]

    def set(self, path: str, trail: Trail, *, listed: bool) -> bool:
        """Set a path's trail; ``listed`` says that the names in the directory at its end matter.

        Returns:
            Whether it differs from the one that was set.
        """
        if self._trails.get(path) == (trail, listed):
            return False
        self.drop(path)
        self._trails[path] = (trail, listed)
        for lookup in trail.lookups:
            self._paths.setdefault(lookup, set()).add(path)
        if listed:
            self._lists.setdefault(trail.end, set()).add(path)
        self._contents.update(_contents(trail, listed=listed))
        self._through.update(trail.through)
        return True

    def drop(self, path: str) -> None:
        """Forget a path."""
        if path not in self._trails:
            return
        trail, listed = self._trails.pop(path)
        for lookup in set(trail.lookups):  # a link in a circle is looked up many times
            _discard(self._paths, lookup, path)
        if listed:
            _discard(self._lists, trail.end, path)
        _subtract(self._contents, _contents(trail, listed=listed))
        _subtract(self._through, trail.through)

    def looked_up(self, directory: str, name: str) -> list[str]:
        """Give the paths that are looked up by this name in this directory."""
        return sorted(self._paths.get((directory, name), ()))

    def listing(self, directory: str) -> list[str]:
        """Give the followed directories that are this one."""
        return sorted(self._lists.get(directory, ()))

    def leading_through(self, directory: str) -> list[str]:
        """Give the paths that lead through this directory, or to it."""
        return [path for path, (trail, _) in self._trails.items() if directory in trail.through]


def _contents(trail: Trail, *, listed: bool) -> frozenset[str]:
    directories = {directory for directory, _ in trail.lookups}
    return frozenset(directories | {trail.end} if listed else directories)


def _discard(index: dict[K, set[str]], key: K, path: str) -> None:
    index[key].discard(path)
    if not index[key]:
        del index[key]


def _subtract(counter: Counter[str], keys: Collection[str]) -> None:
    for key in keys:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
