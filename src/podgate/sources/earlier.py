"""EarlierTexts: what manifest files said when all in them was right, across restarts.

Here: one copy for each file, in the feature's state directory. Not here: when a text is right (manifests.py).
Invariant: a copy is readable by its owner alone; one that cannot be written or read takes nothing else away.

A process remembers what a file said before it went bad. The next one has only these copies to know it from: without
them a restart beside a broken file would take away what works.
"""

import contextlib
import hashlib
import os
from collections.abc import Collection
from typing import Final

from podgate.linux.atomic import write_atomic

FOLDER: Final = "manifests"
"""Where the copies are, in a state directory."""


class EarlierTexts:
    """The copies of one source.

    Args:
        state_dir: the feature's state directory; empty: nothing is kept, and nothing known.
        writes: False for those that only look.
    """

    def __init__(self, state_dir: str, *, writes: bool = True) -> None:
        self._folder = os.path.join(state_dir, FOLDER) if state_dir else ""
        self._writes = writes and bool(state_dir)
        self.trouble = ""
        """Why copies cannot be kept; empty when they can."""

    def of(self, path: str) -> bytes | None:
        """Give the copy of a file; None where there is none that can be read."""
        return _read(self._place(path)) if self._folder else None

    def keep(self, path: str, data: bytes) -> None:
        """Copy the text of a file, unless that is what the copy holds."""
        if not self._writes:
            return
        place = self._place(path)
        if _size(place) == len(data) and _read(place) == data:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            # Whoever loses the last copy to a power failure starts as without one: no wait for the disk is worth that.
            write_atomic(place, data, durable=False)
            self.trouble = ""
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def only(self, paths: Collection[str]) -> None:
        """Remove the copies of all other files: those are gone, and that was somebody's wish."""
        if not self._writes:
            return
        wanted = {os.path.basename(self._place(path)) for path in paths}
        with contextlib.suppress(OSError):  # a copy that stays is asked for by nobody
            for name in os.listdir(self._folder):
                if name not in wanted:
                    os.unlink(os.path.join(self._folder, name))

    def _place(self, path: str) -> str:
        return os.path.join(self._folder, hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest())


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
