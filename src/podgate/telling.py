"""Telling: what a feature says in the API that its objects come from: reports, statuses and Events.

Here: two steps beside the feature's own, and the states that they need, the same for every feature. Not here: what
they say (targets/kubernetes/reports.py and the feature's to_kubernetes.py), requests.
Invariant: neither step is essential: an API that takes none of it changes nothing on the node. Nothing is told about
what comes from files.

The step kubernetes/node writes this node's own report, once its rules are committed, and Events of its own Node and
Pods. Of all nodes one leads, and its step kubernetes/status says the rest.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

import msgspec

from podgate.joints import Compiled, Follower, Inputs, Step
from podgate.kubeapi.access import Access
from podgate.kubeapi.connection import Connection
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ApiObject
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.kinds.reports import FEATURE_LABEL, NODE_REPORT
from podgate.model.problems import Problem, Problems
from podgate.model.remembering import Remembered
from podgate.model.snapshot import Absent, Kind, Snapshot, Watch
from podgate.targets.kubernetes.apply import KubernetesTarget
from podgate.targets.kubernetes.leading import Leadership
from podgate.targets.kubernetes.reports import Reporter, Tells, notices, report_name, report_of, statuses
from podgate.targets.kubernetes.state import EMPTY, State, state_of

StatesT = TypeVar("StatesT")

REPORTS_PER_SECOND: Final = 500.0
"""Of all nodes together, after an edit that all of them report: as many as there are kubelets' heartbeats."""

STATUS_SPREAD: Final = 2.0
"""Seconds over which the leader gathers reports: each write of a status goes to all nodes that watch the object."""

RESYNC: Final = 300.0
"""Seconds after which what is written is read again: others may change it, and a kind be installed late."""

Complaints = Mapping[ObjectRef, tuple[Problem, ...]]
Objects = Mapping[str, tuple[Kind[Any], Mapping[ObjectRef, ApiObject]]]


class Told(Frozen, Generic[StatesT], frozen=True):
    """A feature's states, and what is to be told beside them.

    Attributes:
        own: the feature's.
        node: what this node says of itself; None while the API does not know it.
        cluster: what the leader says; None while we do not lead, or do not know yet what the nodes say.
        nodes: how many of the cluster are known.
    """

    own: StatesT
    node: State | None = None
    cluster: State | None = None
    nodes: int = 1


