"""What a feature asked to keep, on disk: the last good configuration, across restarts.

Here: reading and writing a directory of small files. Not here: what is in them, and when to write.
Invariant: a file is whole or absent, readable by its owner alone, and never half of a newer one.
"""

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from podgate.linux.atomic import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 16 << 20
"""What a kept file may hold: 10,000 entries with their origins are about one MiB."""


class KeptDirectory:
    """A directory of kept files; made on the first write (mode 0700)."""

    def __init__(self, path: "Path") -> None:
        self.path = path

    def load(self) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Read every file; give also what cannot be read, and why. An absent directory is empty.

        What is no file of ours is passed over: hidden names, folders (``lost+found``), pipes, links.
        """
        try:
            entries = sorted(self.path.iterdir())
        except FileNotFoundError:
            return {}, {}
        except OSError as error:
            return {}, {str(self.path): error.strerror or str(error)}
        kept: dict[str, bytes] = {}
        faults: dict[str, str] = {}
        for path in entries:
            try:
                found = path.lstat()
                if path.name.startswith(".") or not stat.S_ISREG(found.st_mode):
                    continue
                if found.st_size > MAX_BYTES:
                    faults[str(path)] = f"it is larger than {MAX_BYTES >> 20} MiB"
                    continue
                kept[path.name] = path.read_bytes()
            except OSError as error:
                faults[str(path)] = error.strerror or str(error)
        return kept, faults

    def is_writable(self) -> bool:
        """Whether something newer could have been saved: False on a read-only file system. An absent one is made."""
        return not self.path.exists() or os.access(self.path, os.W_OK)

    def save(self, entries: Mapping[str, bytes]) -> None:
        """Write each entry atomically, mode 0600. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in entries.items():
            write_atomic(str(self.path / name), data)

    def forget(self) -> bool:
        """Remove everything that was kept, and the directory when it is empty; say whether there was anything."""
        try:
            names = [entry for entry in self.path.iterdir() if entry.is_file()]
        except FileNotFoundError:
            return False
        for entry in names:
            entry.unlink(missing_ok=True)
        try:
            self.path.rmdir()
        except OSError:
            return bool(names)  # a mount point, or not ours alone
        return True


class Unkept(KeptDirectory):
    """Keeps nothing beyond this process: what is good now is the last good configuration for as long as it runs."""

    def __init__(self) -> None:
        """Have no path."""

    def load(self) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Give nothing."""
        return {}, {}

    def is_writable(self) -> bool:
        """Say that nothing newer was missed."""
        return True

    def save(self, entries: Mapping[str, bytes]) -> None:
        """Do nothing."""

    def forget(self) -> bool:
        """Forget nothing."""
        return False


def kept_in(folder: str) -> KeptDirectory:
    """Give what keeps things in a folder; in no folder, nothing beyond this process."""
    from pathlib import Path  # noqa: PLC0415 - half a MiB in a process that keeps nothing

    return KeptDirectory(Path(folder)) if folder else Unkept()
