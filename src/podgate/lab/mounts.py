"""Building a container's root in a fresh mount namespace.

Here: performing the steps of lab/rootfs.py, and reading what the machine has at the top of its file system.
Not here: which steps there are.
Invariant: everything happens in a mount namespace of the calling process's own; ``build_root`` refuses nothing
silently: a step that fails raises OSError with the step in it, unless the step itself is optional.
"""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import podgate
from podgate.lab.rootfs import (
    MACHINE,
    Bind,
    Copy,
    File,
    Folder,
    Link,
    MachineRoot,
    Mount,
    Overlay,
    Protect,
    RootStep,
    Seal,
)
from podgate.linux.namespaces import (
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    make_read_only,
    mount,
    pivot_root,
    umount,
)

_LAYERS: Final = "/.layers"
_KERNEL_FLAGS: Final = {"proc": MS_NOSUID | MS_NODEV | MS_NOEXEC, "sysfs": MS_NOSUID | MS_NODEV | MS_NOEXEC}


def read_machine() -> MachineRoot:
    """Read the machine's top-level folders and links, and where this program lies."""
    folders, links = set(), []
    for entry in os.scandir("/"):
        if entry.is_symlink():
            links.append((entry.name, os.readlink(entry.path).lstrip("/")))
        elif entry.is_dir():
            folders.add(entry.name)
    interpreter = Path(sys.executable).resolve()
    programs = {sys.prefix, sys.base_prefix, str(interpreter.parent.parent), *source_folders()}
    return MachineRoot(frozenset(folders), tuple(sorted(links)), tuple(sorted(programs - {"/", "/usr"})))


def overlays_work(scratch: str) -> bool:
    """Try to mount an overlay below a folder that only this mount namespace sees."""
    folders = {name: os.path.join(scratch, f"try-{name}") for name in ("upper", "work", "target")}
    for folder in folders.values():
        os.mkdir(folder)
    try:
        mount(
            "overlay",
            folders["target"],
            "overlay",
            0,
            f"lowerdir=/etc,upperdir={folders['upper']},workdir={folders['work']}",
        )
        umount(folders["target"])
    except OSError:
        return False
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    return True


def source_folders() -> tuple[str, ...]:
    """Give the checkout that holds this package, or the folder that it is installed in."""
    package = Path(podgate.__file__).resolve().parent
    for folder in package.parents:
        if (folder / "pyproject.toml").is_file():
            return (str(folder),)
    return (str(package.parent),)


def make_private() -> None:
    """Keep mounts of this namespace from showing outside."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def build_root(steps: tuple[RootStep, ...], scratch: str) -> None:
    """Turn this process's fresh mount namespace into a container's. ``scratch`` is any folder to start from."""
    root = tempfile.mkdtemp(dir=scratch)
    mount("root", root, "tmpfs", 0, "mode=755")
    os.umask(0o022)
    os.mkdir(root + MACHINE)
    pivot_root(root, root + MACHINE)
    os.chdir("/")
    with suppress(OSError):
        os.rmdir(MACHINE + root)
    seals = [step for step in steps if isinstance(step, Seal)]
    for step in steps:
        if not isinstance(step, Seal):
            _perform(step)
    umount(MACHINE, MNT_DETACH)
    os.rmdir(MACHINE)
    for seal in seals:
        make_read_only(seal.path, recursive=False)


def _perform(step: RootStep) -> None:
    match step:
        case Folder():
            os.makedirs(step.path, exist_ok=True)
            os.chmod(step.path, step.mode)
        case Link():
            os.symlink(step.to, step.path)
        case File():
            _write(step)
        case Copy():
            _copy(step)
        case Bind():
            _bind(step)
        case Overlay():
            _overlay(step)
        case Mount():
            _mount(step)
        case Protect():
            mount(step.path, step.path, "", MS_BIND)
            make_read_only(step.path)
        case Seal():
            raise AssertionError("seals come last")


def _write(step: File) -> None:
    with suppress(FileNotFoundError):
        os.unlink(step.path)
    os.makedirs(os.path.dirname(step.path), exist_ok=True)
    descriptor = os.open(step.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, step.mode)
    os.fchmod(descriptor, step.mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(step.text)


def _copy(step: Copy) -> None:
    with suppress(shutil.Error):  # A list of the files that could not be read.
        shutil.copytree(step.source, step.target, symlinks=True, dirs_exist_ok=True)


def _bind(step: Bind) -> None:
    try:
        if os.path.isdir(step.source):
            os.makedirs(step.target, mode=0o755, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(step.target), mode=0o755, exist_ok=True)
            if not os.path.exists(step.target):
                os.close(os.open(step.target, os.O_WRONLY | os.O_CREAT, 0o644))
        mount(step.source, step.target, "", MS_BIND | MS_REC)
        if step.read_only:
            make_read_only(step.target)
    except OSError:
        if not step.optional:
            raise


def _overlay(step: Overlay) -> None:
    os.makedirs(_LAYERS, mode=0o700, exist_ok=True)
    layers = f"{_LAYERS}{step.target}"
    os.makedirs(f"{layers}/upper", mode=0o755, exist_ok=True)
    os.makedirs(f"{layers}/work", mode=0o755, exist_ok=True)
    os.makedirs(step.target, mode=0o755, exist_ok=True)
    mount("overlay", step.target, "overlay", 0, f"lowerdir={step.lower},upperdir={layers}/upper,workdir={layers}/work")


def _mount(step: Mount) -> None:
    os.makedirs(step.target, mode=0o755, exist_ok=True)
    flags = _KERNEL_FLAGS.get(step.filesystem, MS_NOSUID)
    try:
        mount(step.filesystem, step.target, step.filesystem, flags, step.options)
    except PermissionError:
        if not step.fallback:
            raise
        mount(step.fallback, step.target, "", MS_BIND | MS_REC)
    if step.read_only:
        make_read_only(step.target)
