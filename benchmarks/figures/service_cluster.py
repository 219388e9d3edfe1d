"""A real API with many Services, and proxies that follow it, each alone on a node: loading, changes, memory.

Here: making the objects, one proxy from its start to its end, and the two ways in which it is watched. Not here: which
proxies and sizes, rows (service_rival.py, service_iptables.py); building and starting the programs (tests/support).
Invariant: all proxies of a comparison are watched in the same way; at the end the kernel must hold what was replaced,
or there is no figure.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from threading import local
from typing import Any, Final, NamedTuple, Protocol

from benchmarks.figures.service_objects import NAMESPACES, namespace, service, slice_of
from benchmarks.kube import make_objects
from benchmarks.support import counters, memory_kb, rest, say
from podgate.kubeapi.connection import Connection as ApiConnection
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, DumpInterruptedError
from podgate.linux.nftables import FAMILIES, generation
from podgate.linux.nftables_elements import SetShape, list_elements
from tests.support.agent import Agent
from tests.support.cluster import ControlPlane
from tests.support.controlplane import build
from tests.support.kube_proxy import METRICS, relay
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

ADDRESS: Final = "192.0.2.1"

_LOADING: Final = 900.0
_CHANGING: Final = 120.0
_LOOK: Final = 0.0005
"""Seconds between two looks at the number of the last transaction."""

_ASK: Final = 0.02
"""Seconds between two looks at metrics."""

CHURN: Final = 100
"""Changes per second of a churn."""

_WRITERS: Final = 4
_TRIGGERED: Final = "endpoints.kubernetes.io/last-change-trigger-time"
_WRITTEN_METADATA: Final = ("name", "namespace", "labels", "annotations")
_ADDRESS: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_IPV4: Final = '{ip_family="IPv4"}'
_WRITING: Final = f"kubeproxy_sync_proxy_rules_duration_seconds_sum{_IPV4}"
_WRITTEN: Final = f"kubeproxy_sync_proxy_rules_last_timestamp_seconds{_IPV4}"


class Watching(Protocol):
    """How one proxy is watched. Times are seconds since 1970."""

    def loaded(self, agent: Agent, services: int) -> float:
        """Wait until so many Services are in force, and give the time when that was done."""
        ...

    def rested(self, agent: Agent) -> None:
        """Wait until nothing has been written for a while."""
        ...

    def written(self, agent: Agent) -> float:
        """Wait for the first write after that, and give the time when it was done."""
        ...


class Proxy(NamedTuple):
    """One of those that are compared.

    Attributes:
        name: what it is called; up to a comma that of its node.
        start: starts it on a node, with a kubeconfig and a folder.
        watch: watches it there.
        rules: gives what the node holds, as text; once, at the end.
        version: which addresses it is to see as new ones.
    """

    name: str
    start: Callable[[NetNamespace, Path, Path], Agent]
    watch: Callable[[NetNamespace], AbstractContextManager[Watching]]
    rules: Callable[[NetNamespace], str]
    version: int


class Churned(NamedTuple):
    """What many changes a second cost.

    Attributes:
        rate: changes per second that the API took.
        share: of one core, by the proxy.
        mean: seconds from the time that a slice tells of to its rules, as the proxy counts them.
        counted: how many of them it counted.
    """

    rate: float
    share: float
    mean: float
    counted: int


class Found(NamedTuple):
    """What was measured of one; seconds, and KiB. ``written`` is what it says of its own passes up to ``loaded``."""

    loaded: float
    written: float
    replaced: list[float]
    resized: list[float]
    rss: int
    churned: Churned | None = None


# What they are fed.


@contextmanager
def api(folder: Path) -> Iterator[ControlPlane]:
    """Have an API without controllers, so that nobody but us writes EndpointSlices."""
    plane = ControlPlane(folder / "plane", build())
    try:
        for part in ("etcd", "kube-apiserver"):
            plane.start_part(part)
        spaces = [("Namespace", {"metadata": {"name": namespace(number)}}) for number in range(NAMESPACES)]
        asyncio.run(_make(plane, spaces, 0))
        yield plane
    finally:
        plane.stop()


def fill(plane: ControlPlane, first: int, last: int) -> None:
    """Make the Services from ``first`` to ``last``, not included, with two endpoints each."""
    say(f"  making {last - first:,} Services x 2")
    made = (each for number in range(first, last) for each in (service(number), slice_of(number, 2)))
    asyncio.run(_make(plane, ((each["kind"], each) for each in made), 2 * (last - first)))


async def _make(
    plane: ControlPlane, objects: Iterator[tuple[str, Any]] | Sequence[tuple[str, Any]], count: int
) -> None:
    async with ApiConnection(load_kubeconfig(str(plane.kubeconfig))) as connection:
        await make_objects(connection, iter(objects), count)


def list_seconds(plane: ControlPlane) -> float:
    """Give how long the API's own lists take a client that decodes nothing."""
    started = time.perf_counter()
    for path in ("/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"):
        status, _ = plane.get(path)
        assert status == 200, path
    return time.perf_counter() - started


