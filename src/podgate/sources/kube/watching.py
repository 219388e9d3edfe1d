"""Watching: one list and watch as a state machine, from what the API answers to a table of objects. Pure.

Here: what to ask next, what an answer changes, how long to wait. Not here: sending, clocks, randomness (source.py).
Invariant: the table is always what the API held at one moment: a list counts when it is whole, and until then what was
there before stays. An API that does not answer changes nothing.

    stream   all objects as events, then changes (KEP-3157)  --refused-->  pages
    pages    a list in pages                                 --410 amid--> pages, in one piece
    changes  since a resource version                        --410-->      stream or pages
             which the store must have reached               --older-->    stream or pages
"""

from typing import Any, Final, Literal

from podgate.kubeapi.answers import UNAVAILABLE, Refusal
from podgate.kubeapi.frames import Batch, Bookmark, Broken, Event, Gone, ListPage, Put
from podgate.kubeapi.requests import Request, ask_version, follow, list_page, page_of, stream_all
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import Bounds
from podgate.model.problems import Problem
from podgate.model.snapshot import Watch
from podgate.model.table import Table
from podgate.sources.kube.room import Room
from podgate.sources.kube.standing import Last, Standing, judged, last_change

Asks = Literal["version", "page", "watch"]
"""What a request is answered by: where the store stands, a page of a list, or a watch."""

Why = Literal["not installed", "forbidden"]
_ABSENT: Final[dict[int, Why]] = {403: "forbidden", 404: "not installed"}
_NO_STREAMING: Final = (400, 422)
_NOT_THAT_QUESTION: Final = (400, 403, 404, 405, 422)
_PROGRESS: Final = "RequestWatchProgress"
"""In the message of an API server whose etcd is older than 3.4.31 or 3.5.13: it cannot stream lists."""


class Retrying(Frozen, frozen=True):
    """How long is waited, in seconds, and how often a no is doubted.

    Attributes:
        first: after the first failure; each further one waits twice as long.
        longest: at most, before jitter; also between attempts at a kind that is absent.
        between: after a watch that the server ended as agreed, so that no server makes us spin.
        lasting: the length of one watch, which jitter up to doubles.
        doubted: refusals (403, 404) until a kind that was never listed is absent; one may be a server that starts.
        doubted_listed: the same for a kind that was listed: an API server that starts refuses for a while (its own
            watches of roles and kinds are not there yet), and that must not take objects away. So often it must refuse
            to say where its store stands, too, until it is not asked for that any more.
    """

    first: float = 0.5
    longest: float = 30.0
    between: float = 0.05
    lasting: int = 300
    doubted: int = 2
    doubted_listed: int = 6


