"""From a Pod that comes or goes to the sets of the policies that select it: the whole agent, as a user runs it.

Here: a node with 200 Pods and five policies that select all of them, over a folder of objects as a lab keeps it.
Not here: edits of the configured list (edits.py).
Invariant: the clock starts before the Pod's file is written, and stops at the kernel's own notification of the new
element, which is sent after the commit.
"""

import asyncio
import json
import statistics
import time
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from benchmarks.figures.edits import Kernel
from benchmarks.support import Row, cpus, milliseconds, percentile, running, say, spread
from podgate.sources.manifests import MARKER
from tests.support.netns import netns

PODS: Final = 200
POLICIES: Final = 5
_FIRST: Final = int(IPv4Network("10.16.0.0/16").network_address) + 256


def policies(folder: Path, quick: bool) -> list[Row]:
    """Measure one Pod added, again and again."""
    objects = folder / "objects"
    objects.mkdir()
    (objects / MARKER).touch()
    _put(objects, _object("v1", "Node", "node-1", spec={"podCIDR": "10.16.0.0/16"}))
    for number in range(POLICIES):
        spec = {
            "action": "Keep",
            "priority": number,
            "from": {"podSelector": {"matchLabels": {"app": "web"}}},
            "to": [{"cidr": f"20.{number}.0.0/16"}],
        }
        _put(objects, _object("podgate.dev/v1alpha1", "MasqueradePolicy", f"policy-{number}", spec=spec))
    for number in range(PODS):
        _put(objects, _pod(number))
    state = str(folder / "state")
    command = ["masquerade", "run", "--source", str(objects), "--node-name", "node-1", "--state-dir", state]
    with netns() as namespace, running(namespace, command, folder / "log", cpus()[1]) as agent:
        agent.until_ready()
        kernel = Kernel(namespace)
        try:
            return asyncio.run(_added(objects, kernel, 5 if quick else 500))
        finally:
            kernel.close()


async def _added(objects: Path, kernel: Kernel, count: int) -> list[Row]:
    """Add a Pod, wait for it, and take an older one away."""
    say(f"  {count} Pods, one by one")
    taken: list[float] = []
    for number in range(PODS, PODS + count):
        pod = _pod(number)
        started = time.perf_counter()
        _put(objects, pod)
        arrived = await kernel.arrival(IPv4Network(pod["status"]["podIP"]))
        if arrived is not None:
            taken.append(arrived - started)
        (objects / _name(_pod(number - PODS))).unlink()
    rows = [Row("Pods that arrived", f"{count} of {count}", f"{len(taken)} of {count}")]
    if taken:
        figure = f"{POLICIES} policies of {PODS} Pods: one Pod added -> kernel"
        rows.append(Row(f"{figure}, median", "", milliseconds(statistics.median(taken)), spread(taken)))
        rows.append(Row(f"{figure}, p99", "<= 50 ms", milliseconds(percentile(taken, 0.99))))
    return rows


def _object(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def _pod(number: int) -> dict[str, Any]:
    pod = _object("v1", "Pod", f"pod-{number}", spec={"nodeName": "node-1"})
    pod["metadata"] |= {"namespace": "default", "labels": {"app": "web"}}
    pod["status"] = {"phase": "Running", "podIP": str(IPv4Network(_FIRST + number).network_address)}
    return pod


def _name(obj: dict[str, Any]) -> str:
    return f"{obj['kind']}-{obj['metadata']['name']}.json"


def _put(objects: Path, obj: dict[str, Any]) -> None:
    """Rename an object into place, as a lab does."""
    made = objects / f".{_name(obj)}"
    made.write_text(json.dumps(obj))
    made.replace(objects / _name(obj))
