"""Namespaces and mounts: the system calls that Python 3.11 has no names for.

Here: unshare, setns, mount, umount, pivot_root, sethostname, and working inside a network namespace for a moment.
Not here: what a container's root looks like (lab/rootfs.py), starting processes (linux/processes.py).
Invariant: a call that the kernel refuses raises OSError with the call and its target in it; nothing is retried here.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUTS: Final = 0x0400_0000
CLONE_NEWIPC: Final = 0x0800_0000
CLONE_NEWPID: Final = 0x2000_0000
CLONE_NEWNET: Final = 0x4000_0000

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x4_0000
MNT_DETACH: Final = 0x2

_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 0x1
_SYS_MOUNT_SETATTR: Final = 442  # The same on every architecture.
_SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "s390x": 217, "ppc64le": 203}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces in ``flags`` (``CLONE_NEW…``) for fresh ones. CLONE_NEWPID takes effect in children."""
    _checked(_libc.unshare(flags), f"unshare(0x{flags:x})")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace that an open ``/proc/PID/ns/…`` stands for; ``kind`` guards against the wrong sort."""
    _checked(_libc.setns(descriptor, kind), f"setns(0x{kind:x})")


def mount(source: str, target: str, filesystem: str = "", flags: int = 0, options: str = "") -> None:
    """Attach a file system to a path. A bind takes no notice of MS_RDONLY: see ``make_read_only``."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), filesystem.encode() or None, flags, options.encode() or None
    )
    _checked(result, f"mount {filesystem or 'bind'} {source} on {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


def make_read_only(path: str, *, recursive: bool = True) -> None:
    """Make a mount, and with ``recursive`` all mounts below it, read-only.

    Before Linux 5.12 there is no call for the whole tree: then the mount itself alone is remounted.
    """
    attributes = _MountAttributes(set=_MOUNT_ATTR_RDONLY)
    size = ctypes.sizeof(attributes)
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR,
        -100,
        os.fsencode(path),
        _AT_RECURSIVE if recursive else 0,
        ctypes.byref(attributes),
        ctypes.c_size_t(size),
    )
    if result == 0:
        return
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        _checked(result, f"mount_setattr {path}")
    now = os.statvfs(path).f_flag
    flags = MS_NOSUID if now & os.ST_NOSUID else 0
    flags |= MS_NODEV if now & os.ST_NODEV else 0
    flags |= MS_NOEXEC if now & os.ST_NOEXEC else 0
    mount("none", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def umount(target: str, flags: int = 0) -> None:
    """Unmount; ``MNT_DETACH`` lets users of the mount finish."""
    _checked(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make the mount point ``new`` the root, and hang the root that was at ``old``, a folder below it."""
    number = _SYS_PIVOT_ROOT[os.uname().machine]
    _checked(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), f"pivot_root to {new}")


def sethostname(name: str) -> None:
    """Set the host name of this UTS namespace."""
    encoded = name.encode()
    _checked(_libc.sethostname(encoded, len(encoded)), f"sethostname {name}")


def open_namespace(kind: str, pid: int | str = "self") -> int:
    """Open ``/proc/PID/ns/KIND``; the descriptor keeps the namespace alive. The caller closes it."""
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def inside_network(descriptor: int | None) -> Iterator[None]:
    """Be in another network namespace for a moment: a socket or process made there stays there. None is this one.

    The calling thread alone moves. The body must not await: every task of an event loop shares the thread.
    """
    if descriptor is None:
        yield
        return
    home = open_namespace("net", "thread-self")
    try:
        setns(descriptor, CLONE_NEWNET)
        try:
            yield
        finally:
            setns(home, CLONE_NEWNET)
    finally:
        os.close(home)
