"""What the root of a container looks like, as a list of steps.

Here: the machine's folders, the container's mounts -> steps (folders, links, files, binds, overlays, mounts). Pure.
Not here: performing the steps (lab/mounts.py), what volumes hold (lab/volumes.py).
Invariant: no step can write to the machine: what comes from it is bound read-only or lies below an overlay whose upper
layer is in memory; only the lab's own folders (volumes, node folders) are bound writable.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from podgate.model.frozen import Frozen

MACHINE: Final = "/.machine"
"""Where the machine's own root hangs while the steps run; sources lie below it. Gone before the container starts."""

_SHARED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt", "nix", "gnu")
_OVERLAID: Final = ("etc", "var")
_FRESH: Final = (("run", 0o755), ("tmp", 0o1777), ("root", 0o755), ("home", 0o755), ("mnt", 0o755), ("srv", 0o755))
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)


class MachineRoot(Frozen, frozen=True):
    """What the lab reads of the machine's file system once, at start.

    Attributes:
        folders: top-level folders that are there.
        links: top-level links with where they lead, as ``("lib", "usr/lib")``.
        overlays: whether overlay file systems can be mounted.
        programs: folders that hold the interpreter, the virtual environment and the checkout, at their own paths.
    """

    folders: frozenset[str] = frozenset()
    links: tuple[tuple[str, str], ...] = ()
    programs: tuple[str, ...] = ()
    overlays: bool = True


class Folder(Frozen, frozen=True):
    """Make a folder; its missing parents get 0755."""

    path: str
    mode: int = 0o755


class Link(Frozen, frozen=True):
    """Make a symbolic link."""

    path: str
    to: str


class File(Frozen, frozen=True):
    """Write a file, replacing what is there."""

    path: str
    text: str
    mode: int = 0o644


class Bind(Frozen, frozen=True):
    """Bind a folder or file of the machine, below ``MACHINE``; the target is made to match. ``optional``: may fail."""

    source: str
    target: str
    read_only: bool = True
    optional: bool = False


class Overlay(Frozen, frozen=True):
    """Show a folder of the machine with a writable layer in memory above it."""

    lower: str
    target: str


class Mount(Frozen, frozen=True):
    """Mount a file system of the kernel; ``fallback`` is bound from the machine where that is refused."""

    filesystem: str
    target: str
    options: str = ""
    read_only: bool = False
    fallback: str = ""


class Protect(Frozen, frozen=True):
    """Make a path read-only where it stands, by binding it to itself."""

    path: str


class Seal(Frozen, frozen=True):
    """Remount a mount point read-only."""

    path: str


class Copy(Frozen, frozen=True):
    """Copy a folder of the machine; what cannot be read is left out."""

    source: str
    target: str


RootStep = Folder | Link | File | Copy | Bind | Overlay | Mount | Protect | Seal


class VolumeBind(Frozen, frozen=True):
    """A mount that the container asked for: a path of the lab or the machine, and where it shows."""

    source: str
    target: str
    read_only: bool = False


