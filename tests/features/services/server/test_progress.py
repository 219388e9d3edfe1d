"""What is counted of changes, from their coming to their rules."""

from collections.abc import Mapping
from typing import Any

from podgate.features.services.intent import FAMILIES
from podgate.features.services.server.progress import WAITING, Progress
from podgate.joints import Compiled, Inputs, Step
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE, EndpointSlice, SliceAnnotations, SliceMeta
from podgate.model.kinds.services import SERVICE, Service, ServiceLabels, ServiceMeta
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from podgate.observe.metrics import Distribution
from podgate.targets.conntrack.sweep import UdpSweep
from tests.support.fake_target import FakeTarget

START = 1_000_000.0  # 1970-01-12T13:46:40Z
RULES = "kubeproxy_sync_proxy_rules"
PROGRAMMING = "kubeproxy_network_programming_duration_seconds"


class Told:
    """A compiler whose objects a test changes, and a clock that a test sets."""

    def __init__(self) -> None:
        self.now = START
        self.progress = Progress(lambda: self.now)
        self.compiled: Compiled[Any] = Compiled(object())
        self.compile = self.progress.compiler(lambda _inputs: self.compiled)
        self.services: dict[ObjectRef, Service] = {}
        self.slices: dict[ObjectRef, EndpointSlice] = {}

    def put(self, name: str, address_type: str = "IPv4", trigger: str = "") -> None:
        meta = SliceMeta(name, annotations=SliceAnnotations(trigger))
        self.slices[ObjectRef("EndpointSlice", name)] = EndpointSlice(meta, address_type)

    def come(self, *, at: float = START, matters: bool = True, holds: bool = False) -> None:
        self.now = at
        states = object() if matters else self.compiled.states
        self.compiled = Compiled(states, holds=holds)
        kinds: Mapping[str, Listed[Any]] = {
            SERVICE.kind: Listed(Table.of(self.services)),
            ENDPOINT_SLICE.kind: Listed(Table.of(self.slices)),
        }
        self.compile(Inputs(objects=Snapshot(kinds)))

    def commit(self, generation: int, *, at: float = START, seconds: float = 0.002, whole: bool = False) -> None:
        self.now = at
        for family in FAMILIES:
            self.progress.committed(family, generation, seconds, whole)

    def value(self, name: str, family: str = "IPv4") -> Any:
        found = [
            each.value
            for each in self.progress.readings()
            if each.name == name and (not each.labels or ("ip_family", family) in each.labels)
        ]
        return found[0] if found else None

    def count(self, name: str, family: str = "IPv4") -> int:
        found = self.value(name, family)
        return sum(found.counts) if isinstance(found, Distribution) else 0

    def changes(self) -> tuple[float, ...]:
        """Endpoints and Services: all changes, and those that wait."""
        kinds = [f"{RULES}_{kind}_changes" for kind in ("endpoint", "service")]
        return tuple(self.value(f"{kind}_{what}") for what in ("total", "pending") for kind in kinds)


def test_changes_are_counted_and_wait_until_they_are_committed() -> None:
    told = Told()
    assert told.changes() == (0, 0, 0, 0)
    told.services[ObjectRef("Service", "web")] = Service(ServiceMeta("web"))
    told.services[ObjectRef("Service", "theirs")] = Service(ServiceMeta("theirs", labels=ServiceLabels("mesh")))
    for name, family in {"a": "IPv4", "b": "IPv4", "c": "IPv6", "d": "FQDN"}.items():
        told.put(name, family)
    told.come(at=START + 5)
    assert told.changes() == (3, 1, 3, 1), "there is no proxy for names, and one of the Services is another proxy's"
    assert told.value(f"{RULES}_last_queued_timestamp_seconds") == START + 5
    assert told.value(f"{RULES}_last_timestamp_seconds") is None
    told.progress.committed("ip", 1, 0.1, False)
    assert told.changes() == (3, 1, 1, 1), "IPv6 is not in force yet"
    told.commit(1, at=START + 6)
    assert told.changes() == (3, 1, 0, 0)
    assert told.value(f"{RULES}_last_timestamp_seconds") == START + 6
    told.come(at=START + 7)
    assert told.value(f"{RULES}_last_queued_timestamp_seconds") == START + 5, "nothing came"
    told.commit(2)
    del told.slices[ObjectRef("EndpointSlice", "a")]
    told.come()
    assert told.changes() == (4, 1, 1, 0)
    told.commit(2)
    assert told.changes() == (4, 1, 1, 0), "the older generation again, after somebody else's change"
    told.commit(3)
    assert told.changes() == (4, 1, 0, 0)


