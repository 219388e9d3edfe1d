"""Writing volumes: files swapped in at once by the ``..data`` link, folders, and the paths of a node.

Here: the writer and what hostPath types ask for. Not here: what the files hold (lab/volumes.py).
Invariant: a reader that opens ``NAME`` sees the old files or the new ones, whole; ``..data`` is renamed into place.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from podgate.lab.podspec import HostPath
from podgate.lab.security import ConfigFault
from podgate.lab.volumes import Content, Files

_DATA: Final = "..data"
_FOLDER_TYPES: Final = ("", "DirectoryOrCreate")


class VolumeWriter:
    """One volume of files. ``group`` is the Pod's fsGroup, which may read the files."""

    def __init__(self, folder: Path, group: int | None = None) -> None:
        self.folder = folder
        self._group = group
        self._written: Files | None = None
        self._generation = 0

    def write(self, files: Files) -> bool:
        """Swap the files in; False when they are what is there already."""
        if self._written is not None and dict(self._written) == dict(files):
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        before = self._current()
        self._generation += 1
        # The name that kubelet's writer gives has a time in it; a number tells the generations apart as well.
        fresh = self.folder / f"..{self._generation:06d}"
        fresh.mkdir(mode=0o755)
        for path, content in files.items():
            self._file(fresh / path, content)
        temporary = self.folder / "..data_tmp"
        temporary.symlink_to(fresh.name)
        temporary.rename(self.folder / _DATA)
        self._links({path.split("/", 1)[0] for path in files})
        if before is not None:
            shutil.rmtree(before)
        self._written = dict(files)
        return True

    def _current(self) -> Path | None:
        link = self.folder / _DATA
        return self.folder / link.readlink() if link.is_symlink() else None

    def _file(self, path: Path, content: Content) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.data)
        if self._group is not None:
            os.chown(path, -1, self._group)
        path.chmod(content.mode | (0o440 if self._group is not None else 0))

    def _links(self, names: Iterable[str]) -> None:
        wanted = set(names)
        for name in wanted:
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(f"{_DATA}/{name}")
        for entry in self.folder.iterdir():
            if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in wanted:
                entry.unlink()


def make_empty_dir(folder: Path, group: int | None) -> None:
    """Make an emptyDir: any user may write, and with fsGroup new files belong to that group."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    if group is not None:
        os.chown(folder, -1, group)
        folder.chmod(0o2777)


def make_host_path(wanted: HostPath, node_folder: Path) -> Path | ConfigFault:
    """Give the path in the node's folder that stands for a hostPath, made or checked as its type asks."""
    path = node_folder / wanted.path.lstrip("/")
    if wanted.type in _FOLDER_TYPES:
        if not path.exists():
            path.mkdir(parents=True, exist_ok=True)
    elif wanted.type == "FileOrCreate":
        # The parent is not made by a kubelet either, but a node of the lab starts out without any folder.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=True)
    right = {
        "DirectoryOrCreate": path.is_dir,
        "Directory": path.is_dir,
        "FileOrCreate": path.is_file,
        "File": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }.get(wanted.type, path.exists)
    if not right():
        return ConfigFault("ContainerCreating", f"hostPath {wanted.path} is not a {wanted.type} on this node")
    return path
