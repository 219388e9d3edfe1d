"""``./dev soak services``: Services that change all the time, bad days of everything around them, and clients.

Here: the events, the clients, and what must hold every few seconds. Not here: what Services look like
(soak_services_objects.py), where they come from (soak_services_sources.py), speed (benchmarks/).
Invariant: clients of Services that have endpoints throughout never fail, whatever happens to the agents and to whoever
tells them; and soon after the last event the kernel is what a fresh start would write: ``podgate services plan`` finds
no difference.

Four nodes: nftables and iptables, with objects from a folder and from a real API server; of each pair one agent is
never restarted, so its memory and descriptors tell of leaks, and the other one is killed again and again. Only where
somebody damages a node's rules clients wait, until all are answered again.
"""

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.support import launch, rest
from tests.support.agent import Agent
from tests.support.cluster import ControlPlane, control_plane
from tests.support.poll import happens
from tests.support.service_flows import NODES, THIS, WORLDS, flow_lab, place
from tests.support.service_lab import Probe, Protocol, ServiceLab
from tests.support.services_agent import PAGES, TABLE
from tools.soak_services_objects import PORT, Shape
from tools.soak_services_sources import ApiObjects, FolderObjects, api_objects
from tools.soaking import Deeds, DidNotHoldError, Growth, podgate, settle, soaked

PATIENCE: Final = 60.0
"""Seconds in which all must become right. Healing takes about one; a busy machine, and an API that answers badly for a
while and is then asked less often, are not at fault."""

GROWTH_KB: Final = 8 * 1024
"""KiB by which a steady agent may grow after the first quarter of the time, or the first minute if that is longer."""

SERVED: Final = (
    Shape(1, served=True),
    Shape(2, served=True, affinity="ClientIP"),
    Shape(3, served=True, protocol="UDP"),
)
"""The Services that clients ask, as they are at first."""

_ANSWER_SECONDS: Final = 20.0
"""How long a client may wait: for what never comes, since the machine may be busy with more."""

_FLAGS: Final = (
    *("--node-name", NODES[0], "--nodeport-addresses", "all", "--conntrack-max-per-core", "0"),
    *("--cluster-cidr", f"{WORLDS['ip']['cluster-cidr']},{WORLDS['ip6']['cluster-cidr']}"),
)

FOREIGN: Final = {
    "nftables": (
        ("nft", "flush ruleset"),
        ("nft", f"delete table ip {TABLE}"),
        ("nft", f"delete table ip6 {TABLE}"),
        ("nft", f"flush map ip {TABLE} endpoints"),
        ("nft", f"flush map ip6 {TABLE} service-ips"),
        ("nft", f"flush chain ip {TABLE} services"),
        ("nft", f"add chain ip {TABLE} stranger"),
        ("nft", f"add table ip {TABLE} {{ flags dormant; }}"),
        ("nft", "add table ip neighbour; add chain ip neighbour own; delete table ip neighbour"),
    ),
    "iptables": (
        ("nft", "flush ruleset"),
        ("iptables-nft", "-t", "nat", "-F"),
        ("ip6tables-nft", "-t", "nat", "-F"),
        ("iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES"),
        ("iptables-nft", "-t", "filter", "-F", "KUBE-FORWARD"),
        ("iptables-nft", "-t", "nat", "-N", "KUBE-SVC-STRANGE"),
        ("iptables-nft", "-t", "nat", "-A", "KUBE-SERVICES", "-j", "ACCEPT"),
    ),
}
"""What other programs and people do to a node's rules."""


def probes() -> list[Probe]:
    """Give what clients ask: each Service from a Pod, the node and outside."""
    found = []
    for shape in SERVED:
        protocol: Protocol = "udp" if shape.protocol == "UDP" else "tcp"
        for family, world in WORLDS.items():
            found += [
                Probe(place("pod"), shape.address(family), protocol, PORT),
                Probe(place("outside"), world["node"], protocol, shape.node_port),
            ]
        found.append(Probe(THIS, shape.address("ip"), protocol, PORT))
    return found


