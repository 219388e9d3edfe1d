"""Where a lab keeps its files.

Here: the paths of a lab by its name, and its lock. Not here: what is in the files.
Invariant: the state directory's lock is held exactly while the lab's init lives; the kernel releases it.
"""

import fcntl
import os
import re
from pathlib import Path
from typing import Final

from podgate.model.frozen import Frozen

DEFAULT_BASE: Final = "/run/podgate-lab"
DEFAULT_NAME: Final = "lab"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


class Places(Frozen, frozen=True):
    """The paths of one lab. ``base`` is ``$PODGATE_LAB_DIR`` or /run/podgate-lab."""

    base: str
    name: str

    @property
    def state(self) -> Path:
        """The state directory; gone after ``lab down``."""
        return Path(self.base, self.name)

    @property
    def lock(self) -> Path:
        """The lock that the init holds. Beside the state directory, which comes and goes."""
        return Path(self.base, f"{self.name}.lock")

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        return self.state / "control.sock"

    @property
    def log(self) -> Path:
        """What init and daemon print."""
        return self.state / "lab.log"

    def container_log(self, namespace: str, name: str, container: str) -> Path:
        """The output of a container; of a Host the namespace is empty."""
        return self.state / "logs" / (namespace or "_hosts") / name / f"{container}.log"

    def node(self, name: str) -> Path:
        """The folder that stands for a node's own disk."""
        return self.state / "nodes" / name

    def command(self, verb: str, words: str = "") -> str:
        """Give the command line of a verb for this lab, to be shown to people."""
        name = "" if self.name == DEFAULT_NAME else f" --name {self.name}"
        return f"podgate lab {verb}{name}{' ' if words else ''}{words}"

    @property
    def volatile(self) -> Path:
        """Where the lab mounts a tmpfs that only its own processes see: volumes and scratch."""
        return self.state / "volatile"


def places(name: str, base: str | None = None) -> Places:
    """Give the paths of a lab. Raises ValueError for a name that cannot be part of a path and a device name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"lab name {name!r}: use lower-case letters, digits and '-', at most 42 characters")
    return Places(os.path.abspath(base or os.environ.get("PODGATE_LAB_DIR") or DEFAULT_BASE), name)


def folders(base: str | None = None) -> tuple[Places, ...]:
    """Give the labs that have a folder, by name: those that run, and those that were killed. Raises PermissionError."""
    root = os.path.abspath(base or os.environ.get("PODGATE_LAB_DIR") or DEFAULT_BASE)
    names = sorted(os.listdir(root)) if os.path.isdir(root) else []
    return tuple(Places(root, name) for name in names if _NAME.fullmatch(name) and os.path.isdir(Path(root, name)))


def lock(where: Places, *, wait: bool = False) -> int | None:
    """Take the lock; None when a lab of that name lives, unless ``wait``: then return when it has ended.

    The descriptor is the lock: pass it on or close it.
    """
    os.makedirs(where.base, mode=0o755, exist_ok=True)
    while True:
        descriptor = os.open(where.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        # ``lab down`` removes the file while it holds it: then this is the lock of a file that nobody finds again.
        if where.lock.exists() and os.path.samestat(os.fstat(descriptor), where.lock.stat()):
            return descriptor
        os.close(descriptor)
