"""One Pod's life: volumes, init containers, sidecars, containers, probes, restarts, the end.

Here: the tasks that keep one workload as its manifest wants it. Not here: which workloads there are (lab/daemon.py),
how a container is put together (lab/containers.py) and started (lab/runner.py).
Invariant: when ``run`` returns, no process of the workload is left and its volatile volumes are gone.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from podgate.lab.cgroups import Cgroups, Group
from podgate.lab.containers import Installation, Program, command_in, program, root
from podgate.lab.limits import limits_of
from podgate.lab.placement import Volumes
from podgate.lab.places import Places
from podgate.lab.podenv import Objects, Surroundings
from podgate.lab.pods import Workload, failures_after, restart_delay, restarts
from podgate.lab.podspec import Container, Hook, Probe
from podgate.lab.podstatus import ContainerState
from podgate.lab.probes import ProbeSource, attempt, verdicts
from podgate.lab.remains import Remains
from podgate.lab.runner import StartError, start, start_in
from podgate.lab.security import ConfigFault
from podgate.lab.wire import Sandbox
from podgate.linux.namespaces import inside_network
from podgate.linux.processes import Child

_LEAST_GRACE: Final = 2.0
"""Seconds that a container has at least to end after its preStop hook."""


class Lab:
    """What all workloads share: where the lab's files are, and where warnings go."""

    def __init__(
        self, places: Places, installation: Installation, now: Callable[[], str], warn: Callable[[str], None]
    ) -> None:
        self.places = places
        self.installation = installation
        self.now = now
        self.warn = warn
        self.cgroups = Cgroups(places, warn)
        if installation.limits:
            self.cgroups.make()