class RootRequest(Frozen, frozen=True):
    """What distinguishes one container's root from another's."""

    mounts: tuple[VolumeBind, ...] = ()
    hostname: str = "localhost"
    hosts: str = "127.0.0.1 localhost\n"
    privileged: bool = False
    read_only: bool = False
    writable_sysctls: bool = False


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Drop paths that lie inside another."""
    kept: list[str] = []
    for path in sorted(paths):
        if not any(PurePosixPath(path).is_relative_to(outer) for outer in kept):
            kept.append(path)
    return tuple(kept)


def _top(machine: MachineRoot, path: str) -> str:
    """Give the top-level folder that a path lies in, with a top-level link followed."""
    first = PurePosixPath(path).parts[1] if len(PurePosixPath(path).parts) > 1 else ""
    leads = dict(machine.links).get(first)
    return first if leads is None else PurePosixPath(leads.lstrip("/")).parts[0]


def _system(machine: MachineRoot, mounts: tuple[VolumeBind, ...]) -> tuple[list[RootStep], list[str]]:
    """Give the steps for the machine's folders, and the mount points among them."""
    opened = {_top(machine, mount.target) for mount in mounts}
    steps: list[RootStep] = [
        Link(f"/{name}", leads) for name, leads in machine.links if name in _SHARED or name in _OVERLAID
    ]
    points: list[str] = []
    for name in (*_SHARED, *_OVERLAID):
        if name not in machine.folders:
            continue
        if not machine.overlays and name in _OVERLAID:
            # /etc is small, and programs need it; /var starts out empty.
            steps.append(Copy(f"{MACHINE}/etc", "/etc") if name == "etc" else Folder(f"/{name}"))
            continue
        if machine.overlays and (name in _OVERLAID or name in opened):
            steps.append(Overlay(f"{MACHINE}/{name}", f"/{name}"))
        else:
            steps.append(Bind(f"{MACHINE}/{name}", f"/{name}"))
        points.append(f"/{name}")
    return steps, points


def _devices(privileged: bool) -> list[RootStep]:
    if privileged:
        return [Bind(f"{MACHINE}/dev", "/dev", read_only=False)]
    steps: list[RootStep] = [Mount("tmpfs", "/dev", "mode=755")]
    steps += [Bind(f"{MACHINE}/dev/{name}", f"/dev/{name}", read_only=False, optional=True) for name in _DEVICES]
    steps.append(Mount("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620", fallback=f"{MACHINE}/dev/pts"))
    steps += [Link(f"/dev/{name}", leads) for name, leads in _DEVICE_LINKS]
    steps.append(Folder("/dev/shm", 0o1777))
    steps.append(File("/dev/termination-log", "", 0o666))
    return steps


def container_root(machine: MachineRoot, request: RootRequest) -> tuple[RootStep, ...]:
    """Give the steps that fill an empty root, in order. The root itself is a tmpfs that the performer mounts."""
    system, points = _system(machine, request.mounts)
    steps: list[RootStep] = [Folder(f"/{name}", mode) for name, mode in _FRESH]
    steps += system
    steps += [
        File("/etc/hosts", request.hosts),
        File("/etc/hostname", f"{request.hostname}\n"),
        File("/etc/resolv.conf", "# The lab has no DNS server.\n"),
    ]
    for path in _outermost(machine.programs):
        if not any(PurePosixPath(path).is_relative_to(point) for point in points):
            steps.append(Bind(f"{MACHINE}{path}", path))
            points.append(path)
    steps += _devices(request.privileged)
    steps.append(Mount("proc", "/proc", fallback=f"{MACHINE}/proc"))
    steps.append(Mount("sysfs", "/sys", read_only=not request.privileged, fallback=f"{MACHINE}/sys"))
    if not request.privileged and not request.writable_sysctls:
        steps.append(Protect("/proc/sys"))
    # Outer mounts first, or they would hide the inner ones.
    for mount in sorted(request.mounts, key=lambda mount: len(PurePosixPath(mount.target).parts)):
        steps.append(Bind(f"{MACHINE}{mount.source}", mount.target, mount.read_only))
    if request.read_only:
        steps += [Seal(step.target) for step in system if isinstance(step, Overlay)]
        steps.append(Seal("/"))
    return tuple(steps)


def hosts_file(hostname: str, addresses: Iterable[str], aliases: Iterable[tuple[str, tuple[str, ...]]] = ()) -> str:
    """Give the text of /etc/hosts as a kubelet writes it."""
    lines = [
        "# Kubernetes-managed hosts file (lab).",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
    ]
    lines += [f"{address}\t{hostname}" for address in addresses]
    lines += [f"{address}\t{' '.join(names)}" for address, names in aliases]
    return "\n".join(lines) + "\n"
