"""The lab's daemon: answers clients, and runs the cluster until it is told to stop.

Here: the control socket, commands in containers, connections into the lab, start and stop.
Not here: what runs (lab/cluster.py), process 1 (lab/init.py), the client's side (lab/client.py).
Invariant: a client that hangs up leaves no process behind, and one client's failure never ends another's.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import podgate
from podgate.lab.applying import refusal
from podgate.lab.cluster import Cluster
from podgate.lab.containers import Installation
from podgate.lab.images import ENTRIES, entry_script
from podgate.lab.kinds import ref_of
from podgate.lab.kubejoin import Join, read_note
from podgate.lab.messages import (
    Answer,
    Apply,
    Connect,
    Delete,
    Describe,
    Done,
    Execute,
    Failed,
    Progress,
    Request,
    Signal,
    Stop,
    Wait,
    send,
    socket_address,
    taken,
)
from podgate.lab.mounts import overlays_work, read_machine
from podgate.lab.network import ROUTER
from podgate.lab.nodeshell import node_program, node_root
from podgate.lab.objects import Store
from podgate.lab.places import Places
from podgate.lab.probes import ProbeSource, connected
from podgate.lab.runner import StartError, start_apart
from podgate.linux.namespaces import mount
from podgate.linux.processes import Child
from podgate.linux.waiting import readable
from podgate.model.frozen import ObjectRef

_CONNECT_TIMEOUT = 5.0
_ACCEPT_AGAIN = 0.2
"""Seconds after which clients are taken again when the machine could not."""


class Ending:
    """Whether the lab shall end, and how many seconds its Pods have for it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.grace = 2.0

    def ask(self, grace: float = 2.0) -> None:
        """Have the lab end."""
        self.grace = grace
        self.asked.set()


