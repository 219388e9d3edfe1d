"""Shapes: the fields of objects that the lab's controllers read, as frozen values with the API's defaults. Pure.

Here: the structs, ``view`` from an object to its struct, and ``shape_fault`` for objects that do not fit.
Not here: the fields that running a Pod needs (podspec.py); controllers copy those as they are.
Invariant: an absent field and a null have the API server's default; a field of the wrong type never gets past
``shape_fault``, which manifests and the store ask before a controller sees an object.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from podgate.lab.kinds import LAB_GROUP, Object, group_of
from podgate.model.converting import worded
from podgate.model.frozen import Frozen

Count = Annotated[int, msgspec.Meta(ge=0)]


class Shape(Frozen, frozen=True, rename="camel"):
    """Base of structs whose fields are written in camel case."""


class OwnerReference(Shape, frozen=True):
    """Who an object belongs to; garbage collection goes by ``uid``."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class Metadata(Shape, frozen=True):
    """What controllers read of metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller_uid(self) -> str:
        """The UID of the controller that this object belongs to; empty for none."""
        return next((owner.uid for owner in self.owner_references if owner.controller), "")


class Requirement(Shape, frozen=True):
    """One expression of a label or node selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Shape, frozen=True):
    """All of it must match; empty matches everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Shape, frozen=True):
    """All of it must match; empty matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Shape, frozen=True):
    """One term must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Shape, frozen=True):
    """Required rules; preferred ones are not honoured: the lab's scheduler has no scores."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Shape, frozen=True):
    """Rules about nodes."""

    node_affinity: NodeAffinity | None = None


class Toleration(Shape, frozen=True):
    """Lets a Pod onto nodes with a matching taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(Shape, frozen=True):
    """Keeps Pods off a node."""

    key: str
    effect: str
    value: str = ""


class PodSpec(Shape, frozen=True):
    """Where a Pod may run, and what its address depends on."""

    containers: Annotated[tuple[Mapping[str, Any], ...], msgspec.Meta(min_length=1)]
    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_network: bool = False
    termination_grace_period_seconds: Count | None = None


class Condition(Shape, frozen=True):
    """One condition of a status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodIP(Shape, frozen=True):
    """One address of a Pod."""

    ip: str


class PodStatus(Shape, frozen=True):
    """What controllers read of a Pod's status."""

    phase: str = "Pending"
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[Condition, ...] = ()


class Pod(Shape, frozen=True):
    """A Pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def terminating(self) -> bool:
        """Whether it was deleted and its containers have not ended yet."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def ready(self) -> bool:
        """Whether its Ready condition is true."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)


class Template(Shape, frozen=True):
    """What a controller makes Pods from."""

    spec: PodSpec
    metadata: Metadata = Metadata()


class NodeAddress(Shape, frozen=True):
    """One address of a Node."""

    type: str
    address: str


class NodeSpec(Shape, frozen=True):
    """What controllers read of a Node's spec."""

    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(Shape, frozen=True):
    """What controllers read of a Node's status."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Node(Shape, frozen=True):
    """A Node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ranges(self) -> tuple[str, ...]:
        """Its Pod ranges, as text."""
        return self.spec.pod_cidrs or ((self.spec.pod_cidr,) if self.spec.pod_cidr else ())


class RollingUpdate(Shape, frozen=True):
    """How many Pods may be missing or too many during an update: a number or a percentage."""

    max_unavailable: Count | str | None = None
    max_surge: Count | str | None = None


class Strategy(Shape, frozen=True):
    """How Pods are replaced: ``RollingUpdate``, ``OnDelete`` (DaemonSet) or ``Recreate`` (Deployment)."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DaemonSetSpec(Shape, frozen=True):
    """What is wanted of a DaemonSet."""

    selector: LabelSelector
    template: Template
    update_strategy: Strategy = Strategy()


class DaemonSet(Shape, frozen=True):
    """A DaemonSet."""

    metadata: Metadata
    spec: DaemonSetSpec


class ReplicaSetSpec(Shape, frozen=True):
    """What is wanted of a ReplicaSet."""

    selector: LabelSelector
    template: Template
    replicas: Count = 1


class ReplicaSet(Shape, frozen=True):
    """A ReplicaSet."""

    metadata: Metadata
    spec: ReplicaSetSpec


class DeploymentSpec(ReplicaSetSpec, frozen=True):
    """What is wanted of a Deployment: what its ReplicaSets hold, and how one takes the place of another."""

    strategy: Strategy = Strategy()
    paused: bool = False
    revision_history_limit: Count = 10


class Deployment(Shape, frozen=True):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec


class HostRoute(Shape, frozen=True):
    """A route of an outside machine."""

    to: str
    via: str


class HostSpec(Shape, frozen=True):
    """An outside machine: its addresses and what it runs; without a command, the echo server."""

    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    gateway: str = ""
    routes: tuple[HostRoute, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()


class Host(Shape, frozen=True):
    """A ``Host`` of the lab's own group."""

    metadata: Metadata
    spec: HostSpec


class ConfigMap(Shape, frozen=True):
    """A ConfigMap: its values are text (numbers and booleans need quotes)."""

    metadata: Metadata
    data: Mapping[str, str] = {}
    binary_data: Mapping[str, bytes] = {}


class Secret(Shape, frozen=True):
    """A Secret: ``data`` is base64, ``stringData`` plain text."""

    metadata: Metadata
    data: Mapping[str, bytes] = {}
    string_data: Mapping[str, str] = {}


class Plain(Shape, frozen=True):
    """Any other object: only its metadata is looked at."""

    metadata: Metadata


ShapeT = TypeVar("ShapeT", bound=Shape)

_SHAPES: Final[Mapping[tuple[str, str], type[Shape]]] = {
    ("", "Pod"): Pod,
    ("", "Node"): Node,
    ("", "ConfigMap"): ConfigMap,
    ("", "Secret"): Secret,
    ("apps", "DaemonSet"): DaemonSet,
    ("apps", "Deployment"): Deployment,
    ("apps", "ReplicaSet"): ReplicaSet,
    (LAB_GROUP, "Host"): Host,
}


_HINTS: Final = {
    "expected text, got true or false": "; y, n, yes, no, on and off are booleans in YAML: put text in quotes",
    "expected text, got a whole number": "; put text in quotes",
    "expected text, got a number": "; put text in quotes",
}


class ShapeFault(Frozen, frozen=True):
    """Why an object does not fit its kind: the field, and what is wrong with it."""

    field: str
    message: str


def view(obj: Object, shape: type[ShapeT]) -> ShapeT:
    """Give an object as a struct.

    Raises:
        msgspec.ValidationError: it does not fit; objects that passed ``shape_fault`` always do.
    """
    return msgspec.convert(obj, shape)


def shape_fault(obj: Object) -> ShapeFault | None:
    """Say why an object does not fit its kind; None if it does."""
    if not isinstance(obj.get("kind"), str) or not isinstance(obj.get("apiVersion"), str):
        return ShapeFault("", "an object needs apiVersion and kind, both text")
    return misfit(obj, _SHAPES.get((group_of(obj), str(obj.get("kind", ""))), Plain))


def misfit(value: Any, shape: type[msgspec.Struct], above: str = "") -> ShapeFault | None:
    """Say why a value, which stands at the path ``above``, does not fit a struct; None if it does."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        field, message = worded(str(error))
        return ShapeFault(f"{above}.{field}".strip("."), message + _HINTS.get(message, ""))
    return None
