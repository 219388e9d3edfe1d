"""KubeSource: a Kubernetes API as a source of snapshots.

Here: one task per watch, the snapshot made of their tables, single objects by name. Not here: what answers mean
(watching.py), HTTP (podgate.kubeapi).
Invariant: there is no snapshot before every watched kind is Listed or Absent; afterwards a watch that fails changes
nothing, and one kind never waits for another.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from podgate.kubeapi.connection import AccessError, Connection, SilentError, UnreachableError
from podgate.kubeapi.frames import Decoder, Decoding, LineSplitter, NotAFrame
from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Absent, Kind, Listed, Snapshot, Watch
from podgate.model.table import Table
from podgate.sources.kube.merging import Merging
from podgate.sources.kube.standing import standing_of
from podgate.sources.kube.wanted import watches_for
from podgate.sources.kube.watching import Retrying, Watching

Report = Callable[[str, str], None]
"""Told of a watch, by its name, what is wrong with it; an empty text when nothing is."""


def _silent(_watch: str, _trouble: str) -> None:
    """Report to nobody."""


class KubeSource:
    """The objects that some watches ask for, from an API server.

    Args:
        connection: used while ``values`` is iterated, and opened by it.
        watches: what is watched. Of a kind ``by_name`` the snapshot holds the objects alone that ``want`` named.
        report: told what goes wrong and when it is mended.
        retrying: how long is waited.

    Attributes:
        watchings: the state of each watch that runs from the start.
    """

    def __init__(
        self,
        connection: Connection,
        watches: tuple[Watch, ...],
        *,
        report: Report = _silent,
        retrying: Retrying = Retrying(),  # noqa: B008 - frozen
        decoder: Callable[[Kind[Any]], Decoding] = Decoder,
    ) -> None:
        self._connection = connection
        self._report = report
        self._retrying = retrying
        self._decoder = decoder
        self._by_leader = tuple(watch for watch in dict.fromkeys(watches) if watch.by_leader)
        own = [watch for watch in dict.fromkeys(watches) if not (watch.by_name or watch.by_leader)]
        self.watchings = [Watching(watch, retrying) for watch in own]
        kinds = list(dict.fromkeys(watching.watch.kind.kind for watching in self.watchings))
        self._by_name = {
            watch.kind.kind: watch.kind for watch in watches if watch.by_name and watch.kind.kind not in kinds
        }
        led = [watch.kind.kind for watch in self._by_leader]
        self._merging = {kind: Merging() for kind in (*kinds, *self._by_name, *led)}
        self._wanted: frozenset[ObjectRef] = frozenset()
        self._named: dict[Watch, Watching] = {}
        self._retired: tuple[Watching, ...] = ()
        self._leads, self._leads_changed = False, asyncio.Event()
        self._led: tuple[Watching, ...] = ()
        self._tables: dict[str, Table[ObjectRef, Any]] = {}
        self._failing: dict[Watching, float] = {}  # since when
        self._unheard: set[Watching] = set()  # which of them the snapshot names
        self._changed = asyncio.Event()
        self._wanted_changed = asyncio.Event()

    def want(self, refs: frozenset[ObjectRef]) -> None:
        """Fetch these objects by name, and no others any more."""
        if refs != self._wanted:
            self._wanted = refs
            self._wanted_changed.set()
            self._changed.set()

    def lead(self, leads: bool) -> None:
        """Begin, or cease, to watch what a leader alone needs."""
        self._leads = leads
        self._leads_changed.set()

    async def values(self) -> AsyncIterator[Snapshot]:
        """Give the snapshot once it is whole, then each one that differs; whatever the API does, it never ends."""
        async with self._connection, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(each), name=_name(each.watch)) for each in self.watchings]
            if self._by_name:
                tasks.append(group.create_task(self._follow_wanted(), name="wanted objects"))
            if self._by_leader:
                tasks.append(group.create_task(self._follow_led(), name="what a leader needs"))
            if not self.watchings:
                self._changed.set()
            try:
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    if all(watching.answered for watching in self.watchings):
                        yield self.snapshot()
            except GeneratorExit:
                # Whoever closes us must not get it back inside of a group.
                return
            finally:
                for task in tasks:
                    task.cancel()

    def snapshot(self) -> Snapshot:
        """Give what is known now; tables that did not change are the same as before."""
        kinds: dict[str, Listed[Any] | Absent] = {}
        for kind, merging in self._merging.items():
            if kind in self._by_name:
                kinds[kind] = self._single(kind, merging)
            elif any(watch.kind.kind == kind for watch in self._by_leader):
                kinds[kind] = self._of_leader(kind, merging)
            else:
                kinds[kind] = merging([each for each in self.watchings if each.watch.kind.kind == kind])
        everything = (*self.watchings, *self._named.values(), *self._led)
        faults = tuple(watching.faults[ref] for watching in everything for ref in sorted(watching.faults))
        return Snapshot(kinds, faults, self._pending(), self._ages())

    def _ages(self) -> dict[str, float]:
        """Say for how long kinds cannot be followed; of two watches of one kind the one counts that failed first."""
        now = _now() if self._unheard else 0.0
        found: dict[str, float] = {}
        for each in self._unheard:
            if each.listed:
                kind = each.watch.kind.kind
                found[kind] = max(now - self._failing[each], found.get(kind, 0.0))
        return found

    def _single(self, kind: str, merging: Merging) -> Listed[Any] | Absent:
        streams = [*self._named.values(), *self._retired]
        entry = merging([watching for watching in streams if watching.watch.kind.kind == kind])
        if isinstance(entry, Absent):
            return entry
        before = self._tables.get(kind, Table[ObjectRef, Any]())
        found = {ref: entry.objects[ref] for ref in self._wanted if ref in entry.objects}
        self._tables[kind] = before.updated(found, [ref for ref in before if ref not in found])
        return Listed(self._tables[kind])

    def _of_leader(self, kind: str, merging: Merging) -> Listed[Any] | Absent:
        streams = [watching for watching in self._led if watching.watch.kind.kind == kind]
        answered = bool(streams) and all(watching.answered for watching in streams)
        return merging(streams) if answered else Absent("not leading")

    def _pending(self) -> frozenset[ObjectRef]:
        """Give the wanted objects about which the API has not answered yet."""
        if not self._by_name:
            return frozenset()
        known: set[ObjectRef] = set()
        for watching in self._named.values():
            if watching.answered:
                known.update(ref for ref in self._wanted if _covers(watching.watch, ref))
        return frozenset(ref for ref in self._wanted if ref.kind in self._by_name and ref not in known)

    async def _follow(self, watching: Watching) -> None:
        """Run one watch for ever."""
        name, decoder = _name(watching.watch), self._decoder(watching.watch.kind)
        while True:
            await asyncio.sleep(watching.pause(random.random()))  # noqa: S311 - jitter, no secret
            try:
                changed = await self._ask(watching, decoder)
            except SilentError as error:
                changed = watching.silent(str(error))
            except (UnreachableError, AccessError, NotAFrame) as error:
                changed = watching.lost(str(error))
            self._tell(changed)
            self._date(watching, works=watching.works)
            self._report(name, watching.trouble)

    async def _ask(self, watching: Watching, decoder: Decoding) -> bool:
        """Do one request to its end."""
        asks = watching.asks
        request = watching.request(random.random())  # noqa: S311
        if asks != "watch":
            answer = await self._connection.send(request)
            if answer.refused:
                return watching.refused(answer.refused)
            body = answer.body
            return watching.stands(standing_of(body)) if asks == "version" else watching.page(decoder.page(body))
        async with self._connection.stream(request) as stream:
            if stream.refused:
                return watching.refused(stream.refused)
            if watching.follows:
                # What was missed comes at once; where nothing was, the next bookmark may take a minute.
                self._date(watching, works=True)
            lines = LineSplitter()
            async for chunk in stream.chunks():
                whole = lines.feed(chunk)
                if not whole:
                    continue
                troubled = bool(watching.trouble)
                self._tell(watching.batch(decoder.batch(whole)))
                if watching.over:
                    return False
                self._date(watching, works=watching.works)
                if troubled and not watching.trouble:
                    self._report(_name(watching.watch), "")
        return watching.ended()

    def _date(self, watching: Watching, *, works: bool) -> None:
        """Note since when a dated watch fails; a cut that the next request mends is not told."""
        if not watching.watch.dated:
            return
        if works:
            self._failing.pop(watching, None)
        else:
            self._failing.setdefault(watching, _now())
        unheard = not works and bool(watching.trouble)
        if unheard != (watching in self._unheard):
            (self._unheard.add if unheard else self._unheard.discard)(watching)
            self._changed.set()

    def _tell(self, changed: bool) -> None:
        if changed:
            self._changed.set()

    async def _follow_led(self) -> None:
        """Watch what a leader needs while we lead, each time from the beginning."""
        while True:
            self._leads_changed.clear()
            if self._leads:
                self._led = tuple(Watching(watch, self._retrying) for watch in self._by_leader)
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._follow(each), name=_name(each.watch)) for each in self._led]
                    while self._leads:
                        self._leads_changed.clear()
                        await self._leads_changed.wait()
                    for task in tasks:
                        task.cancel()
                for watching in self._led:
                    self._report(_name(watching.watch), "")
                self._led = ()
                self._changed.set()
            else:
                await self._leads_changed.wait()

    async def _follow_wanted(self) -> None:
        """Run the streams of single objects, as many and for as long as they are wanted."""
        async with asyncio.TaskGroup() as group:
            tasks: dict[Watch, asyncio.Task[None]] = {}
            while True:
                wanted = watches_for(self._wanted, self._by_name)
                for watch in [each for each in tasks if each not in wanted]:
                    tasks.pop(watch).cancel()
                    # What it gave counts until the streams that take over have answered.
                    self._retired = (*self._retired, self._named.pop(watch))
                    self._report(_name(watch), "")
                for watch in wanted:
                    if watch not in tasks:
                        self._named[watch] = Watching(watch, self._retrying)
                        tasks[watch] = group.create_task(self._follow(self._named[watch]), name=_name(watch))
                await self._until_answered_or_changed()

    async def _until_answered_or_changed(self) -> None:
        self._changed.set()
        while not self._wanted_changed.is_set():
            if self._retired and all(watching.answered for watching in self._named.values()):
                self._retired = ()
                self._changed.set()
            if not self._retired:
                await self._wanted_changed.wait()
            else:
                await asyncio.sleep(self._retrying.between)
        self._wanted_changed.clear()


def _covers(watch: Watch, ref: ObjectRef) -> bool:
    by_name = watch.field_selector.removeprefix("metadata.name=")
    return (watch.kind.kind, watch.namespace) == (ref.kind, ref.namespace) and by_name in ("", ref.name)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _name(watch: Watch) -> str:
    """Name a watch for reports: the kind, and what narrows it."""
    narrowed = (watch.namespace, watch.label_selector, watch.field_selector)
    return " ".join(("watch", watch.kind.kind, *(part for part in narrowed if part)))
