"""Telling: what a feature says in the API that its objects come from: reports, statuses and Events.

Here: two steps beside the feature's own, and the states that they need, the same for every feature. Not here: what
they say (targets/kubernetes/reports.py and the feature's to_kubernetes.py), requests.
Invariant: neither step is essential: an API that takes none of it changes nothing on the node. Nothing is told about
what comes from files.

The step kubernetes/node writes this node's own report, once its rules are committed, and Events of its own Node and
Pods. Of all nodes one leads, and its step kubernetes/status says the rest.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

import msgspec

from podgate.joints import Compiled, Follower, Inputs, Step
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.credentials import own_namespace
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ApiObject
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.kinds.reports import FEATURE_LABEL, NODE_NAME, NODE_REPORT, NodeReport, report_name
from podgate.model.problems import Problem, Problems, problems_by_object
from podgate.model.remembering import Remembered, RememberedSome
from podgate.model.snapshot import Absent, Kind, Listed, Snapshot, Watch
from podgate.model.table import Table, mapped
from podgate.observe.requests import OnRequest, uncounted
from podgate.targets.kubernetes.apply import KubernetesTarget
from podgate.targets.kubernetes.leading import Leadership
from podgate.targets.kubernetes.reports import (
    Heard,
    Reporter,
    Tells,
    heard,
    notices,
    report_of,
    said,
    statuses,
)
from podgate.targets.kubernetes.state import EMPTY, State, state_of

StatesT = TypeVar("StatesT")
S = TypeVar("S")

REPORTS_PER_SECOND: Final = 500.0
"""Of all nodes together, after an edit that all of them report: as many as there are kubelets' heartbeats."""

STATUS_SPREAD: Final = 2.0
"""Seconds over which the leader gathers reports: each write of a status goes to all nodes that watch the object."""

RESYNC: Final = 300.0
"""Seconds after which what is written is read again: others may change it, and a kind be installed late."""

_SAID: Final = 16
"""Different lists of objects in reports, of which is remembered what they say: one may be as long as a megabyte."""

_NOT_LEADING: Final = Absent("not leading")

Complaints = Mapping[ObjectRef, tuple[Problem, ...]]
Objects = Mapping[str, tuple[Kind[Any], Mapping[ObjectRef, ApiObject]]]


class Told(Frozen, Generic[StatesT], frozen=True):
    """A feature's states, and what is to be told beside them is made of; only the step that tells it makes it."""

    own: StatesT
    compiled: Compiled[StatesT]
    inputs: Inputs


