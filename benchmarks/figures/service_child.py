"""One process that measures: a node's Services from objects to the last rule or element in the kernel.

Here: loading, single changes, churn, reading back, in a network namespace of its own; figures as one JSON line.
Not here: which sizes and back ends, and the table (services.py, service_iptables.py).
Invariant: what is measured is what an agent does between a watch event and the kernel: decode, compile, plan, apply.
"""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from benchmarks.figures.service_objects import PODS, slice_of
from benchmarks.support import memory_kb, peak_kb
from podgate.commandline.options import settings_from
from podgate.features.services.backends import Choice, States, StatesWriter, iptables_step
from podgate.features.services.compile import Compiler
from podgate.features.services.feature import FEATURE
from podgate.features.services.iptables_names import NAMES, TABLES
from podgate.features.services.settings import Settings
from podgate.features.services.to_nftables import TABLE
from podgate.joints import Compiled, Inputs, Step
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.networking import SERVICE_CIDR
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.services import SERVICE
from podgate.model.machine import Machine
from podgate.model.snapshot import Kind, Listed, Snapshot
from podgate.model.table import Table
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.state import Binary, TableName
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State as NftablesState
from tests.support.netns import NetNamespace, netns
from tests.support.services_agent import generation_of

Backend = Literal["nftables", "nft", "legacy"]
"""What is written to: nftables, or one of the two iptables programs."""

SETTINGS: Final = settings_from(Settings, {"node_name": "node-0", "cluster_cidr": PODS})
_IN_TURNS: Final[tuple[Kind[Any], ...]] = (SERVICE, ENDPOINT_SLICE)
_IPTABLES_SECONDS: Final = 600.0
_READING_TRANSACTIONS: Final = 4
"""Reading a table back waits for others by empty transactions, which the kernel counts like all others."""


def decoded(lines: Iterable[bytes]) -> Snapshot:
    """Decode Services and slices in turns (service_objects.py) as the API's client does: by the list they come in."""
    decoders = {kind.kind: msgspec.json.Decoder(kind.decodes_to) for kind in _IN_TURNS}
    tables: dict[str, dict[ObjectRef, Any]] = {name: {} for name in decoders}
    for kind, line in zip(cycle(decoders), lines, strict=False):
        found = decoders[kind].decode(line)
        tables[kind][ObjectRef(kind, found.metadata.name, found.metadata.namespace)] = found
    listed: dict[str, Listed[Any]] = {name: Listed(Table.of(table)) for name, table in tables.items()}
    return Snapshot({**listed, NODE.kind: Listed(Table()), SERVICE_CIDR.kind: Listed(Table())})


def replaced(snapshot: Snapshot, body: bytes) -> Snapshot:
    """Take one watch event of a slice."""
    found = msgspec.json.decode(body, type=ENDPOINT_SLICE.decodes_to)
    ref = ObjectRef(ENDPOINT_SLICE.kind, found.metadata.name, found.metadata.namespace)
    slices = Listed(snapshot.objects(ENDPOINT_SLICE).updated({ref: found}))
    kinds: Mapping[str, Any] = {**snapshot.kinds, ENDPOINT_SLICE.kind: slices}
    return Snapshot(kinds)


class Node:
    """A node's proxy for IPv4, without sources and without the host."""

    def __init__(self, namespace: NetNamespace, backend: Backend = "nftables") -> None:
        self.namespace = namespace
        self.backend: Backend = backend
        self.snapshot = Snapshot()
        self._compile = _compiler(backend)
        self._steps = tuple(_steps(backend, namespace.descriptor))
        self._have = {step.name: step.empty for step in self._steps}

    async def bring(self, snapshot: Snapshot) -> bool:
        """Compile and write; say whether there was something to write."""
        self.snapshot = snapshot
        compiled = self._compile(Inputs(objects=snapshot, machine=Machine("node-0")))
        wrote = False
        for step in self._steps:
            want = step.want(compiled.states)
            plan = step.target.diff(self._have[step.name], want)
            if plan:
                await step.target.apply(plan)
            self._have[step.name] = want
            wrote = wrote or bool(plan)
        return wrote

    async def read(self) -> None:
        """Take what is in the kernel for what is there."""
        for step in self._steps:
            self._have[step.name] = await step.target.read()

    def close(self) -> None:
        """Close the sockets."""
        for step in self._steps:
            step.target.close()  # type: ignore[attr-defined]  # of these targets


def _compiler(backend: Backend) -> Callable[[Inputs], Compiled[States]]:
    if backend == "nftables":
        return FEATURE.compiler(SETTINGS)
    settings = msgspec.structs.replace(SETTINGS, backend="iptables")
    return Compiler(settings, StatesWriter(settings, Choice(backend)))


