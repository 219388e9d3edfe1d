"""Real clients of clouds' metadata servers, for tests: installed once, outside of the repository.

Here: which ones are pinned (tests/clients), the cache, the download by pip and npm. Not here: what they are asked.
Invariant: a folder in the cache is whole, and is named after the pins that it was made from; podgate itself never sees
these libraries.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PINS: Final = Path(__file__).parents[1] / "clients"
_UNREACHABLE: Final = (
    *("No matching distribution found", "Temporary failure in name resolution", "Connection refused"),
    *("Max retries exceeded", "ConnectTimeout", "ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "E403", "E404"),
)
"""What pip and npm say when there is no registry to ask; any other failure is one of ours."""


class UnreachableError(Exception):
    """The clients cannot be downloaded here; the message says why."""


def python_clients() -> Path:
    """Give a folder for PYTHONPATH with what requirements.txt pins. Raises UnreachableError."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
    words = ("--require-hashes", "--only-binary", ":all:", "--target")
    where = _cached("python", (PINS / "requirements.txt",), sys.implementation.cache_tag)
    with _making(where) as fresh:
        if fresh is not None:
            _run(
                "google-auth, botocore, azure-identity",
                (*pip, *words, str(fresh), "-r", str(PINS / "requirements.txt")),
            )
    return where


def node_clients() -> Path:
    """Give a folder with what package-lock.json pins below ``node_modules``. Raises UnreachableError."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise UnreachableError("node and npm are not on this machine")
    files = (PINS / "package.json", PINS / "package-lock.json")
    where = _cached("node", files)
    with _making(where) as fresh:
        if fresh is not None:
            for file in files:
                shutil.copy(file, fresh)
            words = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(fresh))
            _run("gcp-metadata", (npm, *words))
    return where


def _cached(kind: str, pins: Sequence[Path], *more: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    pinned = b"\0".join((*(pin.read_bytes() for pin in pins), *map(str.encode, more)))
    return Path(base) / "podgate" / "clients" / f"{kind}-{hashlib.sha256(pinned).hexdigest()[:16]}"


@contextmanager
def _making(where: Path) -> Iterator[Path | None]:
    """Give a folder to fill, which takes its place when the body is through; None where it has been filled before."""
    where.parent.mkdir(parents=True, exist_ok=True)
    with (where.parent / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if where.is_dir():
            yield None
            return
        fresh = where.with_name(f".{where.name}.{os.getpid()}")
        fresh.mkdir()
        try:
            yield fresh
            fresh.rename(where)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _run(what: str, command: Sequence[str]) -> None:
    began = time.monotonic()
    print(f"clients: downloading {what}", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stderr + done.stdout
    if done.returncode == 0:
        print(f"clients: done in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    elif any(word in said for word in _UNREACHABLE):
        raise UnreachableError(f"{what} cannot be downloaded here: {said.strip().splitlines()[-1]}")
    else:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")


def main() -> None:
    """Download what is not there yet, and say so where that is impossible."""
    for clients in (python_clients, node_clients):
        try:
            clients()
        except UnreachableError as error:
            print(f"clients: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
