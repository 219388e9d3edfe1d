"""A ConfigMap volume as kubelet writes it (AtomicWriter), and one file of it as people edit it.

Here: the swap of ``..data``, the links of its keys, the three ways to change one file. Not here: who follows it.
Invariant: after each method the folder is as kubelet leaves it: one hidden folder, ``..data``, one link for each key.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path


class Volume:
    """A volume: a key is a link through ``..data`` to a folder that is swapped. It is empty at first."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._swaps = 0

    def swap(self, keys: Mapping[str, str]) -> None:
        """Put new contents in, all at once; then make links for new keys, and remove those of keys that left."""
        self._swaps += 1
        fresh, data, made = (self._folder / name for name in (f"..{self._swaps}", "..data", "..data_tmp"))
        fresh.mkdir()
        for key, text in keys.items():
            (fresh / key).write_text(text)
        made.symlink_to(fresh.name)
        made.rename(data)
        links = {self._folder / key for key in keys}
        for link in links:
            if not link.is_symlink():
                link.symlink_to(f"..data/{link.name}")
        for link in self._folder.iterdir():
            if link.is_symlink() and link != data and link not in links:
                link.unlink()
        shutil.rmtree(self._folder / f"..{self._swaps - 1}", ignore_errors=True)


class MountedFile:
    """One file of a volume, edited in each of the ways that are met in practice.

    Attributes:
        path: the link that a program is given.
    """

    def __init__(self, folder: Path, text: str) -> None:
        self._volume = Volume(folder)
        self.path = folder / "ip-masq-agent"
        self.swap(text)

    def swap(self, text: str) -> None:
        """Swap ``..data``, as kubelet does."""
        self._volume.swap({self.path.name: text})

    def rename(self, text: str) -> None:
        """Put a new file in the old one's place, as careful editors do."""
        fresh = self.path.resolve().with_name(".new")
        fresh.write_text(text)
        fresh.rename(fresh.with_name(self.path.name))

    def write(self, text: str) -> None:
        """Truncate and write in place, as a shell does."""
        self.path.write_text(text)

    @property
    def forms(self) -> dict[str, Callable[[str], None]]:
        """The three ways, by the names that tables show."""
        return {"..data swap": self.swap, "rename": self.rename, "in-place write": self.write}
