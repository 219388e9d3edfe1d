"""What soaks share: what happens at random, checks in between, what of a process has grown.

Here: choosing, the loop, sizes, the ends of logs. Not here: what happens and what must hold (soak_NAME.py).
Invariant: while a check runs, nothing else happens.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from benchmarks.support import descriptors, installed, memory_kb, rest
from podgate.linux.namespaces import inside_network
from tests.support.agent import Agent
from tests.support.netns import NetNamespace

CHECK_EVERY: Final = 5.0
"""Seconds between two checks."""

D = TypeVar("D")


class DidNotHoldError(Exception):
    """Something that must hold does not; the message says what, for people."""


class Deeds(Generic[D]):
    """What may happen, by name: each with how often it does beside the others.

    Attributes:
        counts: how often each was chosen.
    """

    def __init__(self, chance: random.Random, deeds: Mapping[str, tuple[int, D]]) -> None:
        self._chance = chance
        self._deeds = deeds
        self.counts: Counter[str] = Counter()

    def next(self) -> tuple[str, D]:
        """Choose one; give its name and what it does."""
        names = list(self._deeds)
        (name,) = self._chance.choices(names, [weight for weight, _ in self._deeds.values()])
        self.counts[name] += 1
        return name, self._deeds[name][1]

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))


class Growth:
    """How a process grows that is never restarted.

    Args:
        name: what people call it.
        pid: its id.
        most_kb: KiB by which it may grow.
    """

    def __init__(self, name: str, pid: int, most_kb: int) -> None:
        self._name, self._pid, self._most = name, pid, most_kb
        self._first: tuple[int, int] | None = None

    def size(self) -> tuple[int, int]:
        """Give its memory in KiB and its number of descriptors."""
        return memory_kb(self._pid)[0], descriptors(self._pid)

    def note(self) -> None:
        """Take its size now for where growing begins, once."""
        self._first = self._first or self.size()

    def grown(self) -> Iterator[str]:
        """Say what of it grew since then."""
        if self._first is None:
            return
        memory, opened = self.size()
        if memory > self._first[0] + self._most:
            yield f"{self._name}: its memory grew from {self._first[0]} to {memory} KiB"
        if opened > self._first[1]:
            yield f"{self._name}: its descriptors grew from {self._first[1]} to {opened}"

    def __str__(self) -> str:
        memory, opened = self.size()
        return f"{self._name}: {memory} KiB, {opened} descriptors"


class World(Protocol):
    """Everything that may happen, and what must hold.

    Attributes:
        chance: what chooses, and how long nothing happens.
        sizes: of the processes that may not grow.
    """

    chance: random.Random
    deeds: Deeds[Callable[[], None]]
    sizes: list[Growth]

    def check(self) -> None:
        """See that all is as it must be, soon; raises DidNotHoldError."""

    def measured(self, what: Callable[[Growth], None]) -> None:
        """Look at the sizes, in a state that is the same each time."""


def soaked(world: World, seconds: float, logs: Mapping[str, Path]) -> list[str]:
    """Let things happen for some seconds; give what did not hold, with the ends of logs, by name."""
    recent: list[str] = []
    try:
        _run(world, seconds, recent)
        found: list[str] = []
        world.measured(lambda size: found.extend(size.grown()))
    except DidNotHoldError as error:
        ends = "".join(f"\n{name}'s log ends:\n{tail(log)}" for name, log in logs.items())
        return [f"{error}\nafter: {', '.join(recent[-12:])}{ends}"]
    return found


def _run(world: World, seconds: float, recent: list[str]) -> None:
    started, slowest = time.monotonic(), 0.0
    warm = max(60.0, seconds / 4)
    while (now := time.monotonic() - started) < seconds:
        until = min(now + CHECK_EVERY, seconds)
        while time.monotonic() - started < until:
            name, deed = world.deeds.next()
            recent.append(name)
            deed()
            rest(world.chance.expovariate(5.0))
        began = time.monotonic()
        world.check()
        slowest = max(slowest, time.monotonic() - began)
        spent = time.monotonic() - started
        if spent > warm:
            world.measured(Growth.note)
            warm = float("inf")
        sizes = "; ".join(map(str, world.sizes))
        print(f"{spent:6.0f} s  no difference; {world.deeds}; {sizes}; slowest check {slowest:.1f} s", flush=True)


def podgate(namespace: NetNamespace, *command: str) -> tuple[int, str]:
    """Run ``podgate`` with the words of a command that ends; give its exit code and what it said."""
    program = str(Path(sys.executable).with_name("podgate"))
    with inside_network(namespace.descriptor):
        done = subprocess.run([program, *command], capture_output=True, text=True, check=False, env=installed())
    return done.returncode, done.stdout + done.stderr


def settle(name: str, agent: Agent, plan: Callable[[], tuple[int, str]], patience: float) -> None:
    """Wait until an agent is ready and ``plan`` has nothing to do; raises DidNotHoldError after ``patience`` seconds.

    Its log must hold no traceback, either.
    """
    started = time.monotonic()
    while (planned := plan())[0] != 0 or agent.get("/readyz")[0] != 200:
        if not agent.is_alive():
            raise DidNotHoldError(f"{name}: the agent ended by itself")
        if time.monotonic() - started > patience:
            raise DidNotHoldError(f"{name}: still different after {patience:.0f} s:\n{planned[1]}")
    if "Traceback" in agent.text():
        raise DidNotHoldError(f"{name}: a traceback is in its log")


def tail(log: Path) -> str:
    """Give the last lines of a log."""
    return "\n".join(line[:400] for line in log.read_text().splitlines()[-12:])