@contextmanager
def _node(plane: ControlPlane, name: str) -> Iterator[NetNamespace]:
    """Have a node, and what the API says of it."""
    status = {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    code, answer = plane.request("POST", "/api/v1/nodes", node)
    assert code in (201, 409), answer
    with netns() as made:
        made.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        with relay(plane, made):
            yield made


# One proxy, from its start to its end.


def followed(plane: ControlPlane, folder: Path, proxy: Proxy, services: int, changes: int, *, churn: int = 0) -> Found:
    """Measure one proxy: its load, so many endpoints replaced, half as many added or removed, a churn of so many."""
    say(f"  {proxy.name}, {services:,} Services x 2")
    with _node(plane, proxy.name.partition(",")[0]) as node, proxy.watch(node) as watching:
        started = time.time()
        agent = proxy.start(node, plane.kubeconfig, folder)
        try:
            loaded = watching.loaded(agent, services) - started
            poll(lambda: _WRITING in agent.metrics(METRICS))
            written = agent.metrics(METRICS)[_WRITING]
            numbers = [each * 7919 % services for each in range(changes)]
            slices = [_slice(proxy, number, 2) for number in numbers]
            replaced = _changed(plane, watching, agent, slices)
            some = numbers[: max(2, changes // 2)]
            others = [_slice(proxy, number, 3 - at % 2 * 2) for at, number in enumerate(some)]
            resized = _changed(plane, watching, agent, others)
            _changed(plane, watching, agent, slices[: len(some)])
            some_more = [_slice(proxy, (each * 7919 + 1) % services, 2) for each in range(churn)]
            churned = _churned(plane, watching, agent, some_more) if churn else None
            rss, _ = memory_kb(agent.pid)
        finally:
            agent.end()
        _check(proxy.rules(node), [*slices, *some_more])
    return Found(loaded, written, replaced, resized, rss, churned)


def _slice(proxy: Proxy, number: int, endpoints: int) -> dict[str, Any]:
    return slice_of(number, endpoints, version=proxy.version, moved=0)


def _changed(plane: ControlPlane, watching: Watching, agent: Agent, slices: Sequence[Any]) -> list[float]:
    """Write one slice after the other; give the seconds from each request to the kernel."""
    taken = []
    with contextlib.closing(plane.connection()) as connection:
        for each in slices:
            watching.rested(agent)
            started = time.time()
            _put(connection, each)
            taken.append(watching.written(agent) - started)
    return taken


def _churned(plane: ControlPlane, watching: Watching, agent: Agent, slices: Sequence[Any]) -> Churned:
    """Write slices at a rate, each with the time at which it was to be written."""
    watching.rested(agent)
    before, counts, began = counters(agent.pid), _programming(agent), time.time()
    with ThreadPoolExecutor(_WRITERS) as pool, contextlib.ExitStack() as connections:
        own = local()

        def write(at: int) -> None:
            if not hasattr(own, "connection"):
                own.connection = connections.enter_context(contextlib.closing(plane.connection()))
            due = began + at / CHURN
            rest(max(0.0, due - time.time()))
            stamp = datetime.fromtimestamp(due, UTC).isoformat().replace("+00:00", "Z")
            metadata = {**slices[at]["metadata"], "annotations": {_TRIGGERED: stamp}}
            _put(own.connection, {**slices[at], "metadata": metadata})

        for _ in pool.map(write, range(len(slices))):
            pass
    elapsed = time.time() - began
    share = counters(agent.pid).since(before).running / elapsed
    watching.rested(agent)
    seconds, count = (after - earlier for after, earlier in zip(_programming(agent), counts, strict=True))
    return Churned(len(slices) / elapsed, share, seconds / count if count else 0.0, int(count))


def _programming(agent: Agent) -> tuple[float, float]:
    found = agent.metrics(METRICS)
    sums = (f"kubeproxy_network_programming_duration_seconds_{word}{_IPV4}" for word in ("sum", "count"))
    return found.get(next(sums), 0.0), found.get(next(sums), 0.0)


def _put(connection: HTTPSConnection, obj: dict[str, Any]) -> None:
    metadata = {key: obj["metadata"][key] for key in _WRITTEN_METADATA if key in obj["metadata"]}
    path = f"/apis/discovery.k8s.io/v1/namespaces/{metadata['namespace']}/endpointslices/{metadata['name']}"
    connection.request("PUT", path, json.dumps({**obj, "metadata": metadata}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    assert answer.status == 200, said


def _check(rules: str, slices: Sequence[Any]) -> None:
    """Compare with what the node holds, once for all."""
    held = set(_ADDRESS.findall(rules))
    missing = sorted({each["endpoints"][0]["addresses"][0] for each in slices} - held)
    assert not missing, f"the rules have not taken {missing[:3]}"


# How they are watched.


class Transactions:
    """By the number of the kernel's last transaction, and the map that leads from a Service's address onwards.

    Args:
        kernel: a socket in the node's network namespace.
        table: the proxy's.
        data: how many bytes the map leads to; 0 for verdicts.
        rest: seconds without a transaction after which the proxy has done with a change.
    """

    def __init__(self, kernel: Connection, table: str, data: int, rest: float) -> None:
        self._kernel = kernel
        self._table = table
        # Address, protocol and port, each in a register of four bytes.
        self._shape = SetShape(12, is_concatenation=True, data_bytes=data)
        self._rest = rest
        self._last = generation(kernel)

    def loaded(self, agent: Agent, services: int) -> float:
        deadline = time.time() + _LOADING
        while True:
            when = self._next(agent, deadline)
            with contextlib.suppress(DumpInterruptedError, FileNotFoundError):
                held = list_elements(self._kernel, FAMILIES["ip"], self._table, "service-ips", self._shape)
                if sum(1 for _ in held) >= services:
                    return when

    def rested(self, agent: Agent) -> None:  # noqa: ARG002 - another way of watching needs it
        since = time.time()
        while (now := time.time()) < since + self._rest:
            rest(0.01)
            if (number := generation(self._kernel)) != self._last:
                self._last, since = number, now

    def written(self, agent: Agent) -> float:
        return self._next(agent, time.time() + _CHANGING)

    def _next(self, agent: Agent, deadline: float) -> float:
        while True:
            number, now = generation(self._kernel), time.time()
            if number != self._last:
                self._last = number
                return now
            assert now < deadline, "no transaction came"
            assert agent.is_alive(), agent.text()[-2000:]
            rest(_LOOK)


@contextmanager
def transactions(node: NetNamespace, table: str, data: int, rest: float) -> Iterator[Watching]:
    """Watch a table of nftables."""
    with inside_network(node.descriptor):
        kernel = Connection(NETLINK_NETFILTER)
    with kernel:
        yield Transactions(kernel, table, data, rest)


class Timestamps:
    """By what a proxy says in its metrics of when its last pass ended: iptables-legacy tells nobody else.

    Args:
        rest: seconds without a pass after which the proxy has done with a change.
    """

    def __init__(self, rest: float) -> None:
        self._rest = rest
        self._last = 0.0

    def loaded(self, agent: Agent, services: int) -> float:  # noqa: ARG002 - the first pass is of all
        return self._next(agent, _LOADING)

    def rested(self, agent: Agent) -> None:
        while time.time() < max(self._last, self._asked(agent)) + self._rest:
            rest(_ASK)
            self._last = self._asked(agent)

    def written(self, agent: Agent) -> float:
        return self._next(agent, _CHANGING)

    def _next(self, agent: Agent, seconds: float) -> float:
        poll(lambda: not agent.is_alive() or self._asked(agent) > self._last, seconds)
        assert agent.is_alive(), agent.text()[-2000:]
        self._last = self._asked(agent)
        return self._last

    @staticmethod
    def _asked(agent: Agent) -> float:
        return agent.metrics(METRICS).get(_WRITTEN, 0.0)


@contextmanager
def timestamps(_node: NetNamespace, rest: float) -> Iterator[Watching]:
    """Watch metrics."""
    yield Timestamps(rest)
