"""A lab's cgroups: made below or beside the group that the lab was started in, and removed with it.

Here: making, filling, reading and removing groups. Not here: which file gets which text (lab/limits.py).
Invariant: every group of a lab is in its note before it is made, so whoever finds a dead lab can remove them; the lab's
own processes, which end all others with them, never leave the group that they were started in.
"""

import asyncio
import errno
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from podgate.lab.limits import CONTROLLERS, CgroupVersion, Hierarchy, Limits, hierarchies, oom_kills, settings
from podgate.lab.places import Places

_NOTE: Final = "cgroups"
_PREFIX: Final = "podgate-lab-"
_EVENTS: Final = ("memory.oom_control", "memory.events")
_TRIES: Final = 500
_PAUSE: Final = 0.01


class Group:
    """The group of one container: a folder per hierarchy; none for a container without limits."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._folders = tuple(folders)

    @property
    def entries(self) -> tuple[str, ...]:
        """The files that a process writes "0" into to enter."""
        return tuple(str(folder / "cgroup.procs") for folder in self._folders)

    def was_killed(self) -> bool:
        """Whether the kernel has killed a process of it for want of memory."""
        for path in (folder / name for folder in self._folders for name in _EVENTS):
            with suppress(FileNotFoundError):  # Each version and controller has its own files.
                if oom_kills(path.read_text()):
                    return True
        return False

    def remove(self) -> bool:
        """Remove it; False while there are processes in it."""
        return not [folder for folder in self._folders if not _removed(folder)]

    async def emptied(self) -> bool:
        """Remove it as soon as its processes, killed already, have ended; False when that takes too long."""
        for _ in range(_TRIES):  # The kernel tells nobody when a group of version 1 empties.
            if self.remove():
                return True
            await asyncio.sleep(_PAUSE)
        return False


class Cgroups:
    """The groups of one lab.

    Args:
        places: the lab's files.
        warn: told what this machine cannot limit.
    """

    def __init__(self, places: Places, warn: Callable[[str], None]) -> None:
        self._note, self._warn = places.state / _NOTE, warn
        self._name = f"{_PREFIX}{places.name}-{secrets.token_hex(4)}"
        self._parents: dict[str, tuple[CgroupVersion, Path]] = {}
        self._count = 0

    @property
    def enforced(self) -> frozenset[str]:
        """The resources that can be limited."""
        return frozenset(self._parents)

    def make(self) -> None:
        """Make the lab's groups; what this machine cannot limit is a warning."""
        found = hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
        reasons = dict.fromkeys(CONTROLLERS, "no cgroup hierarchy is mounted")
        for controller, where in found.items():
            if where.version == 1:
                reasons[controller] = self._made((controller,), where)
        unified = tuple(name for name in CONTROLLERS if name in found and found[name].version == 2)
        # A process is in one group of version 2: all its limits are set there, or only one of them.
        for controllers in dict.fromkeys([unified, *((controller,) for controller in unified)]):
            if controllers and not self._unified():
                reasons |= dict.fromkeys(controllers, self._made(controllers, found[controllers[0]]))
        for controller in CONTROLLERS:
            if controller not in self._parents:
                self._warn(f"resources.limits.{controller}: this machine cannot enforce it: {reasons[controller]}")

    def _unified(self) -> bool:
        return any(version == 2 for version, _ in self._parents.values())

    def _made(self, controllers: tuple[str, ...], where: Hierarchy) -> str:
        """Make the group for controllers; give why not."""
        reason = ""
        # A group of version 2 that has processes cannot have groups with limits; the next one above it may.
        for parent in map(Path, where.upwards if where.version == 2 else (where.own,)):
            folder = parent / self._name
            try:
                self._create(folder)
                for controller in controllers if where.version == 2 else ():
                    _delegate(parent, controller)
                    _delegate(folder, controller)
            except OSError as error:
                reason = reason or f"{error.filename or parent}: {error.strerror}"
                _removed(folder)
                continue
            self._parents |= dict.fromkeys(controllers, (where.version, folder))
            return ""
        return reason

    def _create(self, folder: Path) -> None:
        with self._note.open("a") as note:
            note.write(f"{folder}\n")
        folder.mkdir(exist_ok=True)

    def group(self, limits: Limits, name: str) -> Group:
        """Make the group of a container, whose name is for people; what cannot be limited is a warning."""
        self._count += 1  # A group that is slow to go must not be the next one's.
        folders: dict[Path, None] = {}
        for controller, (version, parent) in self._parents.items():
            wanted = settings(limits, controller, version)
            if not wanted:
                continue
            folder = parent / f"{name[:200]}.{self._count}"
            try:
                folder.mkdir(exist_ok=True)
                for setting in wanted:
                    _write(folder / setting.file, setting.text, optional=setting.optional)
            except OSError as error:
                self._warn(f"{name}: resources.limits.{controller} is not enforced: {error}")
                if folder not in folders:
                    _removed(folder)
                continue
            folders[folder] = None
        return Group(folders)

    def remove(self) -> None:
        """Remove all that is empty; the rest is in the note."""
        remove_noted(self._note)


def remove_leftovers(places: Places) -> None:
    """Remove the groups of a lab that has ended, whose state directory is still there."""
    remove_noted(places.state / _NOTE)


def remove_noted(note: Path) -> None:
    """Remove the groups in a note, with their containers' groups; what has processes stays."""
    with suppress(FileNotFoundError):
        for folder in map(Path, note.read_text().splitlines()):
            if folder.name.startswith(_PREFIX) and folder.is_dir():
                for entry in os.scandir(folder):
                    if entry.is_dir(follow_symlinks=False):
                        _removed(Path(entry.path))
                _removed(folder)


def _delegate(folder: Path, controller: str) -> None:
    """Let a controller limit the groups below a folder (version 2). It stays so: others may rely on it from then on."""
    if controller not in (folder / "cgroup.controllers").read_text().split():
        raise OSError(errno.EOPNOTSUPP, "the controller is not offered there", str(folder))
    control = folder / "cgroup.subtree_control"
    if controller not in control.read_text().split():
        control.write_text(f"+{controller}")


def _write(path: Path, text: str, *, optional: bool) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        if optional:
            return
        raise
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
