"""``./dev bench kube [--quick]``: what it costs to list and follow 60,000 objects of a Kubernetes API.

Here: a fake API server in a process of its own, a client in another, the table. Not here: figures of
the real kube-apiserver, unless it is asked for (--real).
Invariant: the client's CPU time and memory are its own: it is a fresh process that does nothing else, and garbage
collection is as in an agent.
"""

import argparse
import asyncio
import gc
import json
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.figures.kube_objects import KINDS, Obj, endpoint_slice, service
from benchmarks.parts import show
from benchmarks.support import Row, counters, cpus, memory_kb, milliseconds, percentile, pinned, say
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.credentials import load_kubeconfig
from podgate.kubeapi.frames import Decoder, LineSplitter
from podgate.kubeapi.requests import create
from podgate.linux.processes import die_with_parent
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.services import SERVICE
from podgate.model.snapshot import Snapshot, Watch
from podgate.sources.kube.source import KubeSource
from tests.support.cluster import ControlPlane
from tests.support.controlplane import build
from tests.support.fake_apiserver import FakeApiServer
from tests.support.fake_objects import Change

EACH: Final = 30_000
EDITS: Final = 400
AT_ONCE: Final = 64
"""Objects that are being made in a real API at a time; more wait there instead of here."""


# The server's process.


async def serve(each: int, streaming: str) -> None:
    """Serve the objects; on SIGUSR1 edit some slices, one every few milliseconds."""
    server = FakeApiServer()
    server.streaming = streaming
    for plural, make in (("services", service), ("endpointslices", endpoint_slice)):
        collection = server.objects.of(plural)
        for number in range(each):
            server.objects.version += 1
            obj = make(number, server.objects.version)
            collection.objects[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj
            server.encoded(obj, listed=streaming != "yes")
    server.objects.oldest = server.objects.version
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked.set)
    async with server.serving():
        print(server.url, flush=True)
        await asked.wait()
        slices = server.objects.of("endpointslices")
        for number in range(EDITS):
            server.objects.version += 1
            obj = endpoint_slice(number * 17 % each, server.objects.version, node=1)
            name = (obj["metadata"]["namespace"], obj["metadata"]["name"])
            slices.history.append(Change(server.objects.version, slices.objects[name], obj))
            slices.objects[name] = obj
            server.objects.on_change()
            await asyncio.sleep(0.004)
        await asyncio.get_running_loop().create_future()


# The real server.


async def fill(kubeconfig: str, each: int) -> None:
    """Make the objects in a real API, and the namespaces that they are in. Those that are there stay."""
    namespaces = [("Namespace", {"metadata": {"name": f"ns-{number}"}}) for number in range(300)]
    started = time.perf_counter()
    async with Connection(load_kubeconfig(kubeconfig)) as connection:
        await make_objects(connection, iter(namespaces), 0)
        await make_objects(connection, (made for number in range(each) for made in _pair(number)), 2 * each)
    say(f"  made in {time.perf_counter() - started:.0f} s")