class Running:
    """A workload that runs.

    Attributes:
        states: what each container does, init containers first.
        begun: when it began, as the API writes times.
    """

    def __init__(
        self, workload: Workload, sandbox: Sandbox, lab: Lab, objects: Objects, news: Callable[[], None]
    ) -> None:
        self.workload = workload
        self.begun = lab.now()
        spec = workload.pod.spec
        self.states = {c.name: ContainerState(c.name, c.image) for c in (*spec.init_containers, *spec.containers)}
        self._sandbox, self._lab, self._news = sandbox, lab, news
        self._around = Surroundings(workload.pod, objects, workload.host_ips, lab.installation.joined)
        self._volumes = Volumes(workload, lab.places)
        self._programs: dict[str, Program] = {}
        self._children: dict[str, Child] = {}
        self._remains: dict[str, Remains] = {}
        self._groups: dict[str, Group] = {}
        self._grace = float(spec.termination_grace_period_seconds)
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopping_sidecars = asyncio.Event()

    # --- what the daemon asks ---------------------------------------------------------------------------------

    @property
    def mains(self) -> tuple[ContainerState, ...]:
        """What the containers do, without init containers."""
        return tuple(self.states[container.name] for container in self.workload.pod.spec.containers)

    @property
    def inits(self) -> tuple[ContainerState, ...]:
        """What the init containers do."""
        return tuple(self.states[container.name] for container in self.workload.pod.spec.init_containers)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping.is_set()

    def update(self, objects: Objects) -> None:
        """Take newer objects: volumes of files are rewritten at once; environments at the next start."""
        self._around = msgspec.structs.replace(self._around, objects=objects)
        self._volumes.write(self._around)
        self._changed.set()

    def stop(self, grace: float | None = None) -> None:
        """Have the workload end within ``grace`` seconds (its own, if None); ``run`` returns when it has."""
        if grace is not None:
            self._grace = min(self._grace, grace)
        self._stopping.set()
        self._changed.set()

    def command(
        self, container: str, words: tuple[str, ...], more: dict[str, str], streams: tuple[int, int, int]
    ) -> Child:
        """Start a command in a running container. Raises StartError, KeyError for a container that does not run."""
        child, main = self._children[container], self._programs[container]
        group = self._groups[container]
        return start_in(command_in(main, words, more), self._sandbox.child.pid, child.pid, streams, group.entries)

    # --- the life ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live until the containers have ended for good or ``stop`` was called."""
        try:
            if await self._prepared():
                async with asyncio.TaskGroup() as group:
                    if await self._initialized(group):
                        await self._mains()
                    self._stopping_sidecars.set()
        finally:
            self._volumes.remove()
            self._news()

    async def _prepared(self) -> bool:
        """Make the volumes, waiting for objects that are not there yet; False when stopped before that."""
        self._write_sysctls()
        while not self._stopping.is_set():
            self._changed.clear()
            refused = self._volumes.prepare(self._around)
            if refused is None:
                return True
            for name in self.states:
                self._set(name, state="waiting", reason=refused.reason, message=refused.message)
            await self._changed.wait()
        return False

    def _write_sysctls(self) -> None:
        for entry in self.workload.pod.spec.security.sysctls:
            try:
                with inside_network(self._sandbox.network):
                    Path("/proc/sys", entry.name.replace(".", "/")).write_text(entry.value)
            except OSError as error:
                self._lab.warn(f"{self.workload.ref}: sysctl {entry.name}={entry.value}: {error.strerror}")

    async def _initialized(self, group: asyncio.TaskGroup) -> bool:
        """Run the init containers one after the other; False when the Pod must not go on."""
        policy = self.workload.pod.spec.restart_policy
        for container in self.workload.pod.spec.init_containers:
            if container.restart_policy == "Always":
                group.create_task(self._supervise(container, "Always", self._stopping_sidecars))
                while not self.states[container.name].started and not self._stopping.is_set():
                    self._changed.clear()
                    await self._changed.wait()
            else:
                await self._supervise(container, "Never" if policy == "Never" else "OnFailure", self._stopping)
                if self.states[container.name].exit_code != 0:
                    return False
            if self._stopping.is_set():
                return False
        return True

    async def _mains(self) -> None:
        policy = self.workload.pod.spec.restart_policy
        async with asyncio.TaskGroup() as group:
            for container in self.workload.pod.spec.containers:
                group.create_task(self._supervise(container, policy, self._stopping))

    async def _supervise(self, container: Container, policy: str, stopping: asyncio.Event) -> None:
        """Start a container, again and again as its policy says, until it ended for good."""
        loop = asyncio.get_running_loop()
        failures = 0
        while not stopping.is_set():
            began = loop.time()
            child = self._start(container)
            if child is not None:
                code = await self._attend(container, child, stopping)
                killed = await self._sweep(container)
                last = stopping.is_set() or not restarts(policy, code)
                reason = "OOMKilled" if killed else "Completed" if code == 0 else "Error"
                self._set(
                    container.name, state="terminated", reason=reason, message="", exit_code=code, end=reason,
                    for_good=last, ready=False, started=False, since=self._lab.now(), pid=0,
                )  # fmt: skip
                if last:
                    return
            failures = failures_after(failures, loop.time() - began)
            if child is not None:
                count = self.states[container.name].restarts + 1
                self._set(container.name, state="waiting", reason="CrashLoopBackOff", restarts=count)
            await self._pause(restart_delay(failures), stopping)

    async def _pause(self, seconds: float, stopping: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(seconds):
                await stopping.wait()
        except TimeoutError:
            return

    def _start(self, container: Container) -> Child | None:
        """Start a container's program; None, with the reason in its state, when that cannot be done now."""
        made = program(container, self.workload, self._around, self._lab.installation)
        if isinstance(made, ConfigFault):
            self._set(container.name, state="waiting", reason=made.reason, message=made.message)
            return None
        steps = root(container, self.workload, made.environment, self._lab.installation, self._volumes.places)
        if isinstance(steps, ConfigFault):
            self._set(container.name, state="waiting", reason=steps.reason, message=steps.message)
            return None
        ref = self.workload.ref
        log = self._lab.places.container_log(ref.namespace, ref.name, container.name)
        group = self._lab.cgroups.group(limits_of(container.resources), f"{ref.name}.{container.name}")
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            child = start(
                made, self._sandbox.child.pid, steps, str(self._lab.places.volatile), str(log), groups=group.entries
            )
        except (StartError, OSError) as error:
            group.remove()
            self._set(container.name, state="waiting", reason="RunContainerError", message=str(error))
            return None
        self._programs[container.name], self._children[container.name] = made, child
        self._remains[container.name], self._groups[container.name] = Remains(child.pid), group
        self._set(
            container.name, state="running", reason="", message="", since=self._lab.now(), pid=child.pid,
            started=container.startup_probe is None,
            ready=container.readiness_probe is None and container.startup_probe is None,
        )  # fmt: skip
        return child

    async def _attend(self, container: Container, child: Child, stopping: asyncio.Event) -> int:
        """Watch a container until it ends: probes, and the request to stop."""
        async with asyncio.TaskGroup() as group:
            watchers = [
                group.create_task(self._stop_on_request(container, child, stopping)),
                group.create_task(self._probe(container, child)),
            ]
            code = await child.wait()
            for watcher in watchers:
                watcher.cancel()
        return code

    async def _stop_on_request(self, container: Container, child: Child, stopping: asyncio.Event) -> None:
        await stopping.wait()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._grace
        hook = container.lifecycle.pre_stop if container.lifecycle else None
        if hook is not None:
            await self._before_stop(container, hook)
        # What follows the hook gets two seconds even when the hook took all there were, as from a kubelet.
        await child.stop(max(end - loop.time(), min(self._grace, _LEAST_GRACE)))

    async def _before_stop(self, container: Container, hook: Hook) -> None:
        """Do what shall be done while the container still serves; how that goes changes nothing."""
        if hook.sleep:
            await asyncio.sleep(min(hook.sleep.get("seconds", 0), self._grace))
            return
        asking = Probe(exec=hook.exec, http_get=hook.http_get, timeout_seconds=int(self._grace))
        if not await attempt(asking, container, self._place(), partial(self._command_for, container)):
            self._lab.warn(f"{self.workload.ref}: the preStop hook of container {container.name} failed")

    async def _probe(self, container: Container, child: Child) -> None:
        """Act on what probes find: a startup probe first, then liveness and readiness side by side."""
        if container.startup_probe:
            async for good in self._verdicts(container, container.startup_probe, eager=True):
                if good:
                    break
                await child.stop(self._grace)
            self._set(container.name, started=True, ready=container.readiness_probe is None)
        async with asyncio.TaskGroup() as group:
            if container.liveness_probe:
                group.create_task(self._liveness(container, container.liveness_probe, child))
            if container.readiness_probe:
                group.create_task(self._readiness(container, container.readiness_probe))

    async def _liveness(self, container: Container, probe: Probe, child: Child) -> None:
        async for good in self._verdicts(container, probe, eager=False):
            if not good:
                self._set(container.name, message="liveness probe failed")
                await child.stop(self._grace)

    async def _readiness(self, container: Container, probe: Probe) -> None:
        async for good in self._verdicts(container, probe, eager=True):
            self._set(container.name, ready=good)

    def _verdicts(self, container: Container, probe: Probe, *, eager: bool) -> Any:
        return verdicts(probe, container, self._place(), partial(self._command_for, container), eager=eager)

    def _place(self) -> ProbeSource:
        pod = self.workload.pod
        addresses = self.workload.host_ips if pod.spec.host_network else pod.status.addresses
        return ProbeSource(self._sandbox.network, (addresses or ("",))[0])

    async def _command_for(self, container: Container, words: tuple[str, ...]) -> int:
        """Run a command in a container for a probe or hook, and give its exit code; it ends when nobody waits."""
        null = os.open(os.devnull, os.O_RDWR)
        try:
            command = self.command(container.name, words, {}, (null, null, null))
        except (StartError, KeyError):
            return 127
        finally:
            os.close(null)
        try:
            return await command.wait()
        except asyncio.CancelledError:
            command.send(signal.SIGKILL)
            await asyncio.shield(command.wait())
            raise

    async def _sweep(self, container: Container) -> bool:
        """Kill what a container's main process left behind: whoever shares its mount namespace.

        Gives whether one of its processes was killed for want of memory, which container runtimes make the reason.
        """
        del self._children[container.name]
        with self._remains.pop(container.name) as remains:
            remains.kill()
        group = self._groups.pop(container.name)
        killed = group.was_killed()
        if not await group.emptied():
            self._lab.warn(f"{self.workload.ref}: the cgroup of container {container.name} still has processes")
        return killed

    def _set(self, name: str, **fields: Any) -> None:
        before = self.states[name]
        self.states[name] = msgspec.structs.replace(before, **fields)
        if self.states[name] != before:
            self._changed.set()
            self._news()
