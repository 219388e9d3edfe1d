"""A Kubernetes API as the store of a lab: objects come from watches, writes go out one after the other per object.

Here: running the watches, sending writes, trying again. Not here: what counts (kubeview.py), what is sent
(kubewrites.py).
Invariant: the lab never waits for the API: a write counts at once, and is sent until the API takes or refuses it; after
a refusal the next pass decides anew, never sooner than the pause.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import AccessError, Answer, Connection, UnreachableError
from podgate.kubeapi.requests import Request, get
from podgate.lab.controllers.writes import Put, PutStatus, Remove
from podgate.lab.kinds import Kinds, Object, ref_of
from podgate.lab.kubekinds import WATCHED, Whole, kind_named, whole
from podgate.lab.kubeview import View, merged
from podgate.lab.kubewrites import Erase, put_request, request_for, status_request
from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Listed, Snapshot, Watch
from podgate.sources.kube.source import KubeSource

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_AFTER_REFUSAL: Final = 1.0
_OUTDATED: Final = (404, 409)
"""Somebody was faster: the watch tells what there is now."""

_KINDS: Final = {name: kind_named(name) for name in WATCHED}


class KubeStore:
    """The objects of one lab that has joined a cluster.

    Args:
        watching: used for the watches, ``sending`` for everything else; both are opened by ``run``.
        lab: the lab's name.
        warn: told what could not be written.

    Attributes:
        synced: set once every kind was listed or is known to be absent.
        troubles: what is wrong with each watch, by name.
        view: the objects.
    """

    def __init__(self, watching: Connection, sending: Connection, lab: str, warn: Callable[[str], None]) -> None:
        self.view = View(lab)
        self.synced = asyncio.Event()
        self.troubles: dict[str, str] = {}
        self._warn = warn
        self._sending = sending
        self._watching = watching
        self._news = asyncio.Event()
        self._news.set()
        self._busy: set[ObjectRef] = set()
        self._group: asyncio.TaskGroup | None = None

    # --- what the lab's cluster asks (stores.ObjectStore) -----------------------------------------------------

    @property
    def faults(self) -> tuple[str, ...]:
        """Objects that were left out of the last load, with why."""
        return self.view.faults

    @property
    def kinds(self) -> Kinds:
        """The kinds that the lab knows by itself."""
        return Kinds()

    def load(self) -> Mapping[ObjectRef, Object]:
        """Give the objects that concern this lab."""
        return self.view.objects()

    def seen(self, ref: ObjectRef, version: int) -> bool:
        """Whether the watches or our own answers told an object at that resource version or a later one."""
        return self.view.seen(ref, version)

    def confirmed(self, ref: ObjectRef) -> bool:
        """Whether a Pod may start: the API took its binding. Of a Host there is none."""
        have = self.view.current(ref)
        return have is not None and (ref.kind != "Pod" or bool((have.get("spec") or {}).get("nodeName")))

    async def changed(self) -> None:
        """Wait until something changed."""
        await self._news.wait()
        self._news.clear()

    def put(self, obj: Object) -> None:
        """Change an object's labels, annotations or spec; a Pod's node becomes a binding."""
        ref = ref_of(obj)
        have = self.view.expected(ref)
        if have is not None and put_request(_KINDS[ref.kind], ref, have, obj) is not None:
            self._submit(Put(obj))

    def put_status(self, ref: ObjectRef, status: Mapping[str, Any]) -> None:
        """Merge a status."""
        have = self.view.expected(ref)
        if have is not None and status_request(_KINDS[ref.kind], ref, have, status) is not None:
            self._submit(PutStatus(ref, status))

    def delete(self, ref: ObjectRef) -> bool:
        """Delete an object as a user does."""
        if self.view.expected(ref) is None:
            return False
        self._submit(Remove(ref))
        return True

    def remove(self, ref: ObjectRef) -> None:
        """Take a Pod whose containers have ended out of the API."""
        if self.view.expected(ref) is not None:
            self._submit(Erase(ref))

    # --- running ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch and send until cancelled."""
        watches = tuple(Watch(kind) for kind in _KINDS.values())
        source = KubeSource(self._watching, watches, report=self._report, decoder=Whole)
        async with self._sending, asyncio.TaskGroup() as group:
            self._group = group
            async for snapshot in source.values():
                self.view.told(_objects(snapshot))
                self.synced.set()
                self.news()

    def news(self) -> None:
        """Have ``changed`` return."""
        self._news.set()

    async def send(self, request: Request) -> Answer:
        """Send a request of the lab's other parts; raises UnreachableError, AccessError."""
        return await self._sending.send(request)

    def _report(self, watch: str, trouble: str) -> None:
        if trouble and self.troubles.get(watch) != trouble:
            self._warn(trouble)
        self.troubles[watch] = trouble

    def _submit(self, write: Put | PutStatus | Remove) -> None:
        self.view.submitted(write)
        if write.ref not in self._busy and self._group is not None:
            self._busy.add(write.ref)
            self._group.create_task(self._deliver(write.ref), name=f"write {write.ref}")

    async def _deliver(self, ref: ObjectRef) -> None:
        """Send an object's writes until none is left."""
        pause = _FIRST_PAUSE
        while entries := self.view.pending.get(ref):
            chosen = merged(entries)
            have = self.view.current(ref)
            writes = [entry.write for entry in chosen]
            request = request_for(_KINDS[ref.kind], have, writes) if have is not None else None
            if have is None or request is None:
                self.view.answered(chosen, None)
                continue
            try:
                refused, obj = await self._sent(ref, request)
            except (UnreachableError, AccessError) as error:
                self._warn(str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            if refused is not None:
                await self._give_way(request, refused)
                # What was decided on top of a write that did not happen does not hold either.
                chosen = self.view.pending.get(ref, chosen)
            elif isinstance(writes[0], Erase):
                self.view.erased(have)
            self.view.answered(chosen, obj)
            self.news()
        self._busy.discard(ref)

    async def _sent(self, ref: ObjectRef, request: Request) -> tuple[Refusal | None, Object | None]:
        """Send a write; give why it was refused, and the object as it is now."""
        answer = await self._sending.send(request)
        if answer.refused is not None:
            return answer.refused, None
        obj = msgspec.json.decode(answer.body, type=dict[str, Any])
        if obj.get("kind") == "Status" and request.method == "POST":  # A binding does not answer with the Pod.
            answer = await self._sending.send(get(_KINDS[ref.kind], ref))
            obj = msgspec.json.decode(answer.body or b"{}", type=dict[str, Any])
        if obj.get("kind") != ref.kind or "uid" not in obj.get("metadata", {}):
            return None, None
        return None, whole(_KINDS[ref.kind], obj)

    async def _give_way(self, request: Request, refused: Refusal) -> None:
        if refused.code in _OUTDATED:
            await asyncio.sleep(_FIRST_PAUSE)
            return
        self._warn(f"{request.what}: {refused}")
        await asyncio.sleep(max(_AFTER_REFUSAL, refused.retry_after))


def _objects(snapshot: Snapshot) -> dict[ObjectRef, Object]:
    found: dict[ObjectRef, Object] = {}
    for entry in snapshot.kinds.values():
        if isinstance(entry, Listed):
            found.update(entry.objects.items())
    return found
