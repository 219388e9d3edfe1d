"""A lab's membership in a cluster: its store, and everything that a kubelet does beside running Pods.

Here: putting the parts together and in order. Not here: the parts (kubestore.py, kubenodes.py, kuberelay.py).
Invariant: what is lost, is lost with the whole lab: no part ends by itself.
"""

import asyncio
import shutil
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

import msgspec

from podgate import __version__
from podgate.kubeapi.connection import AccessError, Limits, UnreachableError
from podgate.lab import controllers
from podgate.lab.cluster import Cluster
from podgate.lab.containers import Installation
from podgate.lab.kubeaccess import access_of, connection, port_of
from podgate.lab.kubejoin import Join
from podgate.lab.kubelogs import AUTHORITY, Logs, authority
from podgate.lab.kubenodes import Leases, Tokens, facts, node_ref, own_nodes
from podgate.lab.kuberelay import LOOK_UP, SANDBOX, Entrance, Relay, entrance
from podgate.lab.kubestore import KubeStore
from podgate.lab.kubeview import unfinished
from podgate.lab.places import Places

PATIENCE: Final = 20.0
"""Seconds in which the API must have answered when a lab starts."""

_LIMITS: Final = Limits(connect=5.0, answer=20.0)
_AGAIN: Final = 0.2


class Member:
    """One lab in a cluster.

    Args:
        joined: which cluster.
        places: the lab.
        machine: the machine's network namespace, in which the API server is reached.
        warn: told what does not work.
    """

    def __init__(self, joined: Join, places: Places, machine: int, warn: Callable[[str], None]) -> None:
        self._joined, self._machine, self._warn = joined, machine, warn
        self._places = places
        self._entrance: Entrance | None = None
        self._logs: Logs | None = None
        watching, sending = (connection(joined, _LIMITS, machine=machine) for _ in range(2))
        self.store = KubeStore(watching, sending, places.name, warn)

    async def ready(self) -> str:
        """Wait until the API has answered; give why it has not, if so."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self.store.synced.wait()
                self._entrance = await self._found()
                self._logs = await self._log_server()
        except TimeoutError:
            troubles = [trouble for trouble in self.store.troubles.values() if trouble]
            return troubles[0] if troubles else f"the API server did not answer in {PATIENCE:g} s"
        except (UnreachableError, AccessError) as error:
            return str(error)
        return ""

    async def _found(self) -> Entrance:
        """Wait for the API server to publish its own address; it does so moments after its start."""
        while True:
            answer = await self.store.send(LOOK_UP)
            found = entrance(answer.body) if answer.refused is None else None
            if found is not None:
                return found
            await asyncio.sleep(_AGAIN)

    async def _log_server(self) -> Logs | None:
        """Give what serves logs; None where the API server is elsewhere or does not say who its clients are."""
        if not ip_address(self._joined.address).is_loopback or not shutil.which("openssl"):
            self._warn("logs are not served to the API server: it is on another machine, or openssl is missing here")
            return None
        answer = await self.store.send(AUTHORITY)
        clients = authority(answer.body) if answer.refused is None else ""
        if not clients:
            self._warn("logs are not served to the API server: it does not publish who signs its clients")
            return None
        return Logs(self._places, self._machine, clients)

    def installed(self, installation: Installation) -> Installation:
        """Give what goes into every container: instead of the lab's objects, where the API is. Call ``ready`` first."""
        around = self._entrance.environment if self._entrance else {}
        return msgspec.structs.replace(installation, objects="", environment=around)

    def cluster(self, places: Places, installation: Installation) -> Cluster:
        """Give what runs Pods, set up for a cluster whose controllers live elsewhere. Call ``ready`` first."""
        outside = (self._entrance.host,) if self._entrance else ()
        return Cluster(
            places, self.store, installation,
            decide=controllers.reconcile_joined, unfinished=unfinished, outside=outside,
        )  # fmt: skip

    async def attend(self, cluster: Cluster) -> None:
        """Do a kubelet's duties until cancelled."""
        tokens = Tokens(self.store, self._warn)
        async with asyncio.TaskGroup() as group:
            group.create_task(Leases(self.store, lambda: own_nodes(cluster.objects)).run(), name="leases")
            group.create_task(tokens.run(), name="tokens")
            group.create_task(self._relay(cluster), name="relay")
            if self._logs is not None:
                group.create_task(self._logs.run(), name="logs")
            port = self._logs.port if self._logs else 0
            while True:
                await cluster.passed()
                tokens.look()
                for node in own_nodes(cluster.objects):
                    self.store.put_status(node_ref(node), facts(node, __version__, port))

    async def _relay(self, cluster: Cluster) -> None:
        if self._entrance is None:
            return
        while SANDBOX not in cluster.wire.sandboxes:
            await cluster.passed()
        access = access_of(self._joined)
        relay = Relay((self._joined.address, port_of(access)), self._machine)
        await relay.run(cluster.wire.sandboxes[SANDBOX].network, self._entrance)
