"""A command on a node itself, as over ssh: in its network namespace, with its disk.

Here: the program and root for it. Pure, but for looking which of the node's folders are there.
Not here: starting it.
Invariant: it sees the files that the node's Pods see under hostPath, at the same paths.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from podgate.lab.containers import Installation, Program
from podgate.lab.images import BIN
from podgate.lab.rootfs import RootRequest, RootStep, VolumeBind, container_root, hosts_file

_SHARED: Final = frozenset(
    ("/var", "/var/lib", "/run", "/etc", "/opt", "/usr", "/usr/lib", "/lib", "/home", "/var/run")
)
"""Folders of which a node and the machine both have a part: kube-proxy, for one, asks for /lib/modules."""


def node_program(words: tuple[str, ...], name: str, installation: Installation, more: Mapping[str, str]) -> Program:
    """Give the program for a command on a node: root with every right that the lab has."""
    python = Path(installation.python).parent
    path = f"{BIN}:{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    base = {"PATH": path, "HOME": "/root", "HOSTNAME": name, "NODE_NAME": name, **installation.variables}
    return Program(words, base | dict(more))


def _disk(folder: Path, shown: str = "") -> Iterator[VolumeBind]:
    """Give a bind for each outermost folder or file of the node that the machine does not have as well."""
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        path = f"{shown}/{entry.name}"
        if entry.is_dir() and path in _SHARED:
            yield from _disk(entry, path)
        else:
            yield VolumeBind(str(entry), path)


def node_root(folder: Path, name: str, installation: Installation) -> tuple[RootStep, ...]:
    """Give the steps for the root; ``folder`` is the node's disk."""
    mounts = [*installation.mounts, *_disk(folder)]
    return container_root(
        installation.machine,
        RootRequest(mounts=tuple(mounts), hostname=name, hosts=hosts_file(name, ()), writable_sysctls=True),
    )
