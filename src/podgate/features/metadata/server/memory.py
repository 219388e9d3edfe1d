"""memory: how near this process is to the limit of its cgroup.

Here: the limit and the use that cannot be reclaimed, for cgroup v2 and v1: all but the cache of files, so sockets and
whatever else the kernel keeps for this process too. Not here: what is given up (proxy.py).
Invariant: reads only; where there is no limit, or it cannot be read, there is no pressure.
"""

import os
from typing import Final, NamedTuple

_ROOT: Final = "/sys/fs/cgroup"
_NO_LIMIT: Final = 1 << 60


class _Version(NamedTuple):
    """The files of one version, and the fields of ``memory.stat`` that are cache of files."""

    limit: str
    used: str
    cache: tuple[str, ...]


_V2: Final = _Version("memory.max", "memory.current", ("active_file", "inactive_file"))
_V1: Final = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))


class Memory:
    """The memory cgroup of this process.

    Args:
        root: where cgroup file systems are mounted.
        membership: ``/proc/self/cgroup``, or another file of its form.
    """

    def __init__(self, root: str = _ROOT, membership: str = "/proc/self/cgroup") -> None:
        self._folder, self._version = "", _V2
        self.limit = 0
        for folder, version in _candidates(root, membership):
            limit = _number(f"{folder}/{version.limit}")
            if limit is not None:
                self._folder, self._version = folder, version
                self.limit = limit if limit < _NO_LIMIT else 0
                return

    def share(self) -> float:
        """Give the part of the limit that is in use and cannot be reclaimed; 0.0 without a limit."""
        used = _number(f"{self._folder}/{self._version.used}") if self.limit else None
        if used is None:
            return 0.0
        lines = (_text(f"{self._folder}/memory.stat") or "").splitlines()
        values = dict(line.partition(" ")[::2] for line in lines)
        cache = sum(int(values.get(field, "0")) for field in self._version.cache)
        return max(0, used - cache) / self.limit


def _candidates(root: str, membership: str) -> list[tuple[str, _Version]]:
    """Give the folders where the limit may be: a container sees its own cgroup as the root, or at its full path."""
    found: list[tuple[str, _Version]] = []
    for line in (_text(membership) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found += [(folder, _V1) for folder in (os.path.normpath(f"{root}/memory/{path}"), f"{root}/memory")]
        elif number == "0":
            found += [(folder, _V2) for folder in (os.path.normpath(f"{root}/{path}"), root)]
    return sorted(found, key=lambda each: each[1] is _V2)


def _number(path: str) -> int | None:
    text = _text(path)
    if text is None:
        return None
    return _NO_LIMIT if text.strip() == "max" else int(text)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is half a MiB in this small process
            return file.read()
    except OSError:
        return None
