"""What a kubelet tells of its nodes and fetches for its Pods, as long as the lab runs.

Here: leases, what a Node says of itself, the tokens of service accounts. Not here: Pods' status (lab/cluster.py), the
addresses of Nodes (lab/controllers/nodes.py).
Invariant: a node's lease is renewed whatever else goes wrong; a token is replaced when a fifth of its life is left, as
kubelets do.
"""

import asyncio
import datetime as dt
import os
import platform
from collections.abc import Callable
from typing import Any, Final

import msgspec

from podgate.kubeapi.connection import AccessError, UnreachableError
from podgate.lab.controllers.writes import Objects
from podgate.lab.kinds import Object
from podgate.lab.kubekinds import kind_named
from podgate.lab.kubestore import KubeStore
from podgate.lab.kubeview import tokens_wanted
from podgate.lab.kubewrites import TokenKey, lease, token
from podgate.model.frozen import ObjectRef

RENEW_EVERY: Final = 10.0
"""Seconds between two renewals of a lease (KEP-589)."""

_LEASE: Final = kind_named("Lease")
_ACCOUNT: Final = kind_named("ServiceAccount")
_RETRY: Final = 1.0
_RENEWED_AT: Final = 0.8
_LOOK_EVERY: Final = 5.0


def facts(node: Object, version: str, port: int) -> dict[str, Any]:
    """Give what a Node says of itself beside addresses and conditions.

    Args:
        node: the Node.
        version: podgate's, where a kubelet has its own.
        port: where its logs are served, on this machine's loopback; 0 for nowhere.
    """
    kilobytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    room = {"cpu": str(os.cpu_count() or 1), "memory": f"{kilobytes}Ki", "pods": "250"}
    status: dict[str, Any] = {
        "capacity": room,
        "allocatable": room,
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "containerRuntimeVersion": f"podgate-lab://{version}",
            "kernelVersion": platform.release(), "osImage": "podgate lab", "kubeletVersion": f"v{version}",
            "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        },
    }  # fmt: skip
    if port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
        addresses = (node.get("status") or {}).get("addresses") or []
        if not any(one["type"] == "InternalDNS" for one in addresses):
            status["addresses"] = [*addresses, {"type": "InternalDNS", "address": "localhost"}]
    return status


class Leases:
    """Keeps the leases of the lab's nodes."""

    def __init__(self, store: KubeStore, nodes: Callable[[], list[Object]]) -> None:
        self._store = store
        self._nodes = nodes

    async def run(self) -> None:
        """Renew until cancelled. A node that appears gets its lease within a second."""
        renewed: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            for node in self._nodes():
                uid = node["metadata"]["uid"]
                if loop.time() - renewed.get(uid, -RENEW_EVERY) >= RENEW_EVERY and await self._renew(node):
                    renewed[uid] = loop.time()
            await asyncio.sleep(_RETRY)

    async def _renew(self, node: Object) -> bool:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            return (await self._store.send(lease(_LEASE, node, now))).refused is None
        except (UnreachableError, AccessError):
            return False  # The watches say it already.


class Tokens:
    """Fetches the tokens that Pods mount, and fresh ones in time."""

    def __init__(self, store: KubeStore, warn: Callable[[str], None]) -> None:
        self._store = store
        self._warn = warn
        self._until: dict[TokenKey, float] = {}
        self._look = asyncio.Event()

    def look(self) -> None:
        """Have it look for Pods that need a token."""
        self._look.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            wanted = tokens_wanted(self._store.load())
            for key in self._until.keys() - wanted:
                del self._until[key]
                self._store.view.token(key, "")
            missed = False
            for key in sorted(wanted):
                if self._until.get(key, 0.0) <= loop.time():
                    missed |= not await self._fetch(key, loop.time())
            await self._pause(_RETRY if missed else _LOOK_EVERY)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._look.wait()
        except TimeoutError:
            return
        self._look.clear()

    async def _fetch(self, key: TokenKey, now: float) -> bool:
        try:
            answer = await self._store.send(token(_ACCOUNT, key))
        except (UnreachableError, AccessError) as error:
            self._warn(str(error))
            return False
        if answer.refused is not None:
            if answer.refused.code != 404:  # A Pod that is gone meanwhile, or an account that comes yet.
                self._warn(f"a token of {key.account} for Pod/{key.namespace}/{key.pod}: {answer.refused}")
            return False
        status = msgspec.json.decode(answer.body, type=dict[str, Any]).get("status") or {}
        self._store.view.token(key, str(status.get("token", "")))
        self._until[key] = now + _RENEWED_AT * key.seconds
        self._store.news()
        return True


def own_nodes(objects: Objects) -> list[Object]:
    """Give the Nodes among a lab's objects, by name."""
    return [objects[ref] for ref in sorted(ref for ref in objects if ref.kind == "Node")]


def node_ref(node: Object) -> ObjectRef:
    """Give a Node's reference."""
    return ObjectRef("Node", node["metadata"]["name"])
