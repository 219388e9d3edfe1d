"""From the edit of a file to the kernel's set: the whole agent, as a user runs it.

Here: edits of each form, awaited one by one and in bursts, and of long lists. Not here: loading alone (loading.py).
Invariant: the clock starts before the first system call of an edit, and stops at the kernel's own notification of the
new element, which is sent after the commit.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from benchmarks.figures.configuration import bulk, mark, text_of
from benchmarks.support import Row, cpus, milliseconds, percentile, running, say, spread
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, Listener
from podgate.linux.nftables import FAMILIES, NEW_ELEMENTS, NOTIFICATIONS
from podgate.linux.nftables_elements import SetShape, decode_elements, list_elements
from tests.support.netns import NetNamespace, netns
from tests.support.volume import MountedFile

PATIENCE: Final = 5.0
"""Seconds after which an edit counts as lost."""

_TABLE, _IP = "podgate-masquerade", int(FAMILIES["ip"])
_BOUNDS: Final = SetShape(key_bytes=4)
"""Both ends of an interval, each as an element: a notification may hold one without the other."""


class Kernel:
    """What the kernel says of masquerade's sets in one namespace."""

    def __init__(self, namespace: NetNamespace) -> None:
        with inside_network(namespace.descriptor):
            self._listener = Listener(NETLINK_NETFILTER, (NOTIFICATIONS,), 32 << 20)
            self._connection = Connection(NETLINK_NETFILTER)

    def close(self) -> None:
        """Close both sockets."""
        self._listener.close()
        self._connection.close()

    async def arrival(self, network: IPv4Network) -> float | None:
        """Wait for an entry to come, and give the time on the clock of ``time.perf_counter``; None: it did not."""
        first = network.network_address.packed
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    for message in await self._listener.receive():
                        if message.kind == NEW_ELEMENTS and first in dict(decode_elements([message.body], _BOUNDS)):
                            return time.perf_counter()
        except TimeoutError:
            return None

    def first_addresses(self) -> set[bytes]:
        """Read the set ``keep``; give the first address of each interval."""
        return self._first_addresses("keep")

    def own_pods(self) -> set[bytes]:
        """Read the set ``own-pods``; give the first address of each interval."""
        return self._first_addresses("own-pods")

    def _first_addresses(self, name: str) -> set[bytes]:
        shape = SetShape(key_bytes=4, is_interval=True)
        return {key[:4] for key, _ in list_elements(self._connection, _IP, _TABLE, name, shape)}


@contextmanager
def followed(folder: Path, text: str) -> Iterator[tuple[MountedFile, Kernel]]:
    """Have an agent that follows a file, and somebody who watches the kernel."""
    folder.mkdir()
    volume = MountedFile(folder / "volume", text)
    command = ["masquerade", "run", "--config", str(volume.path), "--state-dir", str(folder / "state")]
    with netns() as namespace, running(namespace, command, folder / "log", cpus()[1]) as agent:
        agent.until_ready()
        kernel = Kernel(namespace)
        try:
            yield volume, kernel
        finally:
            kernel.close()


def edits(folder: Path, quick: bool) -> list[Row]:
    """Measure the three forms of an edit, bursts, and edits of long lists."""
    with followed(folder / "short", text_of([mark(0)])) as (volume, kernel):
        rows = asyncio.run(_awaited(volume, kernel, 9 if quick else 1000))
        rows += asyncio.run(_bursts(volume, kernel, 2 if quick else 50))
    count = 1_000 if quick else 10_000
    say(f"  lists of {count:,} entries")
    with followed(folder / "long", text_of(bulk(count))) as (volume, kernel):
        return rows + asyncio.run(_long(volume, kernel, count, 2 if quick else 20))


async def _awaited(volume: MountedFile, kernel: Kernel, count: int) -> list[Row]:
    """Edit again and again, each time waiting for the kernel."""
    taken: dict[str, list[float]] = {form: [] for form in volume.forms}
    for number, (form, edit) in zip(range(1, count + 1), itertools.cycle(volume.forms.items()), strict=False):
        seconds = await _edit(edit, [mark(number)], kernel)
        if seconds is not None:
            taken[form].append(seconds)
        if number % 250 == 0:
            say(f"  {number} edits")
    arrived = sum(map(len, taken.values()))
    rows = [Row("edits that arrived", f"{count} of {count}", f"{arrived} of {count}", reference="awaited one by one")]
    for form, times in taken.items():
        rows.append(_median(f"edit -> kernel, {form}, median", times))
        worst = milliseconds(percentile(times, 0.99)) if times else "-"
        rows.append(
            Row(f"edit -> kernel, {form}, p99", "<= 100 ms", worst, reference="ip-masq-agent polls: up to 60 s")
        )
    return rows


def _median(figure: str, taken: list[float], reference: str = "") -> Row:
    if not taken:
        return Row(figure, "", "-", reference=reference)
    return Row(figure, "", milliseconds(statistics.median(taken)), spread(taken), reference)


async def _edit(edit: Callable[[str], None], networks: list[IPv4Network], kernel: Kernel) -> float | None:
    """Write a list, and wait for its first entry; give the seconds."""
    text = text_of(networks)
    started = time.perf_counter()
    edit(text)
    arrived = await kernel.arrival(networks[0])
    return None if arrived is None else arrived - started


async def _bursts(volume: MountedFile, kernel: Kernel, count: int) -> list[Row]:
    """Edit 20 times without waiting; the last one must arrive, and nothing else may be left."""
    say(f"  {count} bursts of 20 edits")
    forms = itertools.cycle(volume.forms.values())
    numbers = itertools.count(10_000)
    taken: list[float] = []
    for _ in range(count):
        for number in itertools.islice(numbers, 19):
            next(forms)(text_of([mark(number)]))
        last = mark(next(numbers))
        seconds = await _edit(next(forms), [last], kernel)
        if (
            seconds is not None
            and last.network_address.packed in (there := kernel.first_addresses())
            and len(there) == 2
        ):
            taken.append(seconds)
    return [
        Row("bursts of 20 whose last edit arrived", f"{count} of {count}", f"{len(taken)} of {count}"),
        _median("last edit of a burst -> kernel, median", taken),
    ]


async def _long(volume: MountedFile, kernel: Kernel, entries: int, count: int) -> list[Row]:
    """Edit a long list: one entry, then half of them."""
    one: list[float | None] = []
    half: list[float | None] = []
    for number in range(count):
        same = bulk(entries, entries // 2 * (number % 2))
        one.append(await _edit(volume.swap, [mark(2 * number), *same], kernel))
        other = bulk(entries, entries // 2 * ((number + 1) % 2))
        half.append(await _edit(volume.swap, [mark(2 * number + 1), *other], kernel))
    rows = []
    for figure, taken in (("one entry changes", one), ("half of them change", half)):
        seconds = [each for each in taken if each is not None]
        arrived = f"{len(seconds)} of {count} arrived"
        rows.append(_median(f"edit -> kernel, {entries:,} entries, {figure}", seconds, arrived))
    return rows