class Watching:
    """The state of one list and watch. Ask ``pause`` and ``request``, then tell what came of it.

    Attributes:
        watch: what is watched.
        objects: what there is.
        listed: whether ``objects`` is a whole list (maybe an old one).
        absent: why there is no list, once that is sure.
        faults: objects that do not fit their kind; the value of before counts.
        trouble: what is wrong now, for people; empty when nothing is.
        over: whether the server has said no inside of the watch, which must be left then.
    """

    def __init__(self, watch: Watch, retrying: Retrying = Retrying()) -> None:  # noqa: B008 - frozen
        self.watch = watch
        self.objects: Table[ObjectRef, Any] = Table()
        self.listed = False
        self.absent: Why | None = None
        self.faults: dict[ObjectRef, Problem] = {}
        self.trouble = ""
        self.over = False
        self.resource_version = ""
        self._retrying = retrying
        self._mode: Literal["stream", "pages", "changes"] = "stream"
        self._asked: Asks = "watch"
        self._last: Last | None = None
        self._verified = False
        self._verifies = True
        self._streams = True
        self._token = ""
        self._bounds: Bounds | None = getattr(watch.kind.decodes_to, "bounds", None)
        self._page = page_of(watch.kind)
        self._limit = self._page
        self._room = Room(watch.kind)
        self._staged: dict[ObjectRef, Any] = {}
        self._staged_faults: dict[ObjectRef, Problem] = {}
        self._staged_room = Room(watch.kind)
        self._failures = 0
        self._refusals = 0
        self._silences = 0
        self._asked_to_wait = 0.0
        self._heard = False

    @property
    def answered(self) -> bool:
        """Whether the kind is Listed or Absent."""
        return self.listed or self.absent is not None

    @property
    def works(self) -> bool:
        """Whether nothing failed since it was last heard of."""
        return not self._failures

    @property
    def follows(self) -> bool:
        """Whether the next request asks for changes alone."""
        return self._mode == "changes"

    @property
    def asks(self) -> Asks:
        """What the next request is answered by."""
        if self._mode == "pages":
            return "page"
        return "watch" if self._mode == "stream" or self._verified or not self._verifies else "version"

    # What to do next.

    def pause(self, jitter: float) -> float:
        """Seconds to wait before the next request; ``jitter``, from 0 to 1, spreads clients over half to all of it."""
        if self.absent is not None:
            wait = self._retrying.longest
        elif self._verified:
            wait = 0.0
        elif self._failures:
            wait = min(self._retrying.first * 2.0 ** min(self._failures - 1, 16), self._retrying.longest)
        elif self._token or not self.listed:
            wait = 0.0
        else:
            wait = self._retrying.between
        # What the server asks for is never undercut.
        return max(wait * (0.5 + jitter / 2), self._asked_to_wait * (1 + jitter / 4))

    def request(self, jitter: float) -> Request:
        """Give the next request."""
        self._asked_to_wait = 0.0
        self._heard = self.over = False
        self._asked = self.asks
        seconds = round(self._retrying.lasting * (1 + jitter))
        if self._asked == "version":
            return ask_version(self.watch, self._last.ref if self._last else None)
        if self._mode == "changes":
            self._verified = False
            return follow(self.watch, self.resource_version, seconds)
        if not self._token:
            self._stage_afresh()
            self._last = None
        return (
            stream_all(self.watch, seconds)
            if self._mode == "stream"
            else list_page(self.watch, self._token, self._limit)
        )

    def _stage_afresh(self) -> None:
        self._staged, self._staged_faults, self._staged_room = {}, {}, Room(self.watch.kind)

    # What came of it. Each says whether something changed for the reader of the snapshot.

    def stands(self, standing: Standing) -> bool:
        """Take where the store stands, which is asked before each watch: one that is ahead of it would hear nothing."""
        verdict = judged(self.resource_version, self._last, standing)
        if verdict == "same":
            self._verified = True
            return False
        self._list_again()
        self._failures = 0  # it answers; and what follows, if it fails, counts again
        if verdict == "older":
            now = standing.resource_version
            went = f"followed to version {self.resource_version}, and is at {now} now with an older state"
            self.trouble = f"{self._what} was {went}, as after a restore of the API's store: all is listed anew"
        return False

    def page(self, page: ListPage) -> bool:
        """Take one page of a list."""
        for event in page.events:
            self._stage(event)
        self._token = page.token
        if page.token:
            return False
        return self._complete(page.resource_version)

    def batch(self, batch: Batch) -> bool:
        """Take some events of a watch. After a refusal among them (``over`` says so) the watch must be left."""
        changed = False
        live: list[Event] = []
        for event in batch.events:
            if isinstance(event, Refusal):
                self.over = True
                return self._apply(live) | self._error(event) | changed
            if self._mode == "changes":
                live.append(event)
            elif isinstance(event, Bookmark):
                # Of an initial stream only the last bookmark says anything: the events come in no order.
                if event.initial_end:
                    changed |= self._complete(batch.resource_version)
            else:
                self._stage(event)
        changed |= self._apply(live)
        self._last = last_change(batch) or self._last
        if self._mode == "changes":
            self.resource_version = batch.resource_version or self.resource_version
            self._works()
        return changed

    def ended(self) -> bool:
        """Take the server's end of a watch."""
        if self._mode == "stream":
            return self.lost("the server ended the stream before all objects were in it")
        if not self._heard:
            self._failures += 1
        if self._room.has_come_back:
            # Nothing tells of what was left out but a list. Once for each watch: nobody makes us list without end.
            self._list_again()
        return False

    def lost(self, why: str) -> bool:
        """Take a connection that could not be made, broke, fell silent, or carried nonsense."""
        self._heard = False
        self._failures += 1
        if self._mode == "stream" and self._failures > 1:
            self._mode = "pages"
        self._complain(why)
        return False

    def silent(self, why: str) -> bool:
        """Take a watch that fell silent. The second time in a row it is not the connection.

        Bookmarks come about once a minute. A server whose store was restored to an older state sends none to a watch
        that is ahead of it, and no event either, so only a new list says what there is.
        """
        self._silences += 1
        if self._silences > 1 and self._mode == "changes":
            self._list_again()
        return self.lost(why)

    def refused(self, refusal: Refusal) -> bool:
        """Take a no of the server instead of an answer."""
        self._asked_to_wait = refusal.retry_after
        if self._mode == "stream" and self._cannot_stream(refusal):
            return False
        if self._asked == "version" and refusal.code in _NOT_THAT_QUESTION:
            return self._not_told(refusal)
        if refusal.code in _ABSENT and not refusal.expired:
            return self._unavailable(refusal)
        return self._error(refusal)

    def _error(self, refusal: Refusal) -> bool:
        self._heard = False
        self._asked_to_wait = refusal.retry_after
        if refusal.expired:
            self._list_again()
        elif self._mode == "stream" and self._cannot_stream(refusal):
            return False
        self._failures += 1
        self._complain(str(refusal))
        return False

    def _cannot_stream(self, refusal: Refusal) -> bool:
        """Fall back to pages: for good where the server says that it cannot, else for this list."""
        if refusal.code in _NO_STREAMING or _PROGRESS in refusal.message:
            self._streams = False
        elif refusal.code < 500 or refusal.code == UNAVAILABLE:
            return False
        self._mode, self._token = "pages", ""
        return True

    def _list_again(self) -> None:
        if self._mode == "pages":
            # The list was slower than the server's memory: in one piece it cannot expire, but may be of any length.
            self._limit = 0 if self._token and self._bounds is None else self._page
        self._mode = "stream" if self._streams and self._mode == "changes" else "pages"
        self._token = ""

    def _unavailable(self, refusal: Refusal) -> bool:
        self._heard = False
        self._failures += 1
        self._refusals += 1
        why = _ABSENT[refusal.code]
        doubted = self._retrying.doubted_listed if self.listed else self._retrying.doubted
        changed = False
        if self._refusals >= doubted and self.absent != why:
            self.absent, self.listed, changed = why, False, True
            self.objects, self.faults, self._room = Table(), {}, Room(self.watch.kind)
            self._mode, self._token = ("stream" if self._streams else "pages"), ""
        self._complain(f"{why} ({refusal})")
        return changed

    def _not_told(self, refusal: Refusal) -> bool:
        """Doubt a no to that question as often as one to the watch, then ask it no more: a watch may still be had."""
        self._failures += 1
        self._refusals += 1
        self._verifies = self._refusals < self._retrying.doubted_listed
        self._complain(str(refusal))
        return False

    def _stage(self, event: Event) -> None:
        if isinstance(event, Put):
            before = self.objects.get(event.ref)
            # What is equal is not held twice, not even while a list is on its way.
            obj = self._staged_room.taken(event.ref, before if before == event.obj else event.obj)
            if obj is None:
                self._staged_faults = self._noted(self._staged_faults, _no_room(event.ref))
                return
            self._staged[event.ref] = obj
            self._staged_faults.pop(event.ref, None)
        elif isinstance(event, Gone):
            self._staged_room.lets_go(event.ref)
            self._staged.pop(event.ref, None)
            self._staged_faults.pop(event.ref, None)
        elif isinstance(event, Broken):
            ref = event.problem.ref
            self._staged_faults = self._noted(self._staged_faults, event.problem)
            before = self._staged.get(ref, self.objects.get(ref))
            if before is not None and (held := self._staged_room.taken(ref, before)) is not None:
                self._staged[ref] = held

    def _complete(self, resource_version: str) -> bool:
        """Let a whole list count; objects that are equal stay the values that they were."""
        objects = self.objects.updated(self._staged, [ref for ref in self.objects if ref not in self._staged])
        changed = not self.listed or objects is not self.objects or self.faults != self._staged_faults
        self.objects, self.faults, self._room = objects, self._staged_faults, self._staged_room
        self._stage_afresh()
        self.listed, self.absent, self.resource_version = True, None, resource_version
        # A list in pages was answered just now; a stream goes on by itself.
        self._verified, self._verifies = self._mode == "pages", True
        self._mode, self._token, self._limit = "changes", "", self._page
        self._works()
        return changed

    def _apply(self, events: list[Event]) -> bool:
        put: dict[ObjectRef, Any] = {}
        removed: set[ObjectRef] = set()
        faults = self.faults
        for event in events:
            if isinstance(event, Broken):
                faults = self._noted(faults, event.problem)
            elif isinstance(event, Put | Gone):
                obj = self._room.taken(event.ref, event.obj) if isinstance(event, Put) else None
                if isinstance(event, Put) and obj is None:
                    faults = self._noted(faults, _no_room(event.ref))
                    continue
                if event.ref in faults:
                    faults = {ref: fault for ref, fault in faults.items() if ref != event.ref}
                if obj is not None:
                    put[event.ref] = obj
                    removed.discard(event.ref)
                else:
                    self._room.lets_go(event.ref)
                    put.pop(event.ref, None)
                    removed.add(event.ref)
        objects = self.objects.updated(put, removed)
        changed = objects is not self.objects or faults != self.faults
        self.objects, self.faults = objects, faults
        return changed

    def _noted(self, faults: dict[ObjectRef, Problem], problem: Problem) -> dict[ObjectRef, Problem]:
        """Give the faults with one more, of a kind with bounds as long as there are few."""
        most = self._bounds.faults if self._bounds else len(faults) + 1
        return {**faults, problem.ref: problem} if problem.ref in faults or len(faults) < most else faults

    def _works(self) -> None:
        self._heard = True
        self._failures = self._refusals = self._silences = 0
        self.trouble = ""

    def _complain(self, why: str) -> None:
        """Say what is wrong, once it is more than a cut that the next request mends."""
        if self._failures > 1 or self.absent is not None:
            self.trouble = f"cannot watch {self._what}: {why}"

    @property
    def _what(self) -> str:
        return f"{self.watch.kind.kind}{' in ' + self.watch.namespace if self.watch.namespace else ''}"


def _no_room(ref: ObjectRef) -> Problem:
    message = "all of its kind are longer together than is held, so it is not counted: delete what no agent wrote"
    return Problem(ref, "warning", "NoRoom", "", message)
