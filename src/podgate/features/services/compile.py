"""compile: inputs and settings become an intent, the feature's states, and problems.

Here: the order of the stages, and the memory that keeps unchanged Services from being computed again. Not here: what
one Service says (ports.py), what one slice says (slices.py), what comes of both (place.py).
Invariant: with memory or without, equal inputs give equal results (tests compare); one change of a slice costs its
Service, one change of this node costs all.

    Services       -> ports.py  -> claims.py -+
                                              joined -> place.py -> ports by family, health checks
    EndpointSlices -> slices.py -> grouped  --+

While Services or slices are Absent nobody knows what should be: what is in force stays (``Intent.unknown``), and the
feature is not ready. The kernel is the memory of that, so it holds across a restart too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

from podgate.features.services.claims import Contests
from podgate.features.services.endpoints import Here
from podgate.features.services.health import Taken
from podgate.features.services.intent import (
    FAMILIES,
    FamilyIntent,
    HealthCheck,
    Intent,
    NodeWide,
    PackedDestination,
    ServicePort,
)
from podgate.features.services.loopback_ports import LoopbackPorts, Owners
from podgate.features.services.node import (
    closed_problems,
    here_of,
    ipvs_problems,
    is_eligible,
    no_pod_range,
    node_problems,
    node_wide,
    service_ranges,
)
from podgate.features.services.place import Placed, place
from podgate.features.services.ports import ServiceFacts, read_service
from podgate.features.services.settings import Settings
from podgate.features.services.slices import SliceFacts, read_slice
from podgate.features.services.whose import is_ours, theirs
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE, EndpointSlice
from podgate.model.kinds.networking import SERVICE_CIDR, ServiceCIDR
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.services import HEADLESS_LABEL, PROXY_NAME_LABEL, SERVICE, Service
from podgate.model.machine import Family, Machine
from podgate.model.problems import Problem, Problems
from podgate.model.remembering import Remembered
from podgate.model.snapshot import Absent, Kind, Listed, Snapshot, Watch
from podgate.model.table import Table, changes, grouped, joined, mapped

StatesT = TypeVar("StatesT")
_Slices = Mapping[ObjectRef, SliceFacts]
_Pair = tuple[ServiceFacts | None, _Slices | None]


def watches(settings: Settings, node_name: str | None) -> tuple[Watch, ...]:
    """Give what is watched: Services and slices for this proxy, this node, and the ranges of cluster IPs.

    The default proxy watches what is for others too, so as to know which addresses are theirs.
    A label of a slice says that its Service is headless (as the slices' controller sets it); of a Service its cluster
    IP does. A slice's own label of a proxy is asked for by one with a name alone, which is spared the others' so.
    """
    named = f"{PROXY_NAME_LABEL}={settings.service_proxy_name}" if settings.service_proxy_name else ""
    return (
        Watch(SERVICE, label_selector=named),
        Watch(ENDPOINT_SLICE, label_selector=f"{named},!{HEADLESS_LABEL}".removeprefix(",")),
        Watch(NODE, field_selector=f"metadata.name={node_name}" if node_name else ""),
        Watch(SERVICE_CIDR),
    )


class Compiler(Generic[StatesT]):
    """Compiles one node's inputs, again and again.

    Args:
        settings: the options.
        to_states: makes the feature's states of an intent; called only when the intent differs.
    """

    def __init__(self, settings: Settings, to_states: Callable[[Intent], StatesT]) -> None:
        self._settings = settings
        self._read: mapped[ObjectRef, Service, ServiceFacts] = mapped(partial(_read_ours, settings))
        self._theirs: mapped[ObjectRef, Service, frozenset[PackedDestination]] = mapped(
            partial(theirs, settings.service_proxy_name)
        )
        self._settled = Contests()
        self._slices: mapped[ObjectRef, EndpointSlice, SliceFacts] = mapped(read_slice)
        self._by_service: grouped[ObjectRef, ObjectRef, SliceFacts] = grouped(_service_of)
        self._pairs: joined[ObjectRef, ServiceFacts, _Slices] = joined()
        self._here = Remembered(here_of)
        self._placing = Remembered(_placing)
        self._ipvs = Remembered(ipvs_problems)
        self._families: dict[Family, mapped[ObjectRef, Placed, tuple[ServicePort, ...]]] = {
            "ip": mapped(lambda _ref, placed: placed.ip or None),
            "ip6": mapped(lambda _ref, placed: placed.ip6 or None),
        }
        self._health = HealthChecks()
        self._loopback = LoopbackPorts()
        self._ranges: mapped[ObjectRef, ServiceCIDR, tuple[tuple[str, ...], tuple[Problem, ...]]] = mapped(
            service_ranges
        )
        self._known_ranges = Remembered(_known_ranges)
        self._wide = {family: Remembered(partial(node_wide, family)) for family in FAMILIES}
        self._of_services: mapped[ObjectRef, ServiceFacts, tuple[Problem, ...]] = mapped(_problems_of)
        self._of_slices: mapped[ObjectRef, SliceFacts, tuple[Problem, ...]] = mapped(_problems_of)
        self._problems = Remembered(_merged)
        self._states = Remembered(to_states)

    def __call__(self, inputs: Inputs) -> Compiled[StatesT]:
        """Compile the newest inputs."""
        objects = inputs.objects
        unknown = unknown_of(objects)
        name = self._settings.node_name or inputs.machine.node_name
        nodes = objects.objects(NODE)
        node = nodes.get(ObjectRef(NODE.kind, name))
        facts = self._settled(self._read(objects.objects(SERVICE)))
        slices = self._slices(objects.objects(ENDPOINT_SLICE))
        here: Here = self._here(name, node, inputs.machine)
        placed: Table[ObjectRef, Placed] = self._placing(here)(self._pairs(facts, self._by_service(slices)))
        ranges, range_problems = self._known_ranges(self._ranges(objects.objects(SERVICE_CIDR)))
        wide = {family: self._wide[family](self._settings, node, inputs.machine, ranges) for family in FAMILIES}
        intent = Intent(
            self._family("ip", inputs.machine, wide, placed),
            self._family("ip6", inputs.machine, wide, placed),
            self._health(placed),
            self._settings.service_proxy_name,
            self._theirs(objects.objects(SERVICE)),
            is_eligible(node),
            unknown,
        )
        own = (
            *objects.faults,
            *(node_problems(name, self._settings, node) if _is_listed(objects, NODE) else ()),
            *range_problems,
            *self._ipvs(name, self._settings, inputs.machine),
            *closed_problems(name, self._settings, node, inputs.machine, intent.families),
        )
        return Compiled(
            states=self._states(intent),
            problems=self._problems(own, self._of_services(facts), self._of_slices(slices)),
            degraded=unknown or no_pod_range(self._settings, node) or unread(objects),
            holds=bool(unknown),
            isolates=True,
            problem_of=Taken(name, intent.health_checks, Owners(self._loopback, intent)),
        )

    def _family(
        self, family: Family, machine: Machine, wide: Mapping[Family, NodeWide], placed: Table[ObjectRef, Placed]
    ) -> FamilyIntent | None:
        if family in machine.lacks:
            return None
        return FamilyIntent(family, wide[family], self._families[family](placed))


def _read_ours(settings: Settings, ref: ObjectRef, service: Service) -> ServiceFacts | None:
    if not is_ours(service, settings.service_proxy_name):
        return None
    return read_service(ref, service, external_ips=settings.external_ips)


class HealthChecks:
    """Health checks by port, of Services by reference; of two Services with one port the first by name has it."""

    def __init__(self) -> None:
        self._input: Table[ObjectRef, Placed] = Table()
        self._asked: dict[int, dict[ObjectRef, HealthCheck]] = {}
        self._output: Table[int, HealthCheck] = Table()

    def __call__(self, placed: Table[ObjectRef, Placed]) -> Table[int, HealthCheck]:
        """Give the health checks; only Services that changed are looked at."""
        touched: set[int] = set()
        for ref, old, new in changes(self._input, placed):
            if old is not None and old.health is not None:
                touched.add(old.health_port)
                del self._asked[old.health_port][ref]
            if new is not None and new.health is not None:
                touched.add(new.health_port)
                self._asked.setdefault(new.health_port, {})[ref] = new.health
        self._input = placed
        put = {port: asked[min(asked)] for port in touched if (asked := self._asked[port])}
        self._output = self._output.updated(put, touched - put.keys())
        return self._output


_NEEDED: Final = (SERVICE, ENDPOINT_SLICE)


def unknown_of(objects: Snapshot) -> str:
    """Say why Services or their endpoints are not known; empty when they are."""
    for kind in _NEEDED:
        found = objects.kinds.get(kind.kind, Absent("no source"))
        if isinstance(found, Absent):
            files = (f"{fault.ref.name}: {fault.message}" for fault in objects.unread)
            advice = {
                "no source": next(files, "give --kubeconfig or --source"),
                "forbidden": f"let this account list and watch {kind.plural}",
                "not installed": f"{kind.api_version} {kind.kind} is missing: take Kubernetes 1.21 or later",
            }[found.why]
            return f"{kind.plural} are not known ({found.why}), so what is in force stays as it is: {advice}"
    return ""


def unread(objects: Snapshot) -> str:
    """Say which file of the source cannot be used; empty when all can. An object's mistake is that object's alone."""
    names = sorted({fault.ref.name for fault in objects.unread})
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more} cannot be used, so what was read there last counts: the log says why" if names else ""


def _is_listed(objects: Snapshot, kind: Kind[Any]) -> bool:
    return isinstance(objects.kinds.get(kind.kind), Listed)


def _known_ranges(
    found: Table[ObjectRef, tuple[tuple[str, ...], tuple[Problem, ...]]],
) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Give all ranges of Services, and what is wrong with them."""
    texts = {text for ranges, _ in found.values() for text in ranges}
    return tuple(sorted(texts)), tuple(problem for ref in sorted(found) for problem in found[ref][1])


def _service_of(_ref: ObjectRef, facts: SliceFacts) -> tuple[ObjectRef]:
    return (facts.service,)


def _placing(here: Here) -> mapped[ObjectRef, _Pair, Placed]:
    return mapped(partial(place, here))


def _problems_of(_ref: ObjectRef, facts: ServiceFacts | SliceFacts) -> tuple[Problem, ...] | None:
    return facts.problems or None


def _merged(own: tuple[Problem, ...], *tables: Problems) -> Problems:
    found: dict[ObjectRef, tuple[Problem, ...]] = {}
    for problem in own:
        found[problem.ref] = (*found.get(problem.ref, ()), problem)
    for table in tables:
        for ref, problems in table.items():
            found[ref] = (*found.get(ref, ()), *problems)
    return Table.of(found)
