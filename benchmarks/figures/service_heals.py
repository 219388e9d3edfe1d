"""Figures of heals: how soon a whole agent notices that others changed its rules, and how soon all is right again.

Here: what is damaged, watching the kernel meanwhile, rows; with nftables and with both iptables programs.
Not here: that every damage is put right (tests/agent/test_services.py).
Invariant: the clock starts when the damage is in the kernel and stops when the last thing missing is back in it; at the
end the kernel must hold what it held before, or there is no figure.

What tells, by back end:

* nftables and iptables-nft: the number of the kernel's last transaction, looked at all the time. When the agent noticed
  is what it says in its log, to the millisecond.
* iptables-legacy: what ``iptables-legacy-save`` shows, again and again. Nobody tells of such changes: the agent reads
  its rules back each sync period.
"""

import re
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.figures.service_child import Backend
from benchmarks.figures.service_objects import cluster_ip, write_file
from benchmarks.figures.services import agent_command, measured
from benchmarks.support import Row, cpus, milliseconds, rest, running, say
from podgate.features.services.iptables_names import SERVICES
from podgate.features.services.layout import CLUSTER_IPS, SERVICE_IPS
from podgate.features.services.to_nftables import TABLE
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.linux.nftables import generation
from tests.support.agent import Agent
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

_LOOK: Final = 0.0005
"""Seconds between two looks at the kernel."""

_APART: Final = 0.5
"""Seconds between a heal and the next damage: more than the agent leaves between two heals (pacing.HEAL_GAP)."""

_HEALING: Final = 120.0
_SYNC_PERIOD: Final = 1
_TABLES: Final = ("nat", "filter")
"""The tables that packets of Services meet; in mangle there is nothing but an empty chain, which nobody watches."""

_COUNTS: Final = re.compile(r" \[\d+:\d+\]$")
_PARTS: Final = re.compile(r"[,\n]")

Damages = dict[str, tuple[tuple[str, ...], ...]]
"""What is done, and the commands that do it."""

DAMAGES: Final[dict[Backend, Damages]] = {
    "nftables": {
        "table deleted": (("nft", "delete", "table", "ip", TABLE),),
        "map flushed": (("nft", "flush", "map", "ip", TABLE, SERVICE_IPS),),
        "one element deleted": (("nft", "delete", "element", "ip", TABLE, CLUSTER_IPS, f"{{ {cluster_ip(0)} }}"),),
        "ruleset flushed": (("nft", "flush", "ruleset"),),
    },
    "nft": {
        "table nat deleted": (("nft", "delete", "table", "ip", "nat"),),
        "chain flushed": (("iptables-nft", "-w", "5", "-t", "nat", "-F", SERVICES),),
        "one rule deleted": (("iptables-nft", "-w", "5", "-t", "nat", "-D", SERVICES, "1"),),
        "ruleset flushed": (("nft", "flush", "ruleset"),),
    },
    "legacy": {
        "chain flushed": (("iptables-legacy", "-w", "5", "-t", "nat", "-F", SERVICES),),
        "one rule deleted": (("iptables-legacy", "-w", "5", "-t", "nat", "-D", SERVICES, "1"),),
        "all tables flushed": tuple(
            ("iptables-legacy", "-w", "5", "-t", table, word)
            for table in ("nat", "filter", "mangle")
            for word in ("-F", "-X")
        ),
    },
}


class Healed(NamedTuple):
    """Seconds after a damage; ``noticed`` is None where nothing tells."""

    noticed: float | None
    right: float


def heals(folder: Path, quick: bool) -> list[Row]:
    """Measure each damage of each back end, a few times at the small size."""
    small, large = (100, 0) if quick else (1_000, 30_000)
    runs = 1 if quick else 5
    rows: list[Row] = []
    for backend in DAMAGES:
        rows += _rows(folder, backend, small, runs, "< 1 s")
    if large:
        load = measured(folder, large, 2)["load"]
        rows += _rows(folder, "nftables", large, 3, f"< load + 1 s = {load + 1:.2f} s")
    return rows


def _rows(folder: Path, backend: Backend, services: int, runs: int, wanted: str) -> Iterator[Row]:
    name = {"nftables": "nftables", "nft": "iptables-nft", "legacy": "iptables-legacy"}[backend]
    if backend == "legacy":
        wanted = f"within the sync period, {_SYNC_PERIOD} s, + 1 s"
    else:
        wanted = f"noticed < 200 ms, right {wanted}"
    with _healthy(folder, backend, services) as (namespace, agent):
        for what, commands in DAMAGES[backend].items():
            say(f"  {name}, {services:,} Services x 2: {what}")
            if backend == "legacy":
                found = [_heal_of_legacy(namespace, commands) for _ in range(runs)]
            else:
                found = [_heal(namespace, agent, backend, commands) for _ in range(runs)]
            yield _row(f"{services:,} x 2, {name}, {what}", wanted, found)


