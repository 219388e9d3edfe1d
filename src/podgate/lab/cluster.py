"""The running lab: objects in, processes and network out, again and again.

Here: the loop, and what clients ask of it. Not here: the decisions (lab/pods.py, lab/controllers), the socket
(lab/daemon.py), one workload's life (lab/workload.py).
Invariant: whatever changes, objects or processes, the same pass runs over everything and starts from what is there now.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Final

from podgate.lab import controllers
from podgate.lab.containers import Installation
from podgate.lab.controllers.writes import Objects
from podgate.lab.network import HostNet, PodNet, Topology, network, only_ipv4, pod_namespace
from podgate.lab.objects import utc_now
from podgate.lab.places import Places
from podgate.lab.pods import Wanted, Workload, wanted
from podgate.lab.podstatus import condition, host_status, pod_status, settled
from podgate.lab.stores import ObjectStore
from podgate.lab.wire import Wire
from podgate.lab.workload import Lab, Running
from podgate.model.frozen import ObjectRef

Identity = tuple[str, str, str, str]
_ROUNDS: Final = 50
_STEADY: Final = 0.05
_RETRY: Final = 1.0


class Cluster:
    """Everything that runs.

    Args:
        places: the lab's files.
        store: the lab's objects.
        installation: what goes into every container.
        decide: the controllers.
        unfinished: says what else is not ready, a line each.
        outside: machines outside of the cluster that are no objects.

    Attributes:
        objects: as of the last pass.
        running: workloads by identity, those that are ending included.
        warnings: everything that was warned about, in order, once each.
    """

    def __init__(
        self,
        places: Places,
        store: ObjectStore,
        installation: Installation,
        *,
        decide: Callable[[Objects], Sequence[controllers.Write]] = controllers.reconcile,
        unfinished: Callable[[Objects], tuple[str, ...]] = lambda _objects: (),
        outside: tuple[HostNet, ...] = (),
    ) -> None:
        self.objects: Objects = {}
        self.running: dict[Identity, Running] = {}
        self.warnings: dict[str, None] = {}
        self.want = Wanted()
        self.wire = Wire(self.warn)
        self.store = store
        self.places = places
        self._has_ipv6 = os.path.exists("/proc/net/if_inet6")
        if not installation.machine.overlays:
            self.warn("overlay file systems: this machine refuses them, so containers cannot write below /usr and /var")
        self._decide, self._unfinished, self._outside = decide, unfinished, outside
        self._lab = Lab(places, installation, utc_now, self.warn)
        self._nets: dict[str, tuple[Identity, PodNet]] = {}
        self._ended: set[Identity] = set()
        self._known: set[Identity] = set()
        self._news = asyncio.Event()
        self._pass_ended = asyncio.Condition()
        self._stopping = False

    def warn(self, message: str) -> None:
        """Report something once: into the lab's log, and to clients that wait."""
        if message not in self.warnings:
            self.warnings[message] = None
            with suppress(OSError):  # The log lies on the disk that may be what this is about.
                print(f"warning: {message}", flush=True)

    async def passed(self) -> None:
        """Wait for the end of the next pass."""
        async with self._pass_ended:
            await self._pass_ended.wait()

    def news(self) -> None:
        """Have the pass run again soon."""
        self._news.set()

    async def run(self) -> None:
        """Run passes until ``stop`` was called and everything has ended."""
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._watch())
            while not (self._stopping and not self.running):
                self._news.clear()
                await self._pass(group)
                async with self._pass_ended:
                    self._pass_ended.notify_all()
                await self._news.wait()
            watcher.cancel()

    async def _watch(self) -> None:
        while True:
            await self.store.changed()
            self.news()

    def close(self) -> None:
        """Remove what ``run`` has left outside of the lab's own namespaces."""
        self._lab.cgroups.remove()

    def stop(self, grace: float) -> None:
        """End all workloads, each within ``grace`` seconds, and then ``run``."""
        self._stopping = True
        for running in self.running.values():
            running.stop(grace)
        self.news()

    async def until_ready(
        self, progress: Callable[[tuple[str, ...]], None], versions: Mapping[ObjectRef, int] = MappingProxyType({})
    ) -> None:
        """Wait until nothing is waited for; ``progress`` gets what is, each time that a pass ends.

        It must stay so for a moment: a program with a mistake runs, too, until it notices. ``versions``: objects that
        must have been seen at a resource version.
        """
        async with self._pass_ended:
            while unseen := [ref for ref, version in versions.items() if not self.store.seen(ref, version)]:
                progress(tuple(f"{ref}: the lab has not seen it yet" for ref in unseen))
                await self._pass_ended.wait()
        self.news()  # The last pass may have begun before the last of them was seen.
        while True:
            async with self._pass_ended:
                while self._news.is_set() or (waiting := self.waiting()):
                    if not self._news.is_set():
                        progress(waiting)
                    await self._pass_ended.wait()
                try:
                    async with asyncio.timeout(_STEADY):
                        await self._pass_ended.wait_for(lambda: bool(self.waiting()))
                except TimeoutError:
                    return

    async def until_gone(self, refs: Sequence[ObjectRef]) -> None:
        """Wait until none of the objects is there any more."""
        async with self._pass_ended:
            while self._news.is_set() or any(ref in self.objects for ref in refs):
                await self._pass_ended.wait()

    def waiting(self) -> tuple[str, ...]:
        """Say what is not ready, a line each."""
        lines = [*self.want.faults, *self._unfinished(self.objects)]
        clouds = (cloud.name for cloud in self.want.topology.clouds)
        lines += [f"Host/{name}: starting" for name in clouds if not self._host_ready(name)]
        for ref, value in self.objects.items():
            if ref.kind in ("Pod", "Host"):
                status = value.get("status") or {}
                phase = status.get("phase", "Pending")
                ready = any(
                    c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()
                )
                if (value.get("metadata") or {}).get("deletionTimestamp"):
                    lines.append(f"{ref}: ending")
                elif phase != "Succeeded" and not ready:
                    lines.append(f"{ref}: {_why(status) or phase}")
        return tuple(sorted(lines))

    # --- one pass -----------------------------------------------------------------------------------------------

    async def _pass(self, group: asyncio.TaskGroup) -> None:
        with self._disk_permitting():
            self.objects = self._reconciled()
        self.want = wanted(self.objects, self._lab.cgroups.enforced)
        for message in (*self.store.faults, *self.want.faults, *self.want.warnings):
            self.warn(message)
        if not self._stopping:
            self._end_unwanted()
            await self._wire_up()
            self._start_wanted(group)
        for running in self.running.values():
            with self._disk_permitting():
                running.update(self.objects)
        with self._disk_permitting():
            self._write_status()
            self._remove_deleted()

    @contextmanager
    def _disk_permitting(self) -> Iterator[None]:
        """Let a full or broken disk stop one piece of work, not the lab; the next pass tries again."""
        try:
            yield
        except OSError as error:
            self.warn(f"the lab's files could not be written: {error}")
            asyncio.get_running_loop().call_later(_RETRY, self.news)

    def _reconciled(self) -> Objects:
        """Let the controllers write until they have nothing more to say."""
        objects = self.store.load()
        if self._stopping:
            return objects
        for _ in range(_ROUNDS):
            writes = self._decide(objects)
            if not writes:
                return objects
            for write in writes:
                match write:
                    case controllers.Put():
                        self.store.put(write.obj)
                    case controllers.PutStatus():
                        self.store.put_status(write.ref, write.status)
                    case controllers.Remove():
                        self.store.delete(write.ref)
            objects = self.store.load()
        self.warn("the controllers do not settle: two of them disagree about an object")
        return objects

    def _end_unwanted(self) -> None:
        def unwanted(identity: Identity) -> bool:
            workload = self.want.workloads.get(identity)
            return workload is None or workload.pod.spec != self.running[identity].workload.pod.spec

        for identity in [identity for identity in self._ended if unwanted(identity)]:
            self._ended.discard(identity)
            del self.running[identity]
        for identity, running in self.running.items():
            if unwanted(identity):
                deleted = self.objects.get(running.workload.ref, {}).get("metadata") or {}
                running.stop(deleted.get("deletionGracePeriodSeconds"))

    async def _wire_up(self) -> None:
        """Make the network of what is wanted and of what has not ended yet."""
        nets = {pod_namespace(pod.namespace, pod.name): pod for pod in self.want.topology.pods}
        sandboxes = {workload.sandbox: identity for identity, workload in self.want.workloads.items()}
        lingering = {running.workload.sandbox: identity for identity, running in self.running.items()}
        current: dict[str, tuple[Identity, PodNet]] = {}
        for name, net in nets.items():
            current[name] = (sandboxes[name], net)
        for name, identity in lingering.items():
            if name in self._nets and self._nets[name][0] == identity != current.get(name, (None, None))[0]:
                current[name] = self._nets[name]
        restarted = frozenset(n for n, (i, _) in current.items() if n in self._nets and self._nets[n][0] != i)
        self._nets = current
        topology = self.want.topology
        pods = tuple(net for _, net in current.values())
        names = {workload.sandbox: workload.hostname for workload in self.want.workloads.values()}
        topology = Topology(topology.nodes, pods, (*topology.hosts, *self._outside), topology.clouds)
        if not self._has_ipv6:
            self.warn("IPv6: this kernel has none, so nothing in the lab gets an IPv6 address")
            topology = only_ipv4(topology)
        await self.wire.apply(network(topology), names, restarted)

    def _start_wanted(self, group: asyncio.TaskGroup) -> None:
        taken = {r.workload.sandbox for i, r in self.running.items() if not r.workload.pod.spec.host_network}
        for identity, workload in self.want.workloads.items():
            sandbox = self.wire.sandboxes.get(workload.sandbox)
            if identity in self.running or sandbox is None or workload.sandbox in taken:
                continue
            if workload.ref in self.objects and not self.store.confirmed(workload.ref):  # A cloud is no object.
                continue
            if identity not in self._known:  # The output of an earlier Pod of that name is no longer asked for.
                self._known.add(identity)
                ref = workload.ref
                log = self.places.container_log(ref.namespace, ref.name, "")
                shutil.rmtree(log.parent, ignore_errors=True)
            running = Running(workload, sandbox, self._lab, self.objects, self.news)
            self.running[identity] = running
            group.create_task(self._live(identity, running))

    async def _live(self, identity: Identity, running: Running) -> None:
        try:
            await running.run()
        except* OSError as errors:
            for error in errors.exceptions:
                self.warn(f"{running.workload.ref} stopped: {error}; delete it and apply it again")
        self._ended.add(identity)
        if self._stopping:
            del self.running[identity]
        self.news()

    def _write_status(self) -> None:
        now = utc_now()
        for identity, running in self.running.items():
            ref = running.workload.ref
            value = self.objects.get(ref)
            if value is None or (value.get("metadata") or {}).get("uid", "") != identity[3]:
                continue
            if running.stopping:  # Its end says nothing about how it went: it may be about to start anew.
                continue
            if ref.kind == "Host":
                status = host_status(running.mains, now)
            else:
                status = pod_status(running.workload, running.inits, running.mains, running.begun, now)
            self.store.put_status(ref, settled(status, value.get("status") or {}))
        for node in self.want.topology.nodes:
            ref = ObjectRef("Node", node.name)
            ready = {"conditions": [condition("Ready", node.namespace in self.wire.sandboxes, now, "LabReady")]}
            self.store.put_status(ref, settled(ready, self.objects[ref].get("status") or {}))

    def _remove_deleted(self) -> None:
        alive = {running.workload.ref for i, running in self.running.items() if i not in self._ended}
        for ref, value in self.objects.items():
            if ref.kind == "Pod" and (value.get("metadata") or {}).get("deletionTimestamp") and ref not in alive:
                self.store.remove(ref)

    # --- what clients ask ---------------------------------------------------------------------------------------

    def find(self, kind: str, namespace: str, name: str) -> Running | None:
        """Give the workload of a Pod or Host that runs."""
        for identity, running in self.running.items():
            if identity[:3] == (kind, namespace, name) and identity not in self._ended:
                return running
        return None

    def report(self) -> dict[str, Any]:
        """Say what runs, for ``lab status``."""
        pods = [_line(ref, self.objects[ref]) for ref in sorted(r for r in self.objects if r.kind == "Pod")]
        return {
            "name": self.places.name,
            "state": str(self.places.state),
            "nodes": [
                {
                    "name": node.name,
                    "addresses": [str(a) for a in node.addresses],
                    "podCIDRs": [str(c) for c in node.pod_cidrs],
                }
                for node in self.want.topology.nodes
            ],
            "hosts": [
                {"name": host.name, "addresses": [str(a) for a in host.addresses], "ready": self._host_ready(host.name)}
                for host in self.want.topology.hosts
            ],
            "pods": pods,
            "namespaces": {name: sandbox.child.pid for name, sandbox in self.wire.sandboxes.items()},
            "waiting": list(self.waiting()),
            "warnings": list(self.warnings),
        }

    def _host_ready(self, name: str) -> bool:
        running = self.find("Host", "", name)
        return running is not None and all(state.ready for state in running.mains)

    def address_of(self, target: str) -> str | None:
        """Give the primary address of ``[NS/]POD``, ``node/NAME`` or ``host/NAME``."""
        kind, _, name = target.rpartition("/")
        for node in self.want.topology.nodes:
            if (kind, name) == ("node", node.name) and node.addresses:
                return str(node.addresses[0].ip)
        for host in self.want.topology.hosts:
            if kind in ("host", "") and name == host.name and host.addresses:
                return str(host.addresses[0])
        found: Workload | None = None
        for workload in self.want.workloads.values():
            if workload.ref.kind == "Pod" and (workload.ref.namespace, workload.ref.name) == (kind or "default", name):
                found = workload
        addresses = (found.host_ips if found.pod.spec.host_network else found.pod.status.addresses) if found else ()
        return addresses[0] if addresses else None