class Telling:
    """What one process tells.

    Args:
        feature: its name.
        tells: what it says about objects of its own kind; None where it has none.
        watches: what it watches, of which Events may be told.
        access: to the API.
        node_name: this node's name.

        told: told of each request to the API.

    Attributes:
        watches: what must be watched, the feature's own watches among it.
        lead: told whether we lead, for what a leader alone watches; to be set before the steps run.
    """

    def __init__(
        self,
        feature: str,
        tells: Tells | None,
        watches: tuple[Watch, ...],
        access: Access,
        node_name: str,
        *,
        told: OnRequest = uncounted,
    ) -> None:
        self._feature = object_name(feature)
        self._tells = tells
        self._access, self._requests = access, told
        self._node = node_name
        self._manager = manager_of(feature)
        self._kinds = {watch.kind.kind: watch.kind for watch in watches}
        self._told_by = 0
        self._divided = Remembered(_divided)
        read = RememberedSome(said, _SAID)
        self._heard_of: mapped[ObjectRef, NodeReport, Heard] = mapped(lambda _ref, report: heard(report, read))
        self.lead: Callable[[bool], None] = lambda _leads: None
        self._all_nodes = NODE if Watch(NODE) in watches else NODE_NAME
        more = [Watch(NODE_REPORT, label_selector=f"{FEATURE_LABEL}={self._feature}", by_leader=True)]
        if self._all_nodes is NODE_NAME:
            more.append(Watch(NODE_NAME, by_leader=True))
        if NODE.kind not in self._kinds:
            more.append(Watch(NODE, field_selector=f"metadata.name={node_name}"))
        self.watches = (*watches, *more)

    def compiler(self, inner: Callable[[Inputs], Compiled[StatesT]]) -> Callable[[Inputs], Compiled[Told[StatesT]]]:
        """Give a compiler of what is to be told, around the feature's own."""

        def compile_told(inputs: Inputs) -> Compiled[Told[StatesT]]:
            compiled = inner(inputs)
            told = Told(compiled.states, compiled, inputs)
            return msgspec.structs.replace(compiled, states=told)  # type: ignore[arg-type]

        return compile_told

    def steps(self, inner: tuple[Step[StatesT, Any, Any], ...]) -> tuple[Step[Told[StatesT], Any, Any], ...]:
        """Give the feature's own steps, and two more."""
        written = tuple(step.name for step in inner if step.essential)
        connection = Connection(self._access, told=self._requests)
        namespace, identity = self._access.namespace, f"{self._node}_{uuid4().hex[:8]}"
        leadership = Leadership(
            connection,
            namespace,
            self._manager,
            identity,
            self._manager,
            candidates=lambda: self._told_by or leadership.told(),
            heard=self._heard,
        )
        report = Watch(NODE_REPORT, field_selector=f"metadata.name={report_name(self._feature, self._node)}")
        node: Step[Told[StatesT], Any, Any] = Step(
            "kubernetes/node",
            KubernetesTarget(Connection(self._access, told=self._requests), [report], self._manager, self._node),
            self.of_node,
            EMPTY,
            knows=lambda told: self._reporter(told.inputs) is not None and self._is_listed(told.inputs),
            recovers=False,
            after=written,
            resync=lambda _told: RESYNC,
            spread=lambda _told: leadership.told() / REPORTS_PER_SECOND,
            essential=False,
        )
        own_kind = [Watch(self._tells.kind)] if self._tells else []
        status: Step[Told[StatesT], Any, Any] = Step(
            "kubernetes/status",
            KubernetesTarget(connection, own_kind, self._manager, self._node, leadership),
            self.of_cluster,
            EMPTY,
            knows=lambda told: self._leads(told.inputs) and self._is_listed(told.inputs),
            recovers=False,
            resync=lambda _told: RESYNC,
            spread=lambda _told: STATUS_SPREAD,
            essential=False,
        )
        return (*(_lifted(step) for step in inner), node, status)

    def _heard(self, leads: bool) -> None:
        self.lead(leads)

    def of_node(self, told: Told[Any]) -> State:
        """Say what this node says; nothing where the API does not know it."""
        compiled, objects = told.compiled, told.inputs.objects
        reporter = self._reporter(told.inputs)
        if reporter is None:
            return EMPTY
        applied: Mapping[ObjectRef, ApiObject] = objects.objects(self._tells.kind) if self._tells else {}
        instead = self._tells.instead(compiled, told.inputs) if self._tells else {}
        report = report_of(self._manager, self._feature, reporter, applied, instead)
        own, _ = self._divided(compiled.problems, self._node)
        # What one node cannot do others may, so it tells of that itself, whoever leads.
        refused = problems_by_object(compiled.refusals(told.inputs.refused))
        known = self._objects(objects)
        told_of = [notice for part in (own, refused) for notice in notices(part, known, skipped={})]
        return state_of([report], told_of)

    def of_cluster(self, told: Told[Any]) -> State:
        """Say what a leader says."""
        compiled, inputs = told.compiled, told.inputs
        found = inputs.objects.kinds.get(NODE_REPORT.kind)
        reports = self._counted(found.objects, inputs.objects) if isinstance(found, Listed) else None
        self._told_by = len(reports or ())
        _, others = self._divided(compiled.problems, self._node)
        if self._tells is None:
            return state_of([], notices(others, self._objects(inputs.objects), skipped={}))
        instead = self._tells.instead(compiled, inputs)
        conditions = self._tells.conditions(compiled, inputs)
        objects = inputs.objects.objects(self._tells.kind)
        parts = statuses(objects, conditions, reports)
        return state_of(parts, notices(others, self._objects(inputs.objects), skipped=instead))

    def _counted(self, reports: Table[ObjectRef, NodeReport], objects: Snapshot) -> list[Heard]:
        """Give what is said for our feature, by nodes that there are: anybody who may report can make more reports."""
        nodes = objects.kinds.get(self._all_nodes.kind)
        names = {ref.name for ref in nodes.objects} if isinstance(nodes, Listed) else None
        told = self._heard_of(reports).values()
        return [each for each in told if each.feature == self._feature and (names is None or each.node in names)]

    def _reporter(self, inputs: Inputs) -> Reporter | None:
        """Give this node; None where the API does not know it: then nothing is said, and nothing taken back."""
        own = inputs.objects.objects(NODE).get(ObjectRef(NODE.kind, self._node))
        return Reporter(self._node, own.metadata.uid) if own is not None and own.metadata.uid else None

    def _is_listed(self, inputs: Inputs) -> bool:
        """Say whether it is known which objects there are of the feature's own kind."""
        return self._tells is None or isinstance(inputs.objects.kinds.get(self._tells.kind.kind), Listed)

    def _leads(self, inputs: Inputs) -> bool:
        """Say whether we lead, and have asked what the nodes say, and which there are."""
        asked = (inputs.objects.kinds.get(kind.kind) for kind in (NODE_REPORT, self._all_nodes))
        return all(each is not None and each != _NOT_LEADING for each in asked)

    def _objects(self, snapshot: Snapshot) -> Objects:
        return {name: (kind, snapshot.objects(kind)) for name, kind in self._kinds.items()}


