"""Figures of the service proxy beside kube-proxy: both as users start them, fed by one real API server.

Here: loading, one endpoint replaced, memory; kube-proxy first, then podgate, each alone on a node. Not here: building
and starting the programs (tests/support).
Invariant: both are watched in the same way, by the number of the kernel's last transaction; at the end the kernel must
hold what was replaced, or there is no figure.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.figures.service_objects import NAMESPACES, PODS, namespace, objects, slice_of
from benchmarks.figures.services import measured
from benchmarks.kube import make_objects
from benchmarks.support import Row, installed, launch, memory_kb, milliseconds, percentile, rest, say
from podgate.kubeapi.connection import Connection as ApiConnection
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import Connection, DumpInterruptedError
from podgate.linux.nftables import FAMILIES, NETLINK_NETFILTER, generation
from podgate.linux.nftables_elements import Shape, list_elements
from tests.support.agent import Agent
from tests.support.cluster import ControlPlane
from tests.support.controlplane import build
from tests.support.kube_proxy import configuration, relay
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

ADDRESS: Final = "192.0.2.1"
METRICS: Final = 10249
"""Where both have their metrics."""

DISPATCH: Final = "service-ips"
"""The map that leads from a Service's address onwards, in the tables of both."""

_LOADING: Final = 600.0
_LOOK: Final = 0.0005
"""Seconds between two looks at the number of the last transaction."""

_WRITING: Final = 'kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv4"}'


class Proxy(NamedTuple):
    """One of the two.

    Attributes:
        table: its nftables table.
        start: starts it on a node, with a kubeconfig and a folder.
        version: which addresses it is to see as new ones.
        quiet: seconds without a transaction after which it has done with a change; kube-proxy deletes old chains a
            second later.
    """

    table: str
    start: Callable[[NetNamespace, Path, Path], Agent]
    version: int
    quiet: float


class Found(NamedTuple):
    """What was measured of one; seconds, and KiB. ``written`` is what it says of its own passes up to then."""

    loaded: float
    written: float
    replaced: list[float]
    rss: int


def rival(folder: Path, quick: bool) -> list[Row]:
    """Measure both."""
    services = 500 if quick else 10_000
    plane = ControlPlane(folder / "plane", build())
    try:
        # Without controllers: nobody but us writes EndpointSlices.
        for part in ("etcd", "kube-apiserver"):
            plane.start_part(part)
        say(f"  making {services:,} Services x 2")
        asyncio.run(_fill(plane, services))
        listed = _list_seconds(plane)
        say("  kube-proxy")
        theirs = _measured(plane, folder, KUBE_PROXY, services, 3 if quick else 7)
        say("  podgate")
        ours = _measured(plane, folder, PODGATE, services, 30 if quick else 300)
    finally:
        plane.stop()
    received = measured(services, 2)["load"]
    return _rows(f"{services:,} x 2, from the API:", ours, theirs, listed, received)