class Clients:
    """Ask all the time, every Service at once, each time with connections of their own.

    Attributes:
        answered: how many were.
        failures: what came of the others.
    """

    def __init__(self, lab: ServiceLab, name: str) -> None:
        self._lab, self._name = lab, name
        self._turn, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered = 0
        self.failures: list[str] = []

    def start(self) -> None:
        """Begin, once all can be answered."""
        if not happens(self.all_answered, PATIENCE):
            raise DidNotHoldError(f"{self._name}: no answer at first: {self._ask()}")
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have none ask for the body; it must leave Services as it found them."""
        with self._turn:
            yield
            if not happens(self.all_answered, PATIENCE):
                raise DidNotHoldError(f"{self._name}: not answered again after {PATIENCE:.0f} s: {self._ask()}")

    def all_answered(self) -> bool:
        """Ask once; whether all were answered."""
        return not self._ask()

    def _ask(self) -> list[str]:
        asked = probes()
        seen = zip(asked, self._lab.ask(asked, _ANSWER_SECONDS), strict=True)
        return [
            f"{probe.origin} -> {probe.address}:{probe.port}/{probe.protocol}: {one.verdict}"
            for probe, one in seen
            if one.verdict != "answered"
        ]

    def _run(self) -> None:
        while not self._over.wait(0.05):
            with self._turn:
                failed = self._ask()
            self.failures += failed
            self.answered += len(probes()) - len(failed)


class Node:
    """A node with an agent on it, and its clients."""

    def __init__(
        self, name: str, backend: str, lab: ServiceLab, source: "FolderObjects | ApiObjects", folder: Path
    ) -> None:
        self.name, self.backend = name, backend
        self.clients = Clients(lab, name)
        self.namespace = lab.namespace(THIS)
        self.log = folder / f"{name.replace(' ', '-')}.log"
        self._words = ("--backend", backend, *source.words, *_FLAGS)
        self._state = folder / f"{name.replace(' ', '-')}-state"
        self.agent = self._start()

    def _start(self) -> Agent:
        # Nobody tells of table mangle, where iptables has its canary: it is read again each sync period.
        command = ["services", "run", *self._words, *PAGES, "--state-dir", str(self._state), "--sync-period", "5"]
        return launch(self.namespace, command, self.log)

    def restart(self, number: int, pause: float) -> None:
        """End the agent by a signal, and start it again after some seconds without one."""
        self.agent.end(number)
        rest(pause)
        self.agent = self._start()

    def damage(self, command: Sequence[str]) -> None:
        """Have somebody change its rules, and wait until clients are answered again."""
        with self.clients.paused():
            self.namespace.run(*command, check=False)  # what is to be changed may be away at this moment

    def plan(self) -> tuple[int, str]:
        """Ask ``podgate services plan``; give its exit code and what it said."""
        return podgate(self.namespace, "services", "plan", *self._words)

    def close(self) -> None:
        """End the clients and the agent."""
        self.clients.close()
        self.agent.end()


class World:
    """The nodes, where their objects come from, and everything that may happen to either."""

    def __init__(
        self, steady: Sequence[Node], mortal: Sequence[Node], folder: FolderObjects, api: ApiObjects | None,
        chance: random.Random,
    ) -> None:  # fmt: skip
        self._steady, self._mortal, self._folder, self._api = steady, mortal, folder, api
        self.nodes = [*steady, *mortal]
        self.chance = chance
        self.sizes = [Growth(node.name, node.agent.pid, GROWTH_KB) for node in steady]
        events: dict[str, tuple[int, Callable[[], None]]] = {
            "changes": (60, lambda: self._change(1)),
            "bursts": (6, lambda: self._change(self.chance.randrange(2, 16))),
            "crowds": (3, folder.crowd),
            "bad objects": (5, folder.bad),
            "folders gone for a moment": (3, folder.away),
            "foreign changes": (10, self._foreign),
            "kills": (5, lambda: self._restart(signal.SIGKILL)),
            "stops": (1, lambda: self._restart(signal.SIGTERM)),
        }
        if api is not None:
            events |= {
                "bad answers": (5, api.bad_answer),
                "cut connections": (3, api.cut),
                "compactions": (2, api.compact),
                "killed API servers": (1, api.kill),
            }
        self.deeds = Deeds(chance, events)

    def _change(self, count: int) -> None:
        source = self.chance.choice([each for each in (self._folder, self._api) if each])
        for _ in range(count):
            source.change()

    def _foreign(self) -> None:
        node = self.chance.choice(self.nodes)
        node.damage(self.chance.choice(FOREIGN[node.backend]))

    def _restart(self, number: int) -> None:
        self.chance.choice(self._mortal).restart(number, self.chance.uniform(0.0, 0.5))

    def check(self) -> None:
        """See that all is as it must be, soon; raises DidNotHoldError."""
        if self._api is not None:
            self._api.calm()
        for node in self.nodes:
            settle(node.name, node.agent, node.plan, PATIENCE)
            if node.clients.failures:
                raise DidNotHoldError(f"{node.name}: clients failed: {node.clients.failures[:5]}")

    def measured(self, what: Callable[[Growth], None]) -> None:
        """Look at the sizes, while each source has its first objects again."""
        for source in (self._folder, self._api):
            if source is not None:
                source.reset()
        self.check()
        for size in self.sizes:
            happens(lambda size=size: not list(size.grown()), PATIENCE)  # type: ignore[misc]  # one that ends a connection
            what(size)
        answered = sum(node.clients.answered for node in self.nodes)
        print(f"         {answered} connections answered, none failed", flush=True)


def soak(folder: Path, seconds: float, chance: random.Random) -> list[str]:
    """Let things happen for some seconds; give what did not hold."""
    with control_plane(folder / "plane") as plane:
        return run(folder, seconds, chance, plane)


def run(folder: Path, seconds: float, chance: random.Random, plane: ControlPlane | None) -> list[str]:
    """Do so, with an API server or with folders alone."""
    with contextlib.ExitStack() as stack:
        objects = FolderObjects(folder / "objects", SERVED, chance)
        api = stack.enter_context(api_objects(plane, SERVED, chance, folder)) if plane else None
        nodes: dict[str, Node] = {}
        for name, backend, source in (
            ("steady", "nftables", objects),
            ("mortal", "iptables", objects),
            ("steady", "iptables", api),
            ("mortal", "nftables", api),
        ):
            if source is None:
                continue
            lab = stack.enter_context(flow_lab())
            if isinstance(source, ApiObjects):
                stack.enter_context(source.reachable(lab.namespace(THIS)))
            node = Node(f"{name} {backend}", backend, lab, source, folder)
            stack.callback(node.close)
            nodes[node.name] = node
        try:
            for node in nodes.values():
                node.agent.until_ready()
                node.clients.start()
        except DidNotHoldError as error:
            return [str(error)]
        steady, mortal = ([node for node in nodes.values() if word in node.name] for word in ("steady", "mortal"))
        world = World(steady, mortal, objects, api, chance)
        return soaked(world, seconds, {node.name: node.log for node in nodes.values()})
