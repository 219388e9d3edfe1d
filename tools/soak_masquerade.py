"""``./dev soak masquerade``: edits, bad files, foreign flushes, Pods and kill -9 at random, on two nodes.

Here: the events, and what must hold every few seconds. Not here: speed (benchmarks/).
Invariant: whatever happened, soon after the last event the kernel is what ``podgate masquerade plan`` says of the last
good configuration: "no difference". Nothing of an agent grows.

Both nodes follow one file. ``steady`` is never restarted, so its memory and descriptors tell of leaks; ``mortal`` is
killed and restarted, so what it enforces comes from disk when the file is bad at that moment.
"""

import contextlib
import itertools
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.figures.configuration import bulk, mark, text_of
from benchmarks.figures.edits import Kernel
from benchmarks.support import launch, rest
from tests.support.agent import Agent
from tests.support.netns import NetNamespace, netns
from tests.support.poll import happens
from tests.support.volume import MountedFile
from tools.soaking import Deeds, DidNotHoldError, Growth, podgate, settle, soaked

PATIENCE: Final = 60.0
"""Seconds in which the kernel must become right. Healing takes less than one; a busy machine is not at fault."""

GROWTH_KB: Final = 8 * 1024
"""KiB by which the steady agent may grow after the first quarter of the time, or the first minute if that is longer."""

BAD: Final = (
    "nonMasqueradeCIDRs: [10.0.0.0/8\n",
    "nonMasqueradeCIDRs: [10.0.0.0/33]\n",
    "nonMasqueradeCIDRs: [null]\n",
    "nonMasqueradeCIDRs: 10.0.0.0/8\n",
    "nonMasqueradeCIDR: [10.0.0.0/8]\n",
    "resyncInterval: 0\nnonMasqueradeCIDRs: [10.0.0.0/8]\n",
    "- 10.0.0.0/8\n",
    "\tnonMasqueradeCIDRs: []\n",
    "nonMasqueradeCIDRs: [10.0.0.1/8]\n",
)

FOREIGN: Final = (
    "flush ruleset",
    "delete table ip podgate-masquerade",
    "flush set ip podgate-masquerade keep",
    "flush chain ip podgate-masquerade postrouting",
    "add element ip podgate-masquerade keep { 192.0.2.0/24 }",
    "add rule ip podgate-masquerade postrouting accept",
    "add set ip podgate-masquerade stranger { type ipv4_addr; }",
    "add table ip neighbour; add chain ip neighbour own; delete table ip neighbour",
)
"""What other programs and people do; the last one is none of our business."""


class Node:
    """A network namespace with an agent in it."""

    def __init__(self, name: str, namespace: NetNamespace, volume: MountedFile, folder: Path) -> None:
        self.name = name
        self.namespace = namespace
        self.kept = folder / f"{name}-state" / "config.json"
        self.log = folder / f"{name}.log"
        self.kernel = Kernel(namespace)
        self._command = ["masquerade", "run", "--config", str(volume.path), "--state-dir", str(self.kept.parent)]
        self.agent = self._start()

    def _start(self) -> Agent:
        return launch(self.namespace, self._command, self.log)

    def restart(self, number: int, pause: float) -> None:
        """End the agent by a signal, and start it again after some seconds without one."""
        self.agent.end(number)
        rest(pause)
        self.agent = self._start()

    def close(self) -> None:
        """End the agent and let go of the kernel's sockets."""
        self.agent.end()
        self.kernel.close()

    def plan(self, config: Path) -> tuple[int, str]:
        """Ask ``podgate masquerade plan``; give its exit code and what it said."""
        return podgate(self.namespace, "masquerade", "plan", "--config", str(config))


