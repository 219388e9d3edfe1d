"""What a source of objects must survive, against any API server behind a proxy that misbehaves.

Here: the scenarios, each a coroutine over a server. Not here: which server: a fake one (tests/sources/kube) or the real
kube-apiserver (tests/cluster).
Invariant: a scenario uses ConfigMaps whose label says that they are the test's, and only what any API server does.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.snapshot import Watch
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.kube_source import Running, running
from tests.support.poll import poll_async

Obj = dict[str, Any]
LABEL: Final = "podgate-test"


class ApiServer(Protocol):
    """An API server that a test writes to, by none of podgate's code."""

    url: str
    upstream: ssl.SSLContext | None

    def put(self, plural: str, obj: Obj) -> object:
        """Make or replace an object."""
        ...

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete one."""
        ...


def config_map(name: str, **data: str) -> Obj:
    return {"metadata": {"name": name, "namespace": "default", "labels": {LABEL: "yes"}}, "data": data}


def changes(line: str) -> bool:
    """Say whether a request asks for changes alone."""
    return "resourceVersion=" in line


def asks_version(line: str) -> bool:
    """Say whether a request asks where the store stands."""
    return "metadata.name" in line and "watch=" not in line and "limit=" not in line


def lists(proxy: ChaosProxy) -> int:
    """Count the requests that ask for everything."""
    return sum(not changes(line) and not asks_version(line) for line in proxy.lines)


@asynccontextmanager
async def watched(
    server: ApiServer, *faults: Fault, silence: float = 90.0
) -> AsyncIterator[tuple[ChaosProxy, Running]]:
    """Have two objects, a proxy with faults, and a source behind it."""
    for name in ("a", "b"):
        server.put("configmaps", config_map(name, k=name * 200))
    async with ChaosProxy(server.url, server.upstream).serving() as proxy:
        proxy.strike(*faults)
        async with running(proxy.url, Watch(CONFIG_MAP, "default", LABEL), silence=silence) as source:
            yield proxy, source


DAYS: Final = {
    "cut in the first event": Fault(after=400),
    "cut between events": Fault(after=1100),
    "closed in the first event": Fault(after=400, then="close"),
    "half-closed": Fault(after=400, then="half-close"),
    "cut again and again": Fault(after=300, times=4),
    "410 at once": Fault(status=410, reason="Expired"),
    "429 at once": Fault(status=429, reason="TooManyRequests", times=3),
    "500 at once": Fault(status=500, times=3),
    "503 at once": Fault(status=503, times=3),
    "no Status in it": Fault(status=502, reason="<html>"),
    "slow": Fault(delay=0.2),
    "one byte at a time": Fault(piece=1),
    "three bytes at a time": Fault(piece=3),
}


async def the_first_list_comes_through(server: ApiServer, fault: Fault) -> None:
    async with watched(server, fault) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        # Half a list is never shown.
        assert all(len(snapshot.objects(CONFIG_MAP)) == 2 for snapshot in source.snapshots)
        assert proxy.pending == 0


async def a_watch_goes_on_where_it_was(server: ApiServer, fault: Fault) -> None:
    await _a_watch_goes_on(server, fault._replace(asked=changes))


async def a_watch_goes_on_although_the_question_before_it_fails(server: ApiServer, fault: Fault) -> None:
    await _a_watch_goes_on(server, fault._replace(asked=asks_version))


async def _a_watch_goes_on(server: ApiServer, fault: Fault) -> None:
    async with watched(server) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        proxy.strike(fault)
        proxy.cut_all()
        server.put("configmaps", config_map("c"))
        server.remove("configmaps", "a", "default")
        await source.until(CONFIG_MAP, {"b", "c"})
        assert proxy.pending == 0
        assert all({"b"} <= {ref.name for ref in snapshot.objects(CONFIG_MAP)} for snapshot in source.snapshots)
        assert lists(proxy) == (2 if fault.status == 410 else 1), "a full list only where the version is gone"


async def a_server_that_is_gone_changes_nothing_and_costs_no_new_list(server: ApiServer) -> None:
    async with watched(server) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        shown = len(source.snapshots)
        proxy.down = True
        proxy.cut_all()
        server.put("configmaps", config_map("c"))
        await poll_async(lambda: "cannot watch ConfigMap" in source.trouble)
        assert len(source.snapshots) == shown
        proxy.down = False
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        assert lists(proxy) == 1
        await poll_async(lambda: source.trouble == "")


async def a_watch_that_falls_silent_is_noticed(server: ApiServer) -> None:
    async with watched(server, silence=0.5) as (proxy, source):
        await source.until(CONFIG_MAP, {"a", "b"})
        proxy.strike(Fault(after=0, then="silence", asked=changes))
        proxy.cut_all()
        server.put("configmaps", config_map("c"))
        await source.until(CONFIG_MAP, {"a", "b", "c"})
        assert proxy.pending == 0
