"""Atomic files: a file is either the old one or the new one, whatever is killed or full in between.

Here: writing one small file by a rename. Not here: locks, and who may write (one writer per file is the caller's care).
Invariant: after a crash at any system call the path holds the old bytes or the new bytes, whole; what may be left over
is one hidden file beside it, which the next write removes.
"""

import contextlib
import os

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: str, data: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Write ``data`` to ``path``, durably: file and directory are synced (fsync(2)), and a rename makes it visible.

    Args:
        path: the file. A symbolic link there is replaced, not followed. Its directory must exist.
        data: the whole new content.
        mode: permission bits, whatever the umask.
        durable: False leaves it to the kernel when bytes reach the disk: a crash of the machine may lose them all.

    Raises:
        OSError: with its errno kept (EROFS, ENOSPC, EACCES …) and a message that names the path; the old file is
            untouched then, unless only the last sync of the directory failed.
    """
    directory, name = os.path.split(os.path.abspath(path))
    fresh = os.path.join(directory, f".{name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        try:
            _write(fresh, data, mode, durable=durable)
            os.rename(fresh, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
        if durable:
            _sync_directory(directory)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}", path) from error


def _write(path: str, data: bytes, mode: int, *, durable: bool) -> None:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        os.fchmod(descriptor, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