def test_what_comes_while_nothing_is_written_waits_for_the_next_that_is() -> None:
    told = Told()
    told.come()
    told.commit(1)
    told.put("a")
    told.come(holds=True)
    told.commit(1)
    assert told.changes() == (1, 0, 1, 0), "what was in force is put right, not what came"
    told.put("b")
    told.come()
    assert told.changes() == (2, 0, 2, 0)
    told.commit(2)
    assert told.changes() == (2, 0, 0, 0)


def test_a_change_takes_from_its_trigger_to_its_rules() -> None:
    told = Told()
    told.put("before the start", trigger="1970-01-12T13:46:39Z")
    told.put("no time", trigger="yesterday")
    told.put("v6", "IPv6", trigger="1970-01-12T13:46:41Z")
    told.put("a", trigger="1970-01-12T13:46:41.5Z")
    told.come()
    told.commit(1, at=START + 2)
    for family, took in {"IPv4": 0.5, "IPv6": 1.0}.items():
        assert (told.count(PROGRAMMING, family), told.value(PROGRAMMING, family).sum) == (1, took)
    told.put("a", trigger="1970-01-12T13:46:43Z")
    told.come(matters=False)
    told.commit(2, at=START + 9)
    assert told.count(PROGRAMMING) == 1, "nothing of it was to be written"
    del told.slices[ObjectRef("EndpointSlice", "a")]
    told.come()
    told.commit(3, at=START + 9)
    assert told.count(PROGRAMMING) == 1, "what goes carries the time of its last change"


def test_a_pass_that_read_everything_is_a_full_one() -> None:
    told = Told()
    told.come()
    told.commit(1, seconds=3.0, whole=True)
    told.commit(1, seconds=0.002)
    told.commit(1, seconds=0.002)
    names = (f"{RULES}_duration_seconds", "kubeproxy_sync_full_proxy_rules_duration_seconds")
    assert [told.count(name) for name in (*names, "kubeproxy_sync_partial_proxy_rules_duration_seconds")] == [3, 1, 2]


def test_the_step_after_which_a_family_is_in_force_is_watched_and_no_other() -> None:
    told = Told()
    sweep: UdpSweep[Any, Any] = UdpSweep("ip", lambda _before, _after, _found, _own: None)
    heard: list[tuple[int, float, bool]] = []
    steps: list[Step[Any, Any, Any]] = [
        Step(name, FakeTarget(), lambda states: states, {}, followers=(sweep,), committed=lambda *it: heard.append(it))
        for name in ("nat", "filter")
    ]
    first, last = told.progress.watching(steps, {"filter": "ip6"})
    assert first is steps[0]
    last.committed(1, 0.5, True)
    assert told.count(f"{RULES}_duration_seconds", "IPv6") == 1
    assert heard == [(1, 0.5, True)], "so does whoever else is told of it"
    assert [type(each) for each in last.followers] == [UdpSweep]
    assert last.followers != steps[1].followers, "it tells of its sweeps"


def test_sweeps_of_flows_are_counted() -> None:
    told = Told()
    told.progress.swept("ip", 0.25, 3)
    told.progress.swept("ip", 0.25, 0)
    assert told.value("kubeproxy_conntrack_reconciler_deleted_entries_total") == 3
    assert told.value("kubeproxy_conntrack_reconciler_deleted_entries_total", "IPv6") == 0
    assert told.count("kubeproxy_conntrack_reconciler_sync_duration_seconds") == 2


def test_while_nothing_can_be_written_memory_stays_bounded_and_no_change_is_lost() -> None:
    told = Told()
    for number in range(WAITING + 5):
        told.put("a", trigger=str(number))
        told.come()
    waiting = told.progress._waiting["ip"]
    assert len(waiting) == WAITING
    assert told.changes() == (WAITING + 5, 0, WAITING + 5, 0)
    told.commit(WAITING + 5)
    assert told.changes() == (WAITING + 5, 0, 0, 0)
