"""Loading many entries: the nftables target beside ``nft -f`` of the same text by hand, and what comes before.

Here: a table that is absent, half of a set that changes, finding that nothing changed; parsing and compiling apart.
Not here: the whole agent (edits.py).
Invariant: both contestants start from the same kernel state, end in the same one, and the way back is not timed.
"""

import asyncio
import gc
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures.configuration import bulk, text_of
from benchmarks.support import Row, interleaved, milliseconds, say, spread, timed, versus
from podgate.features.masquerade.backends import States
from podgate.features.masquerade.feature import FEATURE
from podgate.features.masquerade.settings import Settings
from podgate.joints import Compiled, Inputs
from podgate.linux.namespaces import inside_network
from podgate.model import documents
from podgate.model.files import Present
from podgate.model.machine import Machine
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.render import render, replaced_sets
from podgate.targets.nftables.state import State
from tests.support.netns import NetNamespace, netns

SETTINGS = Settings(config="/bench/ip-masq-agent")


def inputs_of(text: str) -> Inputs:
    """Give what the compiler gets when the file holds a text."""
    return Inputs(files={SETTINGS.config_path: Present(text.encode())}, machine=Machine(node_name="bench"))


def loading(folder: Path, quick: bool) -> list[Row]:
    """Measure two sizes, of which the larger is for the figures that are quoted."""
    gc.collect()
    gc.freeze()  # as the agent does before it begins
    rows: list[Row] = []
    for count in (100, 1_000) if quick else (1_000, 10_000):
        say(f"  {count:,} entries")
        rows += _compiling(count, 1 if quick else 15)
        with netns() as namespace:
            rows += _Contest(namespace, folder, count).rows(1 if quick else 25)
    return rows


def _compiling(count: int, runs: int) -> list[Row]:
    texts = text_of(bulk(count)), text_of(bulk(count, count // 2))
    inputs = [inputs_of(text) for text in texts]
    warm: Callable[[Inputs], Compiled[States]] = FEATURE.compiler(SETTINGS)
    warm(inputs[0])

    def changed() -> float:
        inputs.reverse()
        return timed(lambda: warm(inputs[0]))

    taken = interleaved(
        runs,
        parse=lambda: timed(lambda: documents.parse(texts[0].encode())),
        cold=lambda: timed(lambda: FEATURE.compiler(SETTINGS)(inputs[0])),
        changed=changed,
    )
    figure = f"{count:,} entries:"
    return [
        versus(f"{figure} parsing and compiling, at the start", "", taken["cold"], taken["parse"], "YAML alone"),
        versus(f"{figure} parsing and compiling, half changed", "", taken["changed"], taken["parse"], "YAML alone"),
    ]


class _Contest:
    """One size: podgate's target and nft by hand, in one namespace."""

    def __init__(self, namespace: NetNamespace, folder: Path, count: int) -> None:
        self._namespace = namespace
        self._target = NftablesTarget("ip", "podgate-masquerade", namespace=namespace.descriptor)
        self._count = count
        compiler = FEATURE.compiler(SETTINGS)
        self._first = compiler(inputs_of(text_of(bulk(count)))).states.ip
        self._second = compiler(inputs_of(text_of(bulk(count, count // 2)))).states.ip
        self._absent = State.absent("ip", "podgate-masquerade")
        self._texts = {name: folder / f"{count}-{name}" for name in ("none", "first", "half")}
        self._texts["none"].write_text(render(self._absent))
        self._texts["first"].write_text(render(self._first))
        # By hand one flushes and fills: nft 1.0.6 takes 19 s to delete 5,000 of 10,000 elements one by one.
        self._texts["half"].write_text(replaced_sets(self._target.diff(self._first, self._second)))

    def rows(self, runs: int) -> list[Row]:
        """Measure."""
        try:
            absent = interleaved(runs, ours=lambda: self._ours("none"), theirs=lambda: self._by_hand("none", "first"))
            half = interleaved(runs, ours=lambda: self._ours("first"), theirs=lambda: self._by_hand("first", "half"))
            self._nft("none")
            asyncio.run(self._timed_apply(self._absent, self._first))
            nothing = [asyncio.run(self._nothing()) for _ in range(runs)]
        finally:
            self._target.close()
        figure = f"{self._count:,} entries:"
        wanted = "<= 50 ms" if self._count == 10_000 else ""
        middle = sorted(nothing)[len(nothing) // 2]
        return [
            versus(f"{figure} loading an absent table", "ratio <= 1.3", absent["ours"], absent["theirs"], "nft -f"),
            versus(
                f"{figure} replacing half of a set",
                "ratio <= 1.3",
                half["ours"],
                half["theirs"],
                "nft -f, flushed and filled",
            ),
            Row(f"{figure} reading back, no change", wanted, milliseconds(middle), spread(nothing)),
        ]

    def _nft(self, name: str) -> None:
        with inside_network(self._namespace.descriptor):
            subprocess.run(["nft", "-f", str(self._texts[name])], check=True)

    def _by_hand(self, before: str, text: str) -> float:
        self._nft(before)
        return timed(lambda: self._nft(text))

    def _ours(self, before: str) -> float:
        """Diff, render and apply, from where ``before`` leads."""
        self._nft(before)
        have, want = (self._absent, self._first) if before == "none" else (self._first, self._second)
        return asyncio.run(self._timed_apply(have, want))

    async def _timed_apply(self, have: State, want: State) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._target.apply(self._target.diff(have, want))
        return loop.time() - started

    async def _nothing(self) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        plan = self._target.diff(await self._target.read(), self._first)
        taken = loop.time() - started
        if plan:
            raise RuntimeError(f"nothing was changed, but the target says:\n{plan}")
        return taken
