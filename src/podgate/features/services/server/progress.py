"""progress: how many changes have come, how many wait, and how long they took to be in force: kube-proxy's figures.

Here: counting compiles and commits, by family. Not here: what our own engine counts (engine/status.py), other
metrics of kube-proxy (old_metrics.py).
Invariant: a change costs what it touches, never all objects; what is counted says nothing back to what is compiled.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from podgate.features.services.intent import FAMILIES
from podgate.features.services.old_metrics import IP_FAMILY
from podgate.features.services.whose import is_ours
from podgate.joints import Compiled, Inputs, Step
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE, EndpointSlice
from podgate.model.kinds.services import SERVICE, Service
from podgate.model.machine import Family
from podgate.model.table import Table, changes
from podgate.observe.metrics import Counter, Counters, Histogram, Measured
from podgate.targets.conntrack.sweep import UdpSweep

WAITING: Final = 1_000
"""Compiles that are told apart while nothing can be written; later ones are merged."""

_SYNC: Final = tuple(0.001 * 2**power for power in range(15))
_PROGRAMMING: Final = (0.0, 0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
_RULES: Final = "kubeproxy_sync_proxy_rules"

_METRICS: Final = (
    Histogram(f"{_RULES}_duration_seconds", "Duration of a pass.", ("ip_family",), _SYNC),
    Histogram(
        "kubeproxy_sync_full_proxy_rules_duration_seconds",
        "Duration of a pass that compared everything with the kernel.",
        ("ip_family",),
        _SYNC,
    ),
    Histogram(
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        "Duration of a pass that looked at what had changed.",
        ("ip_family",),
        _SYNC,
    ),
    Histogram(
        "kubeproxy_network_programming_duration_seconds",
        "From the change of a Pod or Service that an EndpointSlice tells of to its rules.",
        ("ip_family",),
        _PROGRAMMING,
    ),
    Counter(f"{_RULES}_endpoint_changes_total", "EndpointSlices that came, changed or went."),
    Counter(f"{_RULES}_service_changes_total", "Services that came, changed or went."),
    Counter(
        "kubeproxy_conntrack_reconciler_deleted_entries_total", "Flows that led to no serving endpoint.", ("ip_family",)
    ),
    Histogram(
        "kubeproxy_conntrack_reconciler_sync_duration_seconds",
        "Duration of a search for flows that lead to no serving endpoint.",
        ("ip_family",),
        _SYNC,
    ),
)


class _Came(Frozen, frozen=True):
    """What one compile brought to one family; ``triggers``: when what its slices tell of happened, since 1970."""

    generation: int
    services: int
    slices: int
    triggers: tuple[float, ...]


class Progress:
    """Counts what a compiler gets and what steps commit.

    Args:
        clock: gives seconds since 1970.
        proxy_name: of this proxy; changes of others' Services are not counted.

    Attributes:
        states: what was compiled last; None before.
    """

    def __init__(self, clock: Callable[[], float] = time.time, proxy_name: str = "") -> None:
        self._clock = clock
        self._proxy_name = proxy_name
        self._began = self._queued = clock()
        # The API writes times in UTC, so that earlier ones are known without reading them: a start meets thousands.
        self._began_text = datetime.fromtimestamp(self._began, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._generation = 0
        self.states: Any = None
        self._services: Table[ObjectRef, Service] = Table()
        self._slices: Table[ObjectRef, EndpointSlice] = Table()
        self._committed: dict[Family, float] = {}
        self._waiting: dict[Family, deque[_Came]] = {family: deque() for family in FAMILIES}
        self._counters = Counters(_METRICS)
        for family in IP_FAMILY.values():
            for metric in _METRICS:
                if isinstance(metric, Counter) and metric.labels:
                    self._counters.add(metric.name, 0.0, ip_family=family)

    def compiler(self, inner: Callable[[Inputs], Compiled[Any]]) -> Callable[[Inputs], Compiled[Any]]:
        """Give the same compiler, watched."""

        def compile_watched(inputs: Inputs) -> Compiled[Any]:
            compiled = inner(inputs)
            self._came(inputs, compiled)
            return compiled

        return compile_watched

    def watching(
        self, steps: Iterable[Step[Any, Any, Any]], last: Mapping[str, Family]
    ) -> Iterator[Step[Any, Any, Any]]:
        """Give the same steps; those after which a family is in force, ``last`` by name, are watched."""
        for step in steps:
            family = last.get(step.name)
            yield step if family is None else self._watched(step, family)

    def _watched(self, step: Step[Any, Any, Any], family: Family) -> Step[Any, Any, Any]:
        followers = [
            each.telling(partial(self.swept, family)) if isinstance(each, UdpSweep) else each for each in step.followers
        ]

        def committed(generation: int, seconds: float, whole: bool) -> None:
            step.committed(generation, seconds, whole)
            self.committed(family, generation, seconds, whole)

        return msgspec.structs.replace(step, committed=committed, followers=tuple(followers))

    def _came(self, inputs: Inputs, compiled: Compiled[Any]) -> None:
        services, slices = inputs.objects.objects(SERVICE), inputs.objects.objects(ENDPOINT_SLICE)
        ports = sum(_concerns(self._proxy_name, old, new) for _, old, new in changes(self._services, services))
        counts: dict[str, int] = {}
        told: dict[str, list[str]] = {}
        for _, old, new in changes(self._slices, slices):
            address_type = _type(new or old)
            counts[address_type] = counts.get(address_type, 0) + 1
            # What goes carries the time of an earlier change.
            if new is not None and (text := new.metadata.annotations.last_change) >= self._began_text:
                told.setdefault(address_type, []).append(text)
        self._services, self._slices = services, slices
        # What changes nothing is never in force either, and says nothing of how long that takes.
        matters = compiled.states is not self.states
        self.states = compiled.states
        self._generation += not compiled.holds
        if counts or ports:
            self._queued = self._clock()
        self._counters.add(f"{_RULES}_service_changes_total", ports)
        for family, name in IP_FAMILY.items():
            count = counts.get(name, 0)
            self._counters.add(f"{_RULES}_endpoint_changes_total", count)
            times = [_seconds(text) for text in told.get(name, ())] if matters else []
            triggers = tuple(each for each in times if each is not None and each >= self._began)
            if count or ports:
                self._wait(family, _Came(self._generation + compiled.holds, ports, count, triggers))

    def _wait(self, family: Family, came: _Came) -> None:
        waiting = self._waiting[family]
        if len(waiting) >= WAITING:
            newest = waiting.pop()
            came = _Came(came.generation, newest.services + came.services, newest.slices + came.slices, newest.triggers)
        waiting.append(came)

    def committed(self, family: Family, generation: int, seconds: float, whole: bool) -> None:
        """Note a pass after which a family is in force (``Step.committed``)."""
        now, name, counters = self._clock(), IP_FAMILY[family], self._counters
        counters.observe(f"{_RULES}_duration_seconds", seconds, ip_family=name)
        kind = "full" if whole else "partial"
        counters.observe(f"kubeproxy_sync_{kind}_proxy_rules_duration_seconds", seconds, ip_family=name)
        self._committed[family] = now
        waiting = self._waiting[family]
        while waiting and waiting[0].generation <= generation:
            for trigger in waiting.popleft().triggers:
                counters.observe("kubeproxy_network_programming_duration_seconds", now - trigger, ip_family=name)

    def swept(self, family: Family, seconds: float, deleted: int) -> None:
        """Note a search for flows that are stale."""
        name = IP_FAMILY[family]
        self._counters.observe("kubeproxy_conntrack_reconciler_sync_duration_seconds", seconds, ip_family=name)
        self._counters.add("kubeproxy_conntrack_reconciler_deleted_entries_total", deleted, ip_family=name)

    def readings(self) -> Iterator[Measured]:
        """Give the figures."""
        yield from self._counters.samples()
        # A slice is of one family; a Service waits until it is in force in both.
        for what, count in (
            ("endpoint", sum(each.slices for waiting in self._waiting.values() for each in waiting)),
            ("service", max(sum(each.services for each in waiting) for waiting in self._waiting.values())),
        ):
            yield Measured(f"{_RULES}_{what}_changes_pending", count, help="Changes that are not in force yet.")
        for family, name in IP_FAMILY.items():
            labels = (("ip_family", name),)
            if family in self._committed:
                text = "When a pass last ended well."
                yield Measured(f"{_RULES}_last_timestamp_seconds", self._committed[family], labels, help=text)
            text = "When the newest change came."
            yield Measured(f"{_RULES}_last_queued_timestamp_seconds", self._queued, labels, help=text)


def _concerns(proxy_name: str, *services: Service | None) -> bool:
    """Say whether any of these is this proxy's."""
    return any(each is not None and is_ours(each, proxy_name) for each in services)


def _type(found: EndpointSlice | None) -> str:
    return found.address_type if found is not None else ""


def _seconds(text: str) -> float | None:
    """Give a time of RFC 3339 in seconds since 1970; None where it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