class ControlSocket:
    """The control socket and those who use it."""

    def __init__(
        self, cluster: Cluster, installation: Installation, listener: socket.socket, end: Ending, store: Store | None
    ) -> None:
        self._cluster, self._installation, self._listener, self._end = cluster, installation, listener, end
        self._store = store

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    connection, _ = await loop.sock_accept(self._listener)
                except OSError as error:  # No descriptor or memory is left, or the client is gone already.
                    print(f"warning: a client cannot be taken: {error.strerror}", flush=True)
                    await asyncio.sleep(_ACCEPT_AGAIN)
                    continue
                group.create_task(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                message = await received(connection)
                if message is not None:
                    await self._answer(connection, *message)
            except* (BrokenPipeError, ConnectionResetError):
                pass  # The client went away; whoever worked for it has cleaned up.
            except* (msgspec.DecodeError, OSError, ValueError) as errors:  # ValueError: a zero byte in a word or path.
                reasons = ", ".join(str(error) for error in errors.exceptions)
                with suppress(OSError):
                    send(connection, Failed(f"the lab's daemon could not do it: {reasons}"))

    async def _answer(self, connection: socket.socket, request: Request, descriptors: list[int]) -> None:
        try:
            match request:
                case Apply():
                    send(connection, self._apply(descriptors))
                case Delete():
                    await self._delete(connection, request)
                case Wait():
                    await self._wait(connection, request)
                case Execute():
                    await self._execute(connection, request, descriptors)
                case Connect():
                    await self._connect(connection, request)
                case Describe():
                    send(connection, Done(value=self._cluster.report()))
                case Stop():
                    send(connection, Done())
                    self._end.ask(request.grace)
                case Signal():
                    send(connection, Failed("no command runs on this connection"))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _apply(self, descriptors: list[int]) -> Answer:
        """Store the objects in the file; what became of each is a line."""
        if not descriptors:
            return Failed("no file with objects came along", 2)
        with os.fdopen(os.dup(descriptors[0]), "rb") as file:
            file.seek(0)
            objects = msgspec.json.decode(file.read(), type=list[dict[str, Any]])
        store = self._store
        if store is None:
            return Failed("the lab has joined a cluster: objects are applied to the API server", 2)
        before = store.load()
        if trouble := refusal(before, objects):
            return Failed(trouble, 2)
        for obj in objects:
            try:
                store.apply(obj)
            except KeyError as error:  # Its definition went away between the client's check and now.
                return Failed(str(error.args[0]), 2)
        after = store.load()
        lines: list[str] = []
        for obj in objects:
            ref = ref_of(obj)
            ref = ref if ref in after else ObjectRef(ref.kind, ref.name, ref.namespace or "default")
            word = "created" if ref not in before else "unchanged" if before[ref] == after.get(ref) else "configured"
            lines.append(f"{ref} {word}")
        self._cluster.news()
        return Done(text=tuple(lines))

    async def _delete(self, connection: socket.socket, request: Delete) -> None:
        refs = [ObjectRef(kind, name, namespace) for kind, namespace, name in request.refs]
        missing = [str(ref) for ref in refs if not self._cluster.store.delete(ref)]
        self._cluster.news()
        if missing:
            send(connection, Failed(f"not found: {', '.join(missing)}"))
            return
        if request.wait:
            await self._unless_hangup(connection, self._cluster.until_gone(refs))
        send(connection, Done())

    async def _unless_hangup(self, connection: socket.socket, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work; False when the client went away first."""
        async with asyncio.TaskGroup() as group:
            hangup, done = group.create_task(received(connection)), group.create_task(work)
            await asyncio.wait({hangup, done}, return_when=asyncio.FIRST_COMPLETED)
            hangup.cancel()
            return not done.cancel()

    async def _wait(self, connection: socket.socket, request: Wait) -> None:
        told = 0
        versions = {ObjectRef(kind, name, namespace): version for kind, namespace, name, version in request.versions}

        def progress(waiting: tuple[str, ...]) -> None:
            nonlocal told
            warnings = tuple(self._cluster.warnings)[told:]
            told += len(warnings)
            with suppress(BlockingIOError):  # A slow reader misses what the next one says again.
                send(connection, Progress(waiting, warnings))

        if await self._unless_hangup(connection, self._cluster.until_ready(progress, versions)):
            progress(())
            send(connection, Done())

    async def _execute(self, connection: socket.socket, request: Execute, descriptors: list[int]) -> None:
        if len(descriptors) != 3:
            send(connection, Failed("a command needs three standard streams", 2))
            return
        try:
            child = self._started(request, (descriptors[0], descriptors[1], descriptors[2]))
        except StartError as error:
            send(connection, Failed(str(error), 126))
            return
        if isinstance(child, Failed):
            send(connection, child)
            return
        async with asyncio.TaskGroup() as group:
            relay = group.create_task(self._relay(connection, child))
            code = await child.wait()
            relay.cancel()
        send(connection, Done(code))

    def _started(self, request: Execute, streams: tuple[int, int, int]) -> Child | Failed:
        more = {"TERM": request.terminal} if request.terminal else {}
        if request.kind == "node":
            sandbox = self._cluster.wire.sandboxes.get(f"node/{request.name}")
            if sandbox is None:
                return Failed(f"node {request.name} does not run; see `{self._cluster.places.command('status')}`")
            shell = node_program(request.words, request.name, self._installation, more)
            folder = self._cluster.places.node(request.name)
            root = node_root(folder, request.name, self._installation)
            return start_apart(shell, sandbox.child.pid, root, str(self._cluster.places.volatile), streams)
        kind = "Host" if request.kind == "host" else "Pod"
        running = self._cluster.find(kind, request.namespace, request.name)
        if running is None:
            where = f"{request.namespace}/{request.name}" if request.namespace else request.name
            return Failed(f"{kind} {where} does not run; see `{self._cluster.places.command('status')}`")
        container = request.container or running.mains[0].name
        try:
            return running.command(container, request.words, more, streams)
        except KeyError:
            names = ", ".join(running.states)
            return Failed(f"container {container} does not run; containers of {request.name}: {names}")

    async def _relay(self, connection: socket.socket, child: Child) -> None:
        """Pass the client's signals on; kill the command when the client goes away."""
        while (message := await received(connection)) is not None:
            if isinstance(message[0], Signal):
                child.send(message[0].number)
        child.send(signal.SIGKILL)

    async def _connect(self, connection: socket.socket, request: Connect) -> None:
        target = request.target
        address = self._cluster.address_of(target) or (target if _is_address(target) else None)
        if address is None:
            send(connection, Failed(f"{target}: neither an address nor a Pod, node/NAME or host/NAME of this lab"))
            return
        place = ProbeSource(self._cluster.wire.sandboxes[ROUTER].network, address)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                made = await connected(place, address, request.port)
        except (OSError, TimeoutError) as error:
            reason = os.strerror(error.errno) if error.errno else "timed out"
            send(connection, Failed(f"cannot connect to {address} port {request.port}: {reason}"))
            return
        with made:
            send(connection, Done(), [made.fileno()])


async def received(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """Wait for a request on a non-blocking socket; None when the client hung up."""
    while True:
        try:
            return taken(connection, Request)  # type: ignore[arg-type]  # a union is a type form
        except BlockingIOError:
            await readable(connection.fileno())
        except ConnectionResetError:
            return None


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, text)
            return True
    return False


def _install(places: Places, limits: bool) -> Installation:
    """Write the entry programs, and give what goes into every container."""
    folder = places.state / "bin"
    folder.mkdir(exist_ok=True)
    source = str(Path(podgate.__file__).resolve().parent.parent)
    for name, module in ENTRIES.items():
        script = folder / name
        script.write_text(entry_script(sys.executable, source, module))
        script.chmod(0o755)
    setpriv = shutil.which("setpriv") or "setpriv"
    machine = msgspec.structs.replace(read_machine(), overlays=overlays_work(str(places.volatile)))
    return Installation(machine, sys.executable, setpriv, str(folder), str(places.state / "objects"), limits=limits)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address, folder = socket_address(path)
    listener.bind(address)
    os.close(folder)
    listener.listen(32)
    listener.setblocking(False)
    return listener


async def _serve(places: Places, ready: int, limits: bool) -> None:
    store = Store.create(str(places.state))
    installation = _install(places, limits)
    async with asyncio.TaskGroup() as group:
        await _work(group, Cluster(places, store, installation), installation, ready, store)
    store.close()


async def _serve_joined(places: Places, ready: int, limits: bool, joined: Join, machine: int) -> None:
    """Run a lab whose objects live in a Kubernetes API."""
    from podgate.lab.kubemember import Member  # noqa: PLC0415 - a lab of its own needs no HTTP client

    installation = _install(places, limits)
    member = Member(joined, places, machine, lambda message: print(f"warning: {message}", flush=True))
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(member.store.run())
        trouble = await member.ready()
        if trouble:
            os.write(ready, f"{trouble}\n".encode())
        else:
            installation = member.installed(installation)
            cluster = member.cluster(places, installation)
            duties = group.create_task(member.attend(cluster))
            await _work(group, cluster, installation, ready, None)
            duties.cancel()
        watching.cancel()


async def _work(
    group: asyncio.TaskGroup, cluster: Cluster, installation: Installation, ready: int, store: Store | None
) -> None:
    """Run the cluster and answer clients, until one of them or a signal ends the lab."""
    listener = _listen(cluster.places.socket)
    end = Ending()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.ask)
    server = group.create_task(ControlSocket(cluster, installation, listener, end, store).run())
    run = group.create_task(cluster.run())
    os.write(ready, b"ready\n")
    os.close(ready)
    await end.asked.wait()
    cluster.stop(end.grace)
    await asyncio.wait({run}, timeout=end.grace + 1.0)
    cluster.close()
    server.cancel()
    run.cancel()


def main(places: Places, ready: int, machine: int, *, limits: bool) -> int:
    """Run the lab's daemon.

    Args:
        places: the lab's files.
        ready: a pipe that gets a line once clients may come, or the reason why they never may.
        machine: the machine's network namespace, in which a cluster's API server is reached.
        limits: whether resources.limits are enforced.
    """
    if not shutil.which("ip") or not shutil.which("setpriv"):
        os.write(ready, b"missing: the lab needs `ip` (iproute2) and `setpriv` (util-linux)\n")
        return 1
    places.volatile.mkdir(exist_ok=True)
    mount("lab", str(places.volatile), "tmpfs", 0, "mode=755")
    joined = read_note(places)
    work = _serve(places, ready, limits) if joined is None else _serve_joined(places, ready, limits, joined, machine)
    asyncio.run(work)
    return 0