class World:
    """Two nodes, one file, and everything that may happen to them."""

    def __init__(self, folder: Path, nodes: tuple[Node, Node], volume: MountedFile, chance: random.Random) -> None:
        self._nodes = nodes
        self._steady, self._mortal = nodes
        self._volume = volume
        self.chance = chance
        self._good = folder / "last-good"
        self._numbers = itertools.count(1)
        self._newest = mark(0)
        self._text = text_of([self._newest])
        self._good.write_text(self._text)
        self._pods: set[int] = set()
        self.sizes = [Growth(self._steady.name, self._steady.agent.pid, GROWTH_KB)]
        events: dict[str, tuple[int, Callable[[], None]]] = {
            "edits": (40, self._edit),
            "bursts": (6, self._burst),
            "bad files": (8, self._bad),
            "gone for a moment": (4, self._away),
            "foreign changes": (12, self._foreign),
            "Pods": (20, self._pod),
            "kills": (4, lambda: self._restart(signal.SIGKILL)),
            "stops": (1, lambda: self._restart(signal.SIGTERM)),
        }
        self.deeds = Deeds(chance, events)

    def _edit(self) -> None:
        count = self.chance.choice((0, 0, 3, 20, 2000))
        self._newest = mark(next(self._numbers))
        self._text = text_of([self._newest, *bulk(count, self.chance.randrange(5000))])
        self._good.write_text(self._text)
        self.chance.choice(list(self._volume.forms.values()))(self._text)

    def _burst(self) -> None:
        for _ in range(self.chance.randrange(2, 16)):
            self._edit()

    def _bad(self) -> None:
        """Write a bad file, once what it must not weaken is known everywhere: in the kernel and on disk."""
        for node in self._nodes:
            if not happens(lambda node=node: self._is_known(node), PATIENCE):  # type: ignore[misc]
                raise DidNotHoldError(
                    f"{node.name}: {self._newest} did not arrive, or was not kept, in {PATIENCE:.0f} s"
                )
        self.chance.choice(list(self._volume.forms.values()))(self.chance.choice(BAD))

    def _is_known(self, node: Node) -> bool:
        with contextlib.suppress(OSError):  # the set, or the file, may be away at this moment
            there = self._newest.network_address.packed in node.kernel.first_addresses()
            return there and str(self._newest) in node.kept.read_text()
        return False

    def _away(self) -> None:
        """Move the file away and back, faster than an absence counts."""
        path = self._volume.path.resolve()
        path.rename(path.with_name(".away"))
        rest(self.chance.uniform(0.0, 0.5))
        path.with_name(".away").rename(path)

    def _foreign(self) -> None:
        node = self.chance.choice(self._nodes)
        # What is to be deleted may be away already.
        node.namespace.run("nft", self.chance.choice(FOREIGN), check=False)

    def _pod(self) -> None:
        """Let a Pod come or go, as its host route on a veth tells."""
        number = self.chance.randrange(1, 30)
        device, address = f"pod{number}", f"10.16.1.{number}"
        for node in self._nodes:
            if number in self._pods:
                node.namespace.run("ip", "link", "del", device)
                continue
            node.namespace.run("ip", "link", "add", device, "type", "veth", "peer", "name", f"in-{device}")
            node.namespace.run("ip", "link", "set", device, "up")
            node.namespace.run("ip", "route", "add", f"{address}/32", "dev", device)
        self._pods ^= {number}

    def _restart(self, number: int) -> None:
        self._mortal.restart(number, self.chance.uniform(0.0, 0.3))

    def check(self) -> None:
        """See that all is as it must be, soon; raises DidNotHoldError."""
        for node in self._nodes:
            settle(node.name, node.agent, partial(node.plan, self._good), PATIENCE)
        own = len(self._steady.kernel.own_pods())
        if own > len(self._pods) or (self._pods and not own):
            raise DidNotHoldError(f"{len(self._pods)} Pods, but {own} intervals of own Pods in the kernel")

    def measured(self, what: Callable[[Growth], None]) -> None:
        """Look at the sizes; whatever happened, the steady agent holds one list."""
        for size in self.sizes:
            what(size)


def soak(folder: Path, seconds: float, chance: random.Random) -> list[str]:
    """Let things happen for some seconds; give what did not hold."""
    volume = MountedFile(folder / "volume", text_of([mark(0)]))
    with contextlib.ExitStack() as stack:
        nodes = []
        for name in ("steady", "mortal"):
            node = Node(name, stack.enter_context(netns()), volume, folder)
            stack.callback(node.close)
            nodes.append(node)
        for node in nodes:
            node.agent.until_ready()
        world = World(folder, (nodes[0], nodes[1]), volume, chance)
        return soaked(world, seconds, {node.name: node.log for node in nodes})
