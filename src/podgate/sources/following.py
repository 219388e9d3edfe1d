"""Following: a set of paths, their contents now, and each change of them.

Here: the state of all followed paths, driven by events and the time, over the pure rules of settling.py; the loop
around inotify. Not here: what the contents mean.
Invariant: a directory is watched before what is in it is read, so no change falls between; and while nothing is pending
the loop waits without a timer.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Final

from podgate.joints import SourceError
from podgate.linux.inotify import Directories, Event, What
from podgate.model.files import Directory, FileContent, Missing
from podgate.model.frozen import Frozen
from podgate.sources.reading import IsWanted, is_directory, is_regular, read, stamp_of, walk
from podgate.sources.settling import FollowedPath, Settling, Touch, looked, touched
from podgate.sources.trails import Trails

_ATTEMPTS: Final = 8
"""How often watches are set again when the paths move meanwhile; what still moves then is read again anyway."""

Follow = Callable[[Collection[str], Collection[str]], object]
"""Watch these directories' names, and these directories' own end."""


class Root(Frozen, frozen=True):
    """One path to follow.

    Attributes:
        path: the file or directory; contents are given by paths that begin with it as it is written.
        wanted: which names are read, where the path is a directory.
        recursive: read directories in directories too.
        limit: bytes above which a file is Unreadable.
    """

    path: str
    wanted: IsWanted
    recursive: bool = False
    limit: int = 1 << 20
    settling: Settling = Settling()


class Following:
    """The followed paths. Feed it events and the time; it reads what is due and says what counts."""

    def __init__(self, roots: Iterable[Root], follow: Follow, now: float) -> None:
        self._follow = follow
        self._roots = {root.path: root for root in roots}
        self._root_of = dict(self._roots)
        self._entries: dict[str, FollowedPath] = {}
        self._children: dict[str, set[str]] = {}
        self._parent: dict[str, str] = {}
        self._due: set[str] = set()
        self._trails = Trails()
        self._moved: set[str] = set()
        self._refollow = False
        self.changed = not self._roots
        """Whether ``contents()`` may give something else than when this was last set to False."""
        for path in self._roots:
            self._add(path, self._roots[path], now, Touch.SWAPPED)
        self.settle(now)

    @property
    def deadline(self) -> float | None:
        """When to call ``settle`` next, if no event comes before; None when nothing is pending."""
        return min((due for path in self._due if (due := self._entries[path].due) is not None), default=None)

    def contents(self) -> Mapping[str, FileContent]:
        """Give what counts now: each root, and below a directory each name that is followed and there."""
        found: dict[str, FileContent] = {}
        rest = [*reversed(self._roots)]
        while rest:
            path = rest.pop()
            content = self._entries[path].published
            if isinstance(content, Directory):
                there = sorted(child for child in self._children.get(path, ()) if self._counts(child))
                content = Directory(tuple(os.path.basename(child) for child in there))
                rest += reversed(there)
            if content is not None:
                found[path] = content
        return found

    def take(self, events: Iterable[Event], now: float) -> None:
        """Note events: what they concern is due soon, and is watched from now on wherever it is now."""
        for event in events:
            match event.what:
                case What.OVERFLOW:
                    self._refollow = True
                    for path in list(self._entries):
                        self._touch(path, Touch.CHANGED, now)
                case What.GONE:
                    self._refollow = True
                    for path in self._trails.leading_through(event.directory):
                        self._touch(path, Touch.CHANGED, now)
                case _:
                    self._take_name(event, now)
        self._watch()

    def settle(self, now: float) -> None:
        """Read everything that is due at ``now``."""
        self._watch()
        while ready := [path for path in self._due if (self._entries[path].due or 0.0) <= now]:
            for path in sorted(ready):
                if path in self._due:  # not dropped, and not put to rest by the directory it is in
                    self._look(path, now)
            self._watch()

    def _counts(self, path: str) -> bool:
        published = self._entries[path].published
        return published is not None and published != Missing()  # a dangling link is there, and may be a mistake

    def _take_name(self, event: Event, now: float) -> None:
        swapped = event.what is What.ARRIVED and event.name == "..data"
        for path in self._trails.looked_up(event.directory, event.name):
            created = _is_being_written(event) and self._trails.of(path).lookups[-1] == event[:2]
            touch = Touch.SWAPPED if swapped else Touch.CREATED if created else Touch.CHANGED
            self._touch_deep(path, touch, now)
        if event.what is What.LEFT:
            return
        for parent in self._trails.listing(event.directory):
            child = os.path.join(parent, event.name)
            root = self._root_of[parent]
            if child not in self._children.get(parent, ()) and root.wanted(event.name, os.path.isdir(child)):
                self._add_child(parent, child, now, Touch.CREATED if _is_being_written(event) else Touch.CHANGED)

    def _touch_deep(self, path: str, touch: Touch, now: float) -> None:
        self._touch(path, touch, now)
        for child in sorted(self._children.get(path, ())):
            self._touch_deep(child, touch, now)

    def _touch(self, path: str, touch: Touch, now: float) -> None:
        stamp = stamp_of(path)
        if touch is Touch.CREATED and not is_regular(stamp):
            touch = Touch.CHANGED
        self._set(path, touched(self._entries[path], now, touch, stamp, self._root_of[path].settling))
        self._moved.add(path)

    def _add(self, path: str, root: Root, now: float, touch: Touch) -> None:
        self._root_of[path] = root
        self._entries[path] = FollowedPath()
        self._touch(path, touch, now)

    def _add_child(self, parent: str, child: str, now: float, touch: Touch) -> None:
        if walk(child).end in self._trails.of(parent).through:
            return  # a link to a directory above it
        self._children.setdefault(parent, set()).add(child)
        if child not in self._entries:
            self._parent[child] = parent
            self._add(child, self._root_of[parent], now, touch)

    def _look(self, path: str, now: float) -> None:
        root = self._root_of[path]
        before = self._entries[path]
        glance = read(path, root.limit, root.wanted if self._lists(path) else None)
        after = looked(before, now, glance, root.settling)
        self._set(path, after)
        if isinstance(glance.content, Directory):
            # What came with a swap, at the start, or with a root that was missing is as settled as the directory: a
            # root without what is in it would be taken for an empty one.
            is_back = path in self._roots and isinstance(before.published, Missing)
            touch = Touch.SWAPPED if before.swapped or is_back else Touch.CHANGED
            self._list(path, glance.content, now, touch, again=before.hollow is not None)
        elif isinstance(after.published, Directory):
            for child in self._children.get(path, set()) - self._roots.keys():  # held back: so are its names
                self._set(child, FollowedPath(published=self._entries[child].published))
        else:
            for child in list(self._children.pop(path, ())):
                self._drop(child)
        if path not in self._roots and after.published == Missing():
            self._drop(path)

    def _list(self, path: str, found: Directory, now: float, touch: Touch, *, again: bool) -> None:
        known = frozenset(self._children.get(path, ()))
        there = {os.path.join(path, name) for name in found.names}
        for child in sorted(there - known):
            self._add_child(path, child, now, touch)
        for child in sorted(known if again else known - there):
            if self._entries[child].due is None:
                self._touch_deep(child, touch, now)

    def _lists(self, path: str) -> bool:
        return path in self._roots or self._root_of[path].recursive

    def _drop(self, path: str) -> None:
        if path in self._roots:
            return
        for child in list(self._children.pop(path, ())):
            self._drop(child)
        self.changed = True
        self._refollow = True
        self._due.discard(path)
        self._moved.discard(path)
        self._trails.drop(path)
        del self._entries[path], self._root_of[path]
        self._children.get(self._parent.pop(path), set()).discard(path)

    def _set(self, path: str, entry: FollowedPath) -> None:
        self.changed = self.changed or entry.published != self._entries[path].published
        self._entries[path] = entry
        if entry.due is None:
            self._due.discard(path)
        else:
            self._due.add(path)

    def _watch(self) -> None:
        """Set the watches for what moved, and see that it did not move meanwhile."""
        for _ in range(_ATTEMPTS):
            for path in self._moved:
                listed = self._lists(path) and is_directory(stamp_of(path))
                self._refollow |= self._trails.set(path, walk(path), listed=listed)
            if not self._refollow:
                break
            self._refollow = False
            self._follow(self._trails.contents, self._trails.through)
        self._moved.clear()


def _is_being_written(event: Event) -> bool:
    """Say whether somebody just made the name, and may still write what it names: a link is whole from the start."""
    return event.what is What.CREATED and not os.path.islink(os.path.join(event.directory, event.name))


async def followed(roots: Iterable[Root]) -> AsyncIterator[Mapping[str, FileContent]]:
    """Give the contents of the roots now, and again after each change that counts. Ends only by cancellation.

    Raises:
        SourceError: the kernel refuses to watch.
    """
    loop = asyncio.get_running_loop()
    try:
        with Directories() as directories:
            following = Following(roots, directories.follow, loop.time())
            given: Mapping[str, FileContent] | None = None
            while True:
                if following.changed:
                    following.changed = False
                    if (contents := following.contents()) != given:
                        given = contents
                        yield contents
                events, now = await _next(directories, following.deadline)
                following.take(events, now)
                following.settle(now)
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from error


def load(roots: Iterable[Root]) -> Mapping[str, FileContent]:
    """Give the contents of the roots now, once, without an event loop and without watching."""
    return Following(roots, lambda _contents, _through: None, now=0.0).contents()


async def _next(directories: Directories, deadline: float | None) -> tuple[tuple[Event, ...], float]:
    """Wait for events, until the deadline; give them (none at the deadline) and the time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(deadline):
            return await directories.events(), loop.time()
    except TimeoutError:
        return (), max(loop.time(), deadline or 0.0)