async def make_objects(connection: Connection, left: Iterator[tuple[str, Obj]], total: int) -> None:
    """Make objects, some at a time, and tell of every tenth part."""
    done = 0

    async def work() -> None:
        nonlocal done
        for kind, obj in left:
            metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "labels") if key in obj["metadata"]}
            ref = ObjectRef(kind, metadata["name"], metadata.get("namespace", ""))
            answer = await connection.send(create(KINDS[kind], ref, {**obj, "metadata": metadata}, "bench"))
            if answer.refused and answer.refused.code != 409:
                raise RuntimeError(f"{ref}: {answer.refused}")
            done += 1
            if total and done % (total // 10) == 0:
                say(f"  {done} of {total}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def _pair(number: int) -> Iterator[tuple[str, Obj]]:
    obj = service(number, 0)
    # Each address that a server gives costs it more, the more it has given (v1.36: 3 ms of its CPU at 2,000 Services,
    # over 10 ms at 13,000; 1.6 ms without one). Without, making them all takes minutes, not an hour. In place of the
    # address stands a text as long, so that a list is as long as it would be.
    obj["spec"] |= {"clusterIP": "None"}
    del obj["spec"]["clusterIPs"]
    obj["metadata"]["labels"] |= {"in-place-of-cluster-ips": "10.96.123.123"}
    yield "Service", obj
    yield "EndpointSlice", endpoint_slice(number, 0)


def real(each: int, runs: int) -> list[Row]:
    """Measure a list of the real kube-apiserver, beside its own time."""
    folder = Path(tempfile.mkdtemp(prefix="podgate-bench-"))
    plane = ControlPlane(folder, build())
    try:
        for part in ("etcd", "kube-apiserver"):
            plane.start_part(part)
        say(f"making {2 * each} objects")
        asyncio.run(fill(str(plane.kubeconfig), each))
        server = plane.processes["kube-apiserver"].pid
        return _listing(str(plane.kubeconfig), server, "real, streamed", each, runs, cpus()[1])
    finally:
        plane.stop()
        shutil.rmtree(folder)


# The client's process.


def cpu() -> float:
    """Give the seconds that this process has been on a CPU."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss() -> int:
    """Give the resident memory of this process in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) >> 10
    raise RuntimeError("no VmRSS")


async def list_all(url: str, each: int, *, edits: bool) -> None:
    """List, say what it cost, then follow the edits, and say that."""
    access = load_kubeconfig(url) if url.startswith("/") else Access(url)
    source = KubeSource(Connection(access), (Watch(SERVICE), Watch(ENDPOINT_SLICE)))
    base, before, started, given = rss(), cpu(), time.perf_counter(), 0
    at = before
    said: dict[str, Any] = {}
    async for snapshot in source.values():
        given += 1
        if given == 1:
            said = {"cpu": cpu() - before, "wall": time.perf_counter() - started, "base": base,
                    "objects": len(snapshot.objects(SERVICE)) + len(snapshot.objects(ENDPOINT_SLICE))}  # fmt: skip
            gc.collect()
            gc.freeze()
            said |= {"rss": rss(), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}
            print(json.dumps(said), flush=True)
            if not edits:
                return
            at = cpu()
        elif edited(snapshot, each):
            print(json.dumps({"snapshots": given - 1, "cpu": cpu() - at}), flush=True)
            return


def edited(snapshot: Snapshot, each: int) -> bool:
    """Say whether the last edit has arrived."""
    number = (EDITS - 1) * 17 % each
    slices: Any = snapshot.objects(ENDPOINT_SLICE)
    obj = slices[ObjectRef("EndpointSlice", f"service-{number}-x7k2p", f"ns-{number % 300}")]
    return bool(obj.endpoints[0].node_name == f"node-{(number + 1) % 500}")


def one_event(each: int, runs: int) -> list[float]:
    """Time the way of one frame, from its bytes to a new snapshot, with full tables."""
    source = KubeSource(Connection(Access("http://127.0.0.1:1")), (Watch(SERVICE), Watch(ENDPOINT_SLICE)))
    for watching, make in zip(source.watchings, (service, endpoint_slice), strict=True):
        items = b",".join(json.dumps(make(number, 7)).encode() for number in range(each))
        watching.page(
            Decoder(watching.watch.kind).page(b'{"metadata":{"resourceVersion":"7"},"items":[' + items + b"]}")
        )
    source.snapshot()
    gc.collect()
    gc.freeze()
    lines, decoder, seconds = LineSplitter(), Decoder(ENDPOINT_SLICE), []
    for number in range(runs):
        obj = endpoint_slice(number * 17 % each, 8 + number, node=1)
        frame = json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n"
        started = time.perf_counter()
        changed = source.watchings[1].batch(decoder.batch(lines.feed(frame)))
        source.snapshot()
        seconds.append(time.perf_counter() - started)
        if not changed:
            raise RuntimeError("an edit changed nothing")
    return seconds


# The table.


class Served(NamedTuple):
    """A server that runs."""

    url: str
    pid: int


@contextmanager
def served(each: int, streaming: str, cpu_number: int) -> Iterator[Served]:
    """Run a server for the body."""
    with pinned(cpu_number):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kube", "--serve", streaming, "--each", str(each)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one thread
        )
    try:
        url = process.stdout.readline().strip() if process.stdout else ""
        yield Served(url, process.pid)
    finally:
        process.terminate()
        process.wait()


