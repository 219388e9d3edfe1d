"""One process that measures: a node's Services from objects to the last element in the kernel.

Here: loading, single changes, churn, reading back, in a network namespace of its own; figures as one JSON line.
Not here: which sizes, and the table (services.py).
Invariant: what is measured is what an agent does between a watch event and the kernel: decode, compile, plan, apply.
"""

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from benchmarks.figures.service_objects import PODS, Obj, objects, slice_of
from podgate.features.services.backends import States
from podgate.features.services.feature import FEATURE
from podgate.features.services.settings import Settings
from podgate.features.services.to_nftables import TABLE
from podgate.joints import Compiled, Inputs
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import Connection
from podgate.linux.nftables import NETLINK_NETFILTER, generation
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.networking import SERVICE_CIDR
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.services import SERVICE
from podgate.model.machine import Machine
from podgate.model.options import settings_from
from podgate.model.snapshot import Kind, Listed, Snapshot
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State
from tests.support.netns import NetNamespace, netns

_KINDS: Final = {kind.kind: kind for kind in (SERVICE, ENDPOINT_SLICE)}
SETTINGS: Final = settings_from(Settings, {"node_name": "node-0", "cluster_cidr": PODS})


def decoded(lines: Sequence[bytes], kinds: Sequence[str]) -> Snapshot:
    """Decode objects as the API's client does: kinds are known by the list that they come in."""
    decoders = {name: msgspec.json.Decoder(kind.decodes_to) for name, kind in _KINDS.items()}
    tables: dict[str, dict[ObjectRef, Any]] = {name: {} for name in _KINDS}
    for line, kind in zip(lines, kinds, strict=True):
        found = decoders[kind].decode(line)
        tables[kind][ObjectRef(kind, found.metadata.name, found.metadata.namespace)] = found
    listed: dict[str, Listed[Any]] = {name: Listed(Table.of(table)) for name, table in tables.items()}
    return Snapshot({**listed, NODE.kind: Listed(Table()), SERVICE_CIDR.kind: Listed(Table())})


def replaced(snapshot: Snapshot, kind: Kind[Any], obj: Obj) -> Snapshot:
    """Take one watch event."""
    found = msgspec.json.decode(json.dumps(obj).encode(), type=kind.decodes_to)
    ref = ObjectRef(kind.kind, found.metadata.name, found.metadata.namespace)
    kinds: Mapping[str, Any] = {**snapshot.kinds, kind.kind: Listed(snapshot.objects(kind).updated({ref: found}))}
    return Snapshot(kinds)


class Node:
    """A node's proxy, without sources and without the host."""

    def __init__(self, namespace: NetNamespace) -> None:
        self.namespace = namespace
        self.target = NftablesTarget("ip", TABLE, namespace=namespace.descriptor)
        self.compile = FEATURE.compiler(SETTINGS)
        self.snapshot = Snapshot()
        self.have = State.absent("ip", TABLE)

    async def bring(self, snapshot: Snapshot) -> None:
        """Compile and write."""
        self.snapshot = snapshot
        compiled: Compiled[States] = self.compile(Inputs(objects=snapshot, machine=Machine("node-0")))
        want = compiled.states.ip
        plan = self.target.diff(self.have, want)
        if plan:
            await self.target.apply(plan)
        self.have = want

    def generation(self) -> int:
        """Give the number of the kernel's last transaction."""
        with inside_network(self.namespace.descriptor), Connection(NETLINK_NETFILTER) as connection:
            return generation(connection)


async def load(node: Node, services: int, endpoints: int, *, sticky: bool) -> dict[str, Any]:
    """Load everything."""
    all_objects = list(objects(services, endpoints, sticky=sticky))
    kinds = [each["kind"] for each in all_objects]
    lines = [json.dumps(each).encode() for each in all_objects]
    del all_objects
    gc.collect()
    gc.freeze()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu = time.perf_counter(), time.process_time()
    snapshot = decoded(lines, kinds)
    received = time.perf_counter()
    await node.bring(snapshot)
    ended = time.perf_counter()
    return {
        "decode": received - started,
        "load": ended - started,
        "cpu": time.process_time() - cpu,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rss_before_mb": before / 1024,
    }


async def changes(node: Node, services: int, endpoints: int, count: int, *, add: bool) -> list[float]:
    """Replace an endpoint, or add and remove one, one Service after the other; give the seconds of each."""
    taken = []
    for each in range(count):
        number = each * 7919 % services
        if add:
            obj = slice_of(number, endpoints + 1 - each % 2)
        else:
            obj = slice_of(number, endpoints, version=1 + each, moved=0)
        started = time.perf_counter()
        await node.bring(replaced(node.snapshot, ENDPOINT_SLICE, obj))
        taken.append(time.perf_counter() - started)
    return taken


async def churn(node: Node, services: int, endpoints: int, seconds: float, rate: int) -> dict[str, Any]:
    """Replace endpoints at a rate; changes that arrive while one is written are merged into the next write."""
    loop = asyncio.get_running_loop()
    arrivals: list[tuple[float, Obj]] = []
    number, late = 0, []
    started, cpu = loop.time(), time.process_time()
    while (now := loop.time()) < started + seconds or arrivals:
        while number < (now - started) * rate and number < seconds * rate:
            obj = slice_of(number * 7919 % services, endpoints, version=1 + number, moved=0)
            arrivals.append((started + number / rate, obj))
            number += 1
        if not arrivals:
            await asyncio.sleep(max(0.0, started + number / rate - loop.time()))
            continue
        snapshot = node.snapshot
        for _, obj in arrivals:
            snapshot = replaced(snapshot, ENDPOINT_SLICE, obj)
        await node.bring(snapshot)
        done = loop.time()
        late += [done - arrived for arrived, _ in arrivals]
        arrivals.clear()
    elapsed = loop.time() - started
    return {"changes": number, "late": late, "cpu_share": (time.process_time() - cpu) / elapsed}


async def restart(node: Node) -> dict[str, Any]:
    """Do what a new process does that finds everything as it should be."""
    before = node.generation()
    again = Node(node.namespace)
    started, cpu = time.perf_counter(), time.process_time()
    again.have = await again.target.read()
    await again.bring(node.snapshot)
    taken = time.perf_counter() - started
    # Reading takes empty transactions, which queue behind others and change nothing, but count.
    return {"restart": taken, "cpu": time.process_time() - cpu, "generations": again.generation() - before}


async def measure(services: int, endpoints: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Measure what is asked for."""
    with netns() as namespace:
        node = Node(namespace)
        found = await load(node, services, endpoints, sticky=bool(asked.get("sticky")))
        count = int(asked.get("changes", 0))
        found["replaced"] = await changes(node, services, endpoints, count, add=False)
        found["resized"] = await changes(node, services, endpoints, count, add=True)
        if asked.get("churn"):
            found["churn"] = await churn(node, services, endpoints, float(asked["churn"]), 100)
        if asked.get("restart"):
            found["restart"] = await restart(node)
        node.target.close()
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure and print one JSON line."""
    services, endpoints, asked = int(arguments[0]), int(arguments[1]), json.loads(arguments[2])
    print(json.dumps(asyncio.run(measure(services, endpoints, asked))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
