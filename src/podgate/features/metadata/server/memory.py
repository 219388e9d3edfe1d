"""memory: how near this process is to the limit of its cgroup.

Here: the limit and the use that cannot be reclaimed, for cgroup v2 and v1. Not here: what is given up (proxy.py).
Invariant: reads only; where there is no limit, or it cannot be read, there is no pressure.
"""

import os
from pathlib import Path
from typing import Final

_ROOT: Final = "/sys/fs/cgroup"
_NO_LIMIT: Final = 1 << 60
_V2: Final = ("anon", "sock", "kernel_stack", "slab")
_V1: Final = ("total_rss",)


class Memory:
    """The memory cgroup of this process.

    Args:
        root: where cgroup file systems are mounted.
        membership: ``/proc/self/cgroup``, or another file of its form.
    """

    def __init__(self, root: str = _ROOT, membership: str = "/proc/self/cgroup") -> None:
        self._stat = ""
        self._fields: tuple[str, ...] = ()
        self.limit = 0
        for folder, limit_name, fields in _candidates(root, membership):
            limit = _number(f"{folder}/{limit_name}")
            if limit is not None:
                self._stat, self._fields = f"{folder}/memory.stat", fields
                self.limit = limit if limit < _NO_LIMIT else 0
                return

    def share(self) -> float:
        """Give the part of the limit that is in use and cannot be reclaimed; 0.0 without a limit."""
        if not self.limit:
            return 0.0
        try:
            lines = Path(self._stat).read_text(encoding="ascii").splitlines()
        except OSError:
            return 0.0
        values = dict(line.partition(" ")[::2] for line in lines)
        return sum(int(values.get(field, "0")) for field in self._fields) / self.limit


def _candidates(root: str, membership: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Give the folders where the limit may be: a container sees its own cgroup as the root, or at its full path."""
    try:
        lines = Path(membership).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found += [
                (folder, "memory.limit_in_bytes", _V1)
                for folder in (os.path.normpath(f"{root}/memory/{path}"), f"{root}/memory")
            ]
        elif number == "0":
            found += [(folder, "memory.max", _V2) for folder in (os.path.normpath(f"{root}/{path}"), root)]
    return sorted(found, key=lambda each: each[1] == "memory.max")


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return _NO_LIMIT if text == "max" else int(text)