def client(url: str, each: int, *, edits: bool, cpu_number: int) -> subprocess.Popen[str]:
    """Start a client."""
    with pinned(cpu_number):
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.kube",
                "--client",
                url,
                "--each",
                str(each),
                *(["--edits"] if edits else []),
            ],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one thread
        )


def listing(each: int, streaming: str, what: str, runs: int) -> list[Row]:
    """Measure a list, several times, against one server."""
    theirs_cpu, mine_cpu = cpus()
    with served(each, streaming, theirs_cpu) as server:
        return _listing(server.url, server.pid, what, each, runs, mine_cpu)


def _listing(url: str, server: int, what: str, each: int, runs: int, cpu_number: int) -> list[Row]:  # noqa: PLR0917
    ours, theirs, walls, found = [], [], [], {}
    for _ in range(runs):
        before = counters(server).running
        found = json.loads(client(url, each, edits=False, cpu_number=cpu_number).communicate(timeout=120)[0])
        ours.append(found["cpu"])
        theirs.append(counters(server).running - before)
        walls.append(found["wall"])
    memory = memory_kb(server)[0] >> 10
    spread = f"{min(ours):.2f} - {max(ours):.2f} s"
    beside = f"the server's own: {statistics.median(theirs):.2f} s, {memory} MiB"
    return [
        Row(f"{found['objects']} objects, {what}: CPU time", "<= 3 s", f"{statistics.median(ours):.2f} s", spread,
            beside),
        Row("  until the first snapshot", "", f"{statistics.median(walls):.2f} s"),
        Row("  resident afterwards", "<= 200 MiB", f"{found['rss']} MiB", f"peak {found['peak']} MiB",
            f"before the list {found['base']} MiB"),
    ]  # fmt: skip


def following(each: int) -> Row:
    """Measure edits that arrive one by one over a socket."""
    theirs_cpu, mine_cpu = cpus()
    with served(each, "yes", theirs_cpu) as server:
        process = client(server.url, each, edits=True, cpu_number=mine_cpu)
        if process.stdout is None:
            raise RuntimeError("the client has no output")
        process.stdout.readline()
        subprocess.run(["kill", "-USR1", str(server.pid)], check=True)
        found = json.loads(process.communicate(timeout=120)[0])
    return Row(
        "one event over the socket: CPU time", "", milliseconds(found["cpu"] / EDITS), f"{found['snapshots']} snapshots"
    )


def main(arguments: list[str]) -> int:
    """Measure and print; give 0 when it ran, whatever the figures say."""
    parser = argparse.ArgumentParser(prog="./dev bench kube", description="Figures of the Kubernetes API as a source.")
    parser.add_argument("--quick", action="store_true", help="one run of each, to see that it works")
    told = f"a real API server too, with N Services and N slices (default: {EACH}; making them takes minutes)"
    parser.add_argument("--real", type=int, nargs="?", const=EACH, metavar="N", help=told)
    parser.add_argument("--only-real", action="store_true", help="leave out the fake server")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--edits", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--each", type=int, default=EACH, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.serve:
        asyncio.run(serve(asked.each, asked.serve))
        return 0
    if asked.client:
        asyncio.run(list_all(asked.client, asked.each, edits=asked.edits))
        return 0
    runs = 1 if asked.quick else 3
    rows: list[Row] = []
    if asked.real:
        rows += real(asked.real, runs)
        if asked.only_real:
            return show(rows, quick=asked.quick)
    for streaming, what in (("yes", "streamed"), ("no progress", "in pages")):
        say(f"measuring: {what}")
        rows += listing(asked.each, streaming, what, runs)
    say("measuring: events")
    seconds = one_event(asked.each, 50 if asked.quick else 1000)
    rows.append(Row("one event, bytes to a new snapshot", "<= 0.3 ms", milliseconds(statistics.median(seconds)),
                    f"p99 {milliseconds(percentile(seconds, 0.99))}"))  # fmt: skip
    rows.append(following(asked.each))
    return show(rows, quick=asked.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