def object_name(feature: str) -> str:
    """Give a feature's name as objects may have it: they know no underscore."""
    return feature.replace("_", "-")


def manager_of(feature: str) -> str:
    """Give the field manager of a feature's agents, which is also the name of the Lease for which they ask."""
    return f"podgate-{object_name(feature)}"


def telling(
    feature: Any, watches: tuple[Watch, ...], access: Access, node_name: str, *, told: OnRequest = uncounted
) -> Telling:
    """Make the telling of a feature; one whose objects have a status has ``tells``."""
    at_home = msgspec.structs.replace(access, namespace=own_namespace(access))
    return Telling(feature.name, getattr(feature, "tells", None), watches, at_home, node_name, told=told)


def _divided(problems: Problems, node_name: str) -> tuple[Complaints, Complaints]:
    """Divide complaints into those that this node alone knows of, about itself and its Pods, and all others."""
    own: dict[ObjectRef, tuple[Problem, ...]] = {}
    others: dict[ObjectRef, tuple[Problem, ...]] = {}
    for ref, items in problems.items():
        part = own if ref.kind == POD.kind or ref == ObjectRef(NODE.kind, node_name) else others
        part[ref] = items
    return own, others


class _Lifted(Generic[StatesT, S]):
    """A follower of the feature's states, for what holds them."""

    def __init__(self, inner: Follower[StatesT, S]) -> None:
        self._inner = inner

    @property
    def from_start(self) -> bool:
        """As the inner one."""
        return self._inner.from_start

    async def follow(self, before: Told[StatesT] | None, after: Told[StatesT], found: S | None) -> str:
        """Have the inner one follow."""
        return await self._inner.follow(None if before is None else before.own, after.own, found)


def _lifted(step: Step[StatesT, Any, Any]) -> Step[Told[StatesT], Any, Any]:
    """Give a step of the feature as a step of what holds its states; whatever asks for states is handed its own."""
    followers = tuple(_Lifted(follower) for follower in step.followers)
    asked = {name: _of_own(getattr(step, name)) for name in _ASK_STATES}
    return cast("Step[Told[StatesT], Any, Any]", msgspec.structs.replace(step, followers=followers, **asked))


_ASK_STATES: Final = ("want", "resync", "spread", "knows", "gap")
"""The fields of a step that are asked with the states."""


def _of_own(ask: Callable[[StatesT], Any]) -> Callable[[Told[StatesT]], Any]:
    return lambda told: ask(told.own)
