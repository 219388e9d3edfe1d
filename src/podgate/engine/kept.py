"""What a feature asked to keep, on disk: the last good configuration, across restarts.

Here: reading and writing a directory of small files. Not here: what is in them, and when to write.
Invariant: a file is whole or absent, readable by its owner alone, and never half of a newer one.
"""

from collections.abc import Mapping
from pathlib import Path

from podgate.linux.atomic import write_atomic


class KeptDirectory:
    """A directory of kept files; made on the first write (mode 0700)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Mapping[str, bytes]:
        """Read everything. Raises OSError when it is there but cannot be read; an absent directory is empty."""
        try:
            names = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
        except FileNotFoundError:
            return {}
        return {name: (self.path / name).read_bytes() for name in names}

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
