"""proxy_at_work: whether kube-proxy may work on this node, as far as processes and pages tell.

Here: processes of its name, who answers where it tells its health, whose configuration a metrics address shows.
Not here: what goes once it has stopped (predecessor.py, leftovers.py).
Invariant: what is found and cannot be judged counts as at work. What /proc does not show, as other processes in a Pod
with process ids of its own, says nothing: then the pages alone tell, also of a kube-proxy inside a process of another
name (k3s, kubelite).
"""

import asyncio
import contextlib
import errno
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from podgate.features.services.proxy_config import HEALTH_PORT, METRICS_PORT
from podgate.linux import proc
from podgate.model.frozen import Frozen
from podgate.observe.answers import SERVER
from podgate.observe.listen import Listen, parse_listen

NAME: Final = "kube-proxy"

_HEALTH: Final = (Listen("127.0.0.1", HEALTH_PORT), Listen("::1", HEALTH_PORT))
_METRICS: Final = (Listen("127.0.0.1", METRICS_PORT),)
"""Where kube-proxy tells its health and metrics unless it is told otherwise (ports.go of its own)."""

_OURS: Final = b"server: " + SERVER.encode()
"""The line that every answer of ours has in its head, whichever page it is of."""
_THEIRS: Final = b'"kubeproxy.config.k8s.io"'
"""What kube-proxy's ``/configz`` holds; ours names another group."""

_ANSWER_SECONDS: Final = 2.0
_MOST_BYTES: Final = 1 << 16
_LOOPBACK: Final = {"0.0.0.0": ("127.0.0.1",), "": ("127.0.0.1",), "::": ("127.0.0.1", "::1")}  # noqa: S104 - asked instead
_HOLDS_SECONDS: Final = 1.0
"""Several steps ask in one pass, and somebody who is silent costs each question some seconds."""
_MOST_WORDS: Final = 1 << 12
"""Bytes: no path is longer (PATH_MAX), and a process may make its words as long as it likes."""
_NOBODY: Final = (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""How a connection fails where nobody listens, or there is no such loopback address."""

_HYPERKUBE: Final = frozenset((b"kube-proxy", b"proxy"))
"""How hyperkube, one program of many names, is told to be kube-proxy."""


class Pages(Frozen, frozen=True):
    """Where kube-proxy may answer.

    Attributes:
        health: where somebody else than us counts as it.
        metrics: where it is asked who it is.
    """

    health: tuple[Listen, ...] = ()
    metrics: tuple[Listen, ...] = ()


def pages_of(health: str, metrics: str) -> Pages:
    """Give the addresses of our own options, which may be those of its file, and its usual ones."""
    return Pages(_asked(health, _HEALTH), _asked(metrics, _METRICS))


def _asked(given: str, usual: tuple[Listen, ...]) -> tuple[Listen, ...]:
    listen = parse_listen(given) if given else Listen()
    own = () if listen.path or not given else tuple(Listen(each, listen.port) for each in _addresses(listen.host))
    return tuple(dict.fromkeys((*own, *usual)))


def _addresses(host: str) -> Iterable[str]:
    return _LOOPBACK.get(host, (host,))


class ProxyAtWork:
    """Says why kube-proxy may be at work on this node; one answer serves all who ask at the same time.

    Args:
        pages: where it may answer.
        seconds: how long an answer holds.
    """

    def __init__(self, pages: Pages, seconds: float = _HOLDS_SECONDS) -> None:
        self._pages = pages
        self._seconds = seconds
        self._answer = ""
        self._answered = -math.inf
        self._asking = asyncio.Lock()

    async def __call__(self) -> str:
        """Say why; empty when nothing speaks for it."""
        clock = asyncio.get_running_loop().time
        async with self._asking:
            if clock() >= self._answered + self._seconds:
                self._answer = await at_work(self._pages)
                self._answered = clock()
            return self._answer


async def at_work(pages: Pages) -> str:
    """Say why kube-proxy may be at work on this node; empty when nothing speaks for it."""
    if reason := next(neighbours(), ""):
        return reason
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_somebody_at(listen)) for listen in pages.health]
        asked += [group.create_task(_kube_proxy_at(listen)) for listen in pages.metrics]
    return next((reason for task in asked if (reason := task.result())), "")


async def _somebody_at(listen: Listen) -> str:
    """Say who answers at a health address that is not us."""
    try:
        head = (await _said(listen, b"/readyz")).partition(b"\r\n\r\n")[0]
    except OSError as error:
        if error.errno in _NOBODY:
            return ""
        return f"it cannot be told who is at {listen}, where it tells its health ({str(error) or 'no answer'})"
    is_ours = _OURS in head.lower().split(b"\r\n")[1:]
    return "" if is_ours else f"somebody answers at {listen}, where it tells its health"


async def _kube_proxy_at(listen: Listen) -> str:
    """Say where a page says itself that it is kube-proxy's; anybody else there is no matter."""
    with contextlib.suppress(OSError):
        if _THEIRS in await _said(listen, b"/configz"):
            return f"it answers at {listen}, where it tells its metrics"
    return ""


async def _said(listen: Listen, page: bytes) -> bytes:
    """Ask for a page, and give all that is said. Raises OSError."""
    async with asyncio.timeout(_ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(listen.host, listen.port)
        try:
            writer.write(b"GET " + page + b" HTTP/1.0\r\n\r\n")
            said = b""
            while len(said) < _MOST_BYTES and (part := await reader.read(_MOST_BYTES)):
                said += part
            return said
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def neighbours(root: Path = Path("/proc")) -> Iterator[str]:
    """Say which processes are kube-proxy, or may be, and share our network namespace, as far as ``root`` tells."""
    ourselves, own = int((root / "self").readlink().name), proc.network_of(proc.SELF, str(root))
    for pid in proc.pids(str(root)):
        if pid == ourselves:
            continue
        with contextlib.suppress(OSError):
            try:
                if proc.network_of(pid, str(root)) == own and _is_kube_proxy(root / str(pid)):
                    yield f"process {pid} ({NAME}) runs on this node"
            except PermissionError:
                # Of a process with more rights than ours: it needs CAP_SYS_PTRACE (proc(5), ptrace(2)).
                if _is_kube_proxy(root / str(pid)):
                    yield f"process {pid} ({NAME}) runs, and we may not see whether it is on this node"


def _is_kube_proxy(folder: Path) -> bool:
    """Whether a process goes by its name; whoever has ended and is not waited for has no words left."""
    with (folder / "cmdline").open("rb", buffering=0) as file:
        words = file.read(_MOST_WORDS).split(b"\0")
    first = words[0].rpartition(b"/")[2]
    if first.startswith(b"python"):
        return False  # podgate under this name, whose program is a script
    if first == b"hyperkube":
        return not _HYPERKUBE.isdisjoint(words[1:2])  # a process may write over its words, and have no second one
    named = proc.name_of(folder.name, str(folder.parent)) == NAME
    return bool(words[0]) and (named or first == NAME.encode())
