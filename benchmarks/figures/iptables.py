"""Loading many entries: the iptables target beside ``iptables-restore --noflush`` of the same text by hand.

Here: a chain that is absent, half of its entries that change, finding that nothing changed; each with iptables-nft and
with iptables-legacy. Not here: the nftables target, and what parsing and compiling cost (loading.py).
Invariant: both contestants start from the same kernel state, load the same text and wait for the same lock; the way
back is not timed.
"""

import asyncio
import gc
import statistics
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.figures.configuration import bulk, text_of
from benchmarks.figures.loading import SETTINGS, inputs_of
from benchmarks.support import Row, interleaved, milliseconds, say, spread, timed, versus
from podgate.features.masquerade.backends import BINARIES, Backend, BackendCompiler, Choice
from podgate.features.masquerade.to_iptables import OWNERS
from podgate.linux.namespaces import inside_network
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.diff import Plan
from podgate.targets.iptables.program import LOCK_SECONDS
from podgate.targets.iptables.render import render, transaction
from podgate.targets.iptables.state import State
from tests.support.netns import NetNamespace, netns

_SIZES: Final = ((64, 200), (1_000, 25), (10_000, 9))
"""How many entries, and how many turns; a few milliseconds need many, since the kernel's clock ticks show in them."""

_EMPTY: Final = "*nat\nCOMMIT\n"
"""Without ``--noflush`` it takes away every chain of our own and every rule."""


def iptables(folder: Path, quick: bool) -> list[Row]:
    """Measure both programs in three sizes, each in a namespace of its own."""
    gc.collect()
    gc.freeze()  # as the agent does before it begins
    rows: list[Row] = []
    for backend in BINARIES:
        for count, runs in ((64, 1), (1_000, 1)) if quick else _SIZES:
            say(f"  {backend}, {count:,} entries")
            with netns() as namespace, closing(_target(backend, namespace)) as target:
                rows += _Contest(namespace, folder, target, backend, count).rows(runs)
    return rows


def _target(backend: Backend, namespace: NetNamespace) -> IptablesTarget:
    return IptablesTarget("ip", BINARIES[backend], OWNERS, namespace=namespace.descriptor)


class _Contest:
    """One program and one size: podgate's target and iptables-restore by hand, in one namespace."""

    def __init__(
        self, namespace: NetNamespace, folder: Path, target: IptablesTarget, backend: Backend, count: int
    ) -> None:
        self._namespace = namespace
        self._target = target
        self._program = f"{backend}-restore"
        self._figure = f"{backend}, {count:,} entries:"
        compiler = BackendCompiler(SETTINGS, Choice(backend))
        first, second = (
            compiler(inputs_of(text_of(networks))).states.iptables_of(backend, "ip")
            for networks in (bulk(count), bulk(count, count // 2))
        )
        self._wanted = second
        self._filling = target.diff(State("ip", BINARIES[backend]), first)
        self._replacing = target.diff(first, second)
        texts = {
            "none": _EMPTY,
            "first": render(first),
            "fill": transaction(self._filling),
            "replace": transaction(self._replacing),
        }
        self._files = {name: folder / f"{backend}-{count}-{name}" for name in texts}
        for name, text in texts.items():
            self._files[name].write_text(text)

    def rows(self, runs: int) -> list[Row]:
        """Measure."""
        absent = self._raced(runs, "none", self._filling, "fill")
        half = self._raced(runs, "first", self._replacing, "replace")
        self._restore("none")
        for plan in (self._filling, self._replacing):
            asyncio.run(self._apply(plan))
        nothing = [asyncio.run(self._nothing()) for _ in range(runs)]
        wanted, by_hand = "ratio <= 1.3", f"{self._program} --noflush"
        middle = milliseconds(statistics.median(nothing))
        return [
            versus(f"{self._figure} loading an absent chain", wanted, absent["ours"], absent["theirs"], by_hand),
            versus(f"{self._figure} replacing half of them", wanted, half["ours"], half["theirs"], by_hand),
            Row(f"{self._figure} reading back, no change", "", middle, spread(nothing)),
        ]

    def _raced(self, runs: int, before: str, plan: Plan, text: str) -> dict[str, list[float]]:
        """Let both do the same from the same state, in turns."""

        def from_there(work: Callable[[], float]) -> float:
            self._restore(before)
            return work()

        return interleaved(
            runs,
            ours=lambda: from_there(lambda: asyncio.run(self._apply(plan))),
            theirs=lambda: from_there(lambda: timed(lambda: self._restore(text, "--noflush"))),
        )

    def _restore(self, name: str, *options: str) -> None:
        """Load a text by hand; without ``--noflush`` the table holds what it says and nothing else."""
        command = [self._program, "-w", str(LOCK_SECONDS), *options, str(self._files[name])]
        with inside_network(self._namespace.descriptor):
            subprocess.run(command, check=True)

    async def _apply(self, plan: Plan) -> float:
        """Render and apply."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._target.apply(plan)
        return loop.time() - started

    async def _nothing(self) -> float:
        """Read back and compare."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        plan = self._target.diff(await self._target.read(), self._wanted)
        taken = loop.time() - started
        if plan:
            raise RuntimeError(f"nothing was changed, but the target says:\n{plan}")
        return taken