def _line(ref: ObjectRef, value: Mapping[str, Any]) -> dict[str, Any]:
    status, spec = value.get("status") or {}, value.get("spec") or {}
    containers = status.get("containerStatuses") or []
    return {
        "namespace": ref.namespace,
        "name": ref.name,
        "node": spec.get("nodeName", ""),
        "containers": [container["name"] for container in spec.get("containers") or ()],
        "phase": status.get("phase", "Pending"),
        "ready": bool(containers) and all(container.get("ready") for container in containers),
        "restarts": sum(container.get("restartCount", 0) for container in containers),
        "addresses": [entry.get("ip") for entry in status.get("podIPs") or ()],
        "message": _why(status),
    }


def _why(status: Mapping[str, Any]) -> str:
    """Give why a Pod's containers do not run, if one says so."""
    for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        with suppress(KeyError, StopIteration):
            detail = entry["state"].get("waiting") or entry["state"].get("terminated") or {}
            if detail.get("reason") not in (None, "Completed"):
                last = (entry.get("lastState") or {}).get("terminated", {})
                how = " (OOMKilled)" if last.get("reason") == "OOMKilled" else ""
                more = detail.get("message") or (f"last exit code {last['exitCode']}{how}" if last else "")
                return f"{entry['name']}: {detail['reason']}{': ' + more if more else ''}"
    for entry in status.get("conditions") or ():
        if entry.get("status") == "False" and entry.get("message"):
            return str(entry["message"])
    return ""