def _steps(backend: Backend, namespace: int) -> Iterator[Step[States, Any, Any]]:
    if backend == "nftables":
        target = NftablesTarget("ip", TABLE, namespace=namespace)
        yield Step("nftables/ip", target, lambda states: states.ip, NftablesState.absent("ip", TABLE))
        return
    for table in TABLES:
        yield _iptables_step(backend, table, namespace)


def _iptables_step(binary: Binary, table: TableName, namespace: int) -> Step[States, Any, Any]:
    target = IptablesTarget(
        "ip", binary, (), table=table, names=NAMES[table], seconds=_IPTABLES_SECONDS, namespace=namespace
    )
    return Step(
        iptables_step(binary, "ip", table),
        target,
        lambda states: states.iptables_of(binary, "ip", table),
        IptablesState("ip", binary, table=table),
    )


async def load(node: Node, path: Path) -> dict[str, Any]:
    """Load everything; of memory, what the process holds before and after, and its peak."""
    gc.collect()
    gc.freeze()
    before, _ = memory_kb(os.getpid())
    started, cpu = time.perf_counter(), time.process_time()
    with path.open("rb") as lines:
        snapshot = decoded(lines)
    received = time.perf_counter()
    await node.bring(snapshot)
    ended, used = time.perf_counter(), time.process_time()
    rss, _ = memory_kb(os.getpid())
    return {
        "decode": received - started,
        "load": ended - started,
        "cpu": used - cpu,
        "rss_mb": rss / 1024,
        "rss_peak_mb": peak_kb(os.getpid()) / 1024,
        "rss_before_mb": before / 1024,
    }


def _events(services: int, endpoints: int, count: int, *, add: bool = False) -> list[bytes]:
    """Give the slices of one Service after the other, with one endpoint replaced, or one more and one less in turns."""
    numbers = [each * 7919 % services for each in range(count)]
    if add:
        found = (slice_of(number, endpoints + 1 - each % 2) for each, number in enumerate(numbers))
    else:
        found = (slice_of(number, endpoints, version=1 + each % 3, moved=0) for each, number in enumerate(numbers))
    return [json.dumps(obj).encode() for obj in found]


async def changes(node: Node, bodies: Sequence[bytes]) -> list[float]:
    """Take one event after the other; give the seconds of each."""
    taken = []
    for body in bodies:
        started = time.perf_counter()
        wrote = await node.bring(replaced(node.snapshot, body))
        taken.append(time.perf_counter() - started)
        if not wrote:
            raise RuntimeError(f"an event wrote nothing: {body!r}")
    return taken


async def churn(node: Node, bodies: Sequence[bytes], rate: int) -> dict[str, Any]:
    """Take events at a rate per second; those that come while one is written are merged into the next write."""
    loop = asyncio.get_running_loop()
    done, late, writes = 0, [], 0
    started, cpu = loop.time(), time.process_time()
    while done < len(bodies):
        due = min(len(bodies), int((loop.time() - started) * rate) + 1)
        if due <= done:
            await asyncio.sleep(max(0.0, started + done / rate - loop.time()))
            continue
        snapshot = node.snapshot
        for body in bodies[done:due]:
            snapshot = replaced(snapshot, body)
        await node.bring(snapshot)
        late += [loop.time() - (started + each / rate) for each in range(done, due)]
        done, writes = due, writes + 1
    elapsed = loop.time() - started
    return {"writes": writes, "late": late, "cpu_share": (time.process_time() - cpu) / elapsed}


async def restart(node: Node) -> dict[str, Any]:
    """Do what a new process does that finds everything as it should be."""
    before = generation_of(node.namespace)
    again = Node(node.namespace, node.backend)
    started, cpu = time.perf_counter(), time.process_time()
    await again.read()
    wrote = await again.bring(node.snapshot)
    taken, used = time.perf_counter() - started, time.process_time() - cpu
    again.close()
    transactions = generation_of(node.namespace) - before
    return {"restart": taken, "cpu": used, "wrote": wrote or transactions > _READING_TRANSACTIONS}


async def measure(path: Path, services: int, endpoints: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Measure what is asked for."""
    with netns() as namespace:
        node = Node(namespace, asked.get("backend", "nftables"))
        found = await load(node, path)
        count = int(asked.get("changes", 0))
        found["replaced"] = await changes(node, _events(services, endpoints, count))
        found["resized"] = await changes(node, _events(services, endpoints, count, add=True))
        if asked.get("churn"):
            found["churn"] = await churn(node, _events(services, endpoints, int(asked["churn"])), int(asked["rate"]))
        if asked.get("restart"):
            found["restart"] = await restart(node)
        node.close()
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure and print one JSON line."""
    path, services, endpoints, asked = Path(arguments[0]), *map(int, arguments[1:3]), json.loads(arguments[3])
    print(json.dumps(asyncio.run(measure(path, services, endpoints, asked))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