def _rows(figure: str, ours: Found, theirs: Found, listed: float, received: float) -> list[Row]:
    p50, theirs_p50 = statistics.median(ours.replaced), statistics.median(theirs.replaced)
    p99 = percentile(ours.replaced, 0.99)
    return [
        Row(
            f"{figure} exec to all rules",
            "",
            f"{ours.loaded:.2f} s",
            f"the API's own lists: {listed:.2f} s",
            f"kube-proxy {theirs.loaded:.2f} s: {_times(theirs.loaded / ours.loaded)}",
        ),
        Row(
            f"{figure} objects received to last element",
            ">= 20x",
            f"{received:.2f} s",
            f"of that, the write {ours.written:.2f} s, as the agent says",
            f"kube-proxy's own passes {theirs.written:.2f} s: {_times(theirs.written / received)}",
        ),
        Row(
            f"{figure} one endpoint replaced, request to kernel, p50",
            ">= 200x",
            milliseconds(p50),
            f"p99 {milliseconds(p99)}; {len(ours.replaced)} changes",
            f"kube-proxy {milliseconds(theirs_p50)} ({len(theirs.replaced)} changes): {_times(theirs_p50 / p50)}",
        ),
        Row(
            f"{figure} memory, RSS",
            "",
            f"{ours.rss / 1024:.0f} MB",
            "",
            f"kube-proxy {theirs.rss / 1024:.0f} MB, without nft: {_times(theirs.rss / ours.rss)}",
        ),
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"


# What they are fed.


async def _fill(plane: ControlPlane, services: int) -> None:
    spaces = [("Namespace", {"metadata": {"name": namespace(number)}}) for number in range(NAMESPACES)]
    async with ApiConnection(load_kubeconfig(str(plane.kubeconfig))) as connection:
        await make_objects(connection, iter(spaces), 0)
        await make_objects(connection, ((each["kind"], each) for each in objects(services, 2)), 2 * services)


def _list_seconds(plane: ControlPlane) -> float:
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
    assert code == 201, answer
    with netns() as made:
        made.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        with relay(plane, made):
            yield made


# The two.


def _start_kube_proxy(node: NetNamespace, kubeconfig: Path, folder: Path) -> Agent:
    file = folder / "kube-proxy.json"
    file.write_text(json.dumps(configuration("kube-proxy", "nftables", kubeconfig, clusterCIDR=PODS)))
    command = [str(build() / "kube-proxy"), "--config", str(file)]
    return Agent.start(node, command, folder / "kube-proxy.log", installed())


def _start_podgate(node: NetNamespace, kubeconfig: Path, folder: Path) -> Agent:
    command = ["services", "run", "--kubeconfig", str(kubeconfig), "--cluster-cidr", PODS, "--node-name", "podgate"]
    command += ["--state-dir", str(folder / "state"), "--conntrack-max-per-core=0"]
    return launch(node, command, folder / "podgate.log")


KUBE_PROXY: Final = Proxy("kube-proxy", _start_kube_proxy, 1, 2.5)
PODGATE: Final = Proxy("podgate-services", _start_podgate, 2, 0.1)


# How they are watched.


def _measured(plane: ControlPlane, folder: Path, proxy: Proxy, services: int, changes: int) -> Found:
    with _node(plane, "kube-proxy" if proxy is KUBE_PROXY else "podgate") as node:
        with inside_network(node.descriptor):
            watching = Connection(NETLINK_NETFILTER)
        with watching as kernel:
            agent = proxy.start(node, plane.kubeconfig, folder)
            try:
                loaded = _until_loaded(kernel, agent, proxy.table, services) - agent.started
                poll(lambda: _WRITING in agent.metrics(METRICS))
                written = agent.metrics(METRICS)[_WRITING]
                numbers = [each * 7919 % services for each in range(changes)]
                replaced = _replaced(plane, kernel, proxy, numbers)
                rss, _ = memory_kb(agent.pid)
            finally:
                agent.end()
            _check(node, proxy, numbers)
    return Found(loaded, written, replaced, rss)


def _until_loaded(kernel: Connection, agent: Agent, table: str, services: int) -> float:
    """Wait until the map that dispatches has all Services, and give the time of that transaction."""
    deadline, last = time.perf_counter() + _LOADING, generation(kernel)
    while True:
        last, when = _next(kernel, last, deadline)
        assert agent.is_alive(), agent.text()[-2000:]
        try:
            if sum(1 for _ in _dispatch(kernel, table)) >= services:
                return when
        except (DumpInterruptedError, FileNotFoundError):
            continue


def _replaced(plane: ControlPlane, kernel: Connection, proxy: Proxy, numbers: Sequence[int]) -> list[float]:
    """Replace an endpoint of one Service after the other; give the seconds from the request to the transaction."""
    taken = []
    connection = plane.connection()
    try:
        for number in numbers:
            before = _quiet(kernel, proxy.quiet)
            started = time.perf_counter()
            _put(connection, slice_of(number, 2, version=proxy.version, moved=0))
            _, when = _next(kernel, before, started + 120.0)
            taken.append(when - started)
    finally:
        connection.close()
    return taken


def _put(connection: HTTPSConnection, obj: dict[str, Any]) -> None:
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "labels")}
    path = f"/apis/discovery.k8s.io/v1/namespaces/{metadata['namespace']}/endpointslices/{metadata['name']}"
    connection.request("PUT", path, json.dumps({**obj, "metadata": metadata}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    assert answer.status == 200, said


def _next(kernel: Connection, last: int, deadline: float) -> tuple[int, float]:
    """Wait for a transaction; give its number and when it was there."""
    while True:
        number, now = generation(kernel), time.perf_counter()
        if number != last:
            return number, now
        assert now < deadline, "no transaction came"
        rest(_LOOK)


def _quiet(kernel: Connection, seconds: float) -> int:
    """Wait until there was no transaction for so long; give the number of the last."""
    last, since = generation(kernel), time.perf_counter()
    while (now := time.perf_counter()) < since + seconds:
        rest(0.01)
        if (number := generation(kernel)) != last:
            last, since = number, now
    return last


def _check(node: NetNamespace, proxy: Proxy, numbers: Sequence[int]) -> None:
    """Compare with what nft says, once for all."""
    text = node.run("nft", "list", "table", "ip", proxy.table)
    wanted = {slice_of(number, 2, version=proxy.version, moved=0)["endpoints"][0]["addresses"][0] for number in numbers}
    missing = sorted(address for address in wanted if f"{address} " not in text)
    assert not missing, f"{proxy.table} has not taken {missing[:3]}"


def _dispatch(kernel: Connection, table: str) -> Iterator[bytes]:
    """Give the keys of the map: address, protocol and port, each in a register of four bytes."""
    shape = Shape(12, is_concatenation=True, data_bytes=4 if table == PODGATE.table else 0)
    return (key for key, _ in list_elements(kernel, FAMILIES["ip"], table, DISPATCH, shape))