def _row(figure: str, wanted: str, found: Sequence[Healed]) -> Row:
    noticed = [each.noticed for each in found if each.noticed is not None]
    right = [each.right for each in found]
    told = f"noticed {milliseconds(max(noticed))}, " if noticed else ""
    middle = f"worst of {len(found)}; median right {milliseconds(statistics.median(right))}"
    return Row(f"{figure}: noticed and right after", wanted, f"{told}right {milliseconds(max(right))}", middle)


@contextmanager
def _healthy(folder: Path, backend: Backend, services: int) -> Iterator[tuple[NetNamespace, Agent]]:
    """Have an agent that has written everything."""
    path = folder / f"{services}.jsonl"
    write_file(path, services, 2)
    more = () if backend == "nftables" else ("--backend", "iptables", "--sync-period", str(_SYNC_PERIOD))
    with netns() as namespace:
        if backend == "legacy":
            # By this chain a kubelet says which of the two programs it uses.
            namespace.run("iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
        command = agent_command(path, folder / "state", *more)
        (log := folder / "log").unlink(missing_ok=True)
        with running(namespace, command, log, cpus()[1]) as agent:
            agent.until_ready()
            yield namespace, agent


# nf_tables.


class _Transactions(threading.Thread):
    """Looks at the number of the kernel's last transaction until it is told to stop; ``seen`` has when each came."""

    def __init__(self, namespace: NetNamespace) -> None:
        super().__init__()
        with inside_network(namespace.descriptor):
            self._connection = Connection(NETLINK_NETFILTER)
        self._over = threading.Event()
        self._last = generation(self._connection)
        self.seen: list[float] = []

    def run(self) -> None:
        with self._connection:
            while not self._over.wait(_LOOK):
                number, now = generation(self._connection), time.time()
                if number != self._last:
                    self._last = number
                    self.seen.append(now)

    def stop(self) -> None:
        self._over.set()
        self.join()


def _heal(namespace: NetNamespace, agent: Agent, backend: Backend, commands: Sequence[Sequence[str]]) -> Healed:
    """Do a damage, wait until everything is as before, and say what the kernel saw."""
    rest(_APART)
    before, healed = _held(namespace, backend), len(agent.log(_HEALED))
    told = len(agent.log(_NOTICED))
    watching = _Transactions(namespace)
    watching.start()
    try:
        for command in commands:
            namespace.run(*command)
        poll(lambda: len(agent.log(_HEALED)) > healed and time.time() > watching.seen[-1] + _APART, _HEALING)
        # Where both families are damaged, the other one may take longer.
        poll(lambda: _held(namespace, backend) == before, _HEALING)
    finally:
        watching.stop()
    damaged, right = watching.seen[0], watching.seen[-1]
    noticed = min(map(_when, agent.log(_NOTICED)[told:]))
    # The log's clock has milliseconds.
    return Healed(max(0.0, noticed - damaged), right - damaged)


_NOTICED: Final = "somebody else changed what is ours"
_HEALED: Final = "drift healed"


def _when(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


def _heal_of_legacy(namespace: NetNamespace, commands: Sequence[Sequence[str]]) -> Healed:
    rest(_APART)
    before = _held(namespace, "legacy")
    for command in commands:
        namespace.run(*command)
    damaged = time.time()
    poll(lambda: _held(namespace, "legacy") == before, _HEALING)
    return Healed(None, time.time() - damaged)


def _held(namespace: NetNamespace, backend: Backend) -> list[str]:
    """Give what the kernel holds, in no order: maps have none."""
    if backend == "nftables":
        # What stands in one line with a brace is the first or the last of elements that have no order.
        text = namespace.run("nft", "list", "ruleset").replace("elements = {", ",").replace("}", ",")
        return sorted(part.strip() for part in _PARTS.split(text))
    programs = [(f"{each}-{backend}-save", "-t", table) for each in ("iptables", "ip6tables") for table in _TABLES]
    lines = (line for program in programs for line in namespace.run(*program).splitlines())
    return sorted(_COUNTS.sub("", line) for line in lines if not line.startswith("#"))