class Telling:
    """What one process tells.

    Args:
        feature: its name.
        tells: what it says about objects of its own kind; None where it has none.
        watches: what it watches, of which Events may be told.
        access: to the API.
        node_name: this node's name.

    Attributes:
        watches: what must be watched, the feature's own watches among it.
        lead: told whether we lead, for what a leader alone watches; to be set before the steps run.
    """

    def __init__(
        self, feature: str, tells: Tells | None, watches: tuple[Watch, ...], access: Access, node_name: str
    ) -> None:
        self._feature = feature.replace("_", "-")  # names of objects know no underscore
        self._tells = tells
        self._access = access
        self._node = node_name
        self._manager = f"podgate-{self._feature}"
        self._kinds = {watch.kind.kind: watch.kind for watch in watches}
        self._told_by = 1
        self._divided = Remembered(_divided)
        self.lead: Callable[[bool], None] = lambda _leads: None
        more = [Watch(NODE_REPORT, label_selector=f"{FEATURE_LABEL}={self._feature}", by_leader=True)]
        if NODE.kind not in self._kinds:
            more.append(Watch(NODE, field_selector=f"metadata.name={node_name}"))
        self.watches = (*watches, *more)

    def compiler(self, inner: Callable[[Inputs], Compiled[StatesT]]) -> Callable[[Inputs], Compiled[Told[StatesT]]]:
        """Give a compiler of what is to be told, around the feature's own."""

        def compile_told(inputs: Inputs) -> Compiled[Told[StatesT]]:
            compiled = inner(inputs)
            instead = self._tells.instead(compiled, inputs) if self._tells else {}
            local, general = self._divided(compiled.problems, self._node)
            nodes = len(inputs.objects.objects(NODE))
            node = self._of_node(inputs.objects, local, instead)
            told = Told(compiled.states, node, self._of_cluster(inputs, compiled, general, instead), nodes)
            return msgspec.structs.replace(compiled, states=told)  # type: ignore[arg-type]

        return compile_told

    def steps(self, inner: tuple[Step[StatesT, Any, Any], ...]) -> tuple[Step[Told[StatesT], Any, Any], ...]:
        """Give the feature's own steps, and two more."""
        written = tuple(step.name for step in inner if step.essential)
        report = Watch(NODE_REPORT, field_selector=f"metadata.name={report_name(self._feature, self._node)}")
        node: Step[Told[StatesT], Any, Any] = Step(
            "kubernetes/node",
            KubernetesTarget(Connection(self._access), [report], self._manager, self._node),
            lambda told: told.node or EMPTY,
            EMPTY,
            knows=lambda told: told.node is not None,
            recovers=False,
            after=written,
            resync=lambda _told: RESYNC,
            spread=lambda told: told.nodes / REPORTS_PER_SECOND,
            essential=False,
        )
        connection = Connection(self._access)
        namespace, identity = self._access.namespace, f"{self._node}_{uuid4().hex[:8]}"
        leadership = Leadership(
            connection,
            namespace,
            self._manager,
            identity,
            self._manager,
            candidates=lambda: self._told_by,
            heard=self._heard,
        )
        own_kind = [Watch(self._tells.kind)] if self._tells else []
        status: Step[Told[StatesT], Any, Any] = Step(
            "kubernetes/status",
            KubernetesTarget(connection, own_kind, self._manager, self._node, leadership),
            lambda told: told.cluster or EMPTY,
            EMPTY,
            knows=lambda told: told.cluster is not None,
            recovers=False,
            resync=lambda _told: RESYNC,
            spread=lambda _told: STATUS_SPREAD,
            essential=False,
        )
        return (*(_lifted(step) for step in inner), node, status)

    def _heard(self, leads: bool) -> None:
        self.lead(leads)

    def _of_node(self, snapshot: Snapshot, problems: Complaints, instead: Mapping[ObjectRef, str]) -> State | None:
        """Say what this node says; one that the API does not know says nothing, and takes nothing back."""
        own = snapshot.objects(NODE).get(ObjectRef(NODE.kind, self._node))
        if own is None or not own.metadata.uid:
            return None
        objects: Mapping[ObjectRef, ApiObject] = snapshot.objects(self._tells.kind) if self._tells else {}
        report = report_of(self._manager, self._feature, Reporter(self._node, own.metadata.uid), objects, instead)
        return state_of([report], notices(problems, self._objects(snapshot), skipped={}))

    def _of_cluster(
        self, inputs: Inputs, compiled: Compiled[Any], problems: Complaints, instead: Mapping[ObjectRef, str]
    ) -> State | None:
        """Say what a leader says; nobody else goes to that length."""
        found = inputs.objects.kinds.get(NODE_REPORT.kind)
        if found is None or (isinstance(found, Absent) and found.why == "not leading"):
            return None
        reports = None if isinstance(found, Absent) else found.objects
        self._told_by = len(reports or ())
        told = notices(problems, self._objects(inputs.objects), skipped=instead)
        if self._tells is None:
            return state_of([], told)
        conditions = self._tells.conditions(compiled, inputs)
        objects = inputs.objects.objects(self._tells.kind)
        return state_of(statuses(objects, conditions, None if reports is None else reports.values()), told)

    def _objects(self, snapshot: Snapshot) -> Objects:
        return {name: (kind, snapshot.objects(kind)) for name, kind in self._kinds.items()}


def telling(feature: Any, watches: tuple[Watch, ...], access: Access, node_name: str) -> Telling:
    """Make the telling of a feature; one whose objects have a status has ``tells``."""
    return Telling(feature.name, getattr(feature, "tells", None), watches, access, node_name)


def _divided(problems: Problems, node_name: str) -> tuple[Complaints, Complaints]:
    """Divide complaints into those that this node alone knows of, about itself and its Pods, and all others."""
    own: dict[ObjectRef, tuple[Problem, ...]] = {}
    others: dict[ObjectRef, tuple[Problem, ...]] = {}
    for ref, items in problems.items():
        part = own if ref.kind == POD.kind or ref == ObjectRef(NODE.kind, node_name) else others
        part[ref] = items
    return own, others


class _Lifted(Generic[StatesT]):
    """A follower of the feature's states, for what holds them."""

    def __init__(self, inner: Follower[StatesT]) -> None:
        self._inner = inner

    @property
    def from_start(self) -> bool:
        """As the inner one."""
        return self._inner.from_start

    async def follow(self, before: Told[StatesT] | None, after: Told[StatesT]) -> str:
        """Have the inner one follow."""
        return await self._inner.follow(None if before is None else before.own, after.own)


def _lifted(step: Step[StatesT, Any, Any]) -> Step[Told[StatesT], Any, Any]:
    """Give a step of the feature as a step of what holds its states."""
    return Step(
        name=step.name,
        target=step.target,
        want=lambda told: step.want(told.own),
        empty=step.empty,
        after=step.after,
        followers=tuple(_Lifted(follower) for follower in step.followers),
        resync=lambda told: step.resync(told.own),
        essential=step.essential,
        in_process=step.in_process,
        live=step.live,
        spread=lambda told: step.spread(told.own),
        knows=lambda told: step.knows(told.own),
        recovers=step.recovers,
    )
