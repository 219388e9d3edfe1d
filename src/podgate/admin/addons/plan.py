"""Plan: what takes a cluster from what it has to what a folder asks for. Pure.

Here: the plan as data, its order, what a removal waits for. Not here: reading the folder (folder.py), reading and
changing the cluster (cluster.py).
Invariant: what is removed has the label of mode Reconcile, is of a kind that is managed, was made by this set of
add-ons, and left a folder that is whole: what stands there, with a label or without, has not left it.

A name that carries a version (``metadata-proxy-v0.1``) makes an update of two objects: the old one goes when the new
one, of the same kind, namespace and application, is ready. Two that are on the host's network want the same ports, so
there the old one goes once every Pod of the new one has started.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal

from podgate.admin.addons.folder import MODE_LABEL, Addon
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.snapshot import Kind

Verb = Literal["create", "correct", "remove", "hold", "leave"]

FIRST: Final = (
    "Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "ClusterRole", "Role",
    "ClusterRoleBinding", "RoleBinding", "ConfigMap", "Secret", "Service",
)  # fmt: skip
"""Kinds in the order in which they are made: what others need comes first. Everything else follows; workloads last."""

WORKLOADS: Final = ("DaemonSet", "Deployment", "StatefulSet")

APPLICATION: Final = ("k8s-app", "app.kubernetes.io/name", "app")
"""Labels that say of which application an object is; the first that both carry counts."""

PART: Final = ("app.kubernetes.io/component", "app.kubernetes.io/instance")
"""Labels that say which part of an application it is: there must be no difference in them."""


class WantedAddon(Frozen, frozen=True):
    """An add-on whose kind the API has."""

    addon: Addon
    kind: Kind[Any]
    ref: ObjectRef

    @property
    def key(self) -> tuple[str, ObjectRef]:
        """Names the object: its group and reference."""
        return self.kind.group, self.ref


class Found(Frozen, frozen=True):
    """An object that the API has.

    Attributes:
        mode: what its label says.
        ours: this set of add-ons applied it.
        owner: another set that did; empty for none.
        controlled: it belongs to a controller, as a ReplicaSet to its Deployment.
        going: it is being deleted.
        differs: applying the manifest would change it; of one that left the folder, False.
        refused: what the API says against applying the manifest; empty for nothing.
        labels: its labels.
        on_host: of a workload: its Pods are on the host's network.
        ready: of a workload: all its Pods are of the newest generation and available.
        pods: of a workload: how many of them are, and how many there are to be.
        started: of a workload: every container of its Pods has run at least once.
    """

    kind: Kind[Any]
    ref: ObjectRef
    uid: str = ""
    mode: str = ""
    ours: bool = False
    owner: str = ""
    controlled: bool = False
    going: bool = False
    differs: bool = False
    refused: str = ""
    labels: Mapping[str, str] = {}
    on_host: bool = False
    ready: bool = False
    pods: tuple[int, int] = (0, 0)
    started: bool = False

    @property
    def key(self) -> tuple[str, ObjectRef]:
        """Names the object: its group and reference."""
        return self.kind.group, self.ref


class AddonStep(Frozen, frozen=True):
    """One thing to do, or not to do yet, or not to do at all.

    Attributes:
        verb: what.
        ref: with which object.
        why: for people.
        wanted: the add-on, to create or correct.
        found: the object, to remove.
    """

    verb: Verb
    ref: ObjectRef
    why: str = ""
    wanted: WantedAddon | None = None
    found: Found | None = None

    def __str__(self) -> str:
        """Show ``create Kind/namespace/name: why``."""
        return f"{self.verb} {self.ref}{': ' if self.why else ''}{self.why}"


class Plan(Frozen, frozen=True):
    """The steps, in the order in which they are done. Falsy when the cluster is as the folder says."""

    steps: tuple[AddonStep, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do, now or later."""
        return any(step.verb != "leave" for step in self.steps)

    def __str__(self) -> str:
        """Show one line per step."""
        return "\n".join(map(str, self.steps))

    @property
    def due(self) -> tuple[AddonStep, ...]:
        """What is to be done now."""
        return tuple(step for step in self.steps if step.verb in {"create", "correct", "remove"})


def planned(
    wanted: Iterable[WantedAddon],
    found: Iterable[Found],
    *,
    whole: bool,
    adopt: bool = False,
    unlabelled: AbstractSet[tuple[str, ObjectRef]] = frozenset(),
) -> Plan:
    """Give the plan.

    Args:
        wanted: what the folder asks for.
        found: what the API has of that, and what has the label of mode Reconcile.
        whole: the folder is understood, and so are its kinds: what is not in it has left it.
        adopt: also remove what has the label and nobody among us made, as another addon manager did.
        unlabelled: the keys of what stands in the folder without a mode.
    """
    there = {each.key: each for each in found}
    asked = {each.key: each for each in sorted(wanted, key=_order)}
    steps = [*filter(None, (_brought(each, there.get(key)) for key, each in asked.items()))]
    others = sorted((each for key, each in there.items() if key not in asked), key=_order, reverse=True)
    stay = [each for each in others if each.key in unlabelled and each.ours]
    left = [each for each in others if each.key not in unlabelled]
    told = (
        AddonStep("leave", each.ref, f"its manifest has no label {MODE_LABEL}: --mode gives it one") for each in stay
    )
    return Plan((*steps, *told, *_removals(left, asked, there, whole, adopt)))


def _brought(wanted: WantedAddon, found: Found | None) -> AddonStep | None:
    """Give what brings one object to what the folder says."""
    if found is None:
        return AddonStep("create", wanted.ref, "", wanted)
    if found.going:
        return AddonStep("hold", wanted.ref, "it is being deleted, and is made again afterwards")
    if wanted.addon.mode == "EnsureExists" or not found.differs:
        return None
    why = "" if found.ours else "it is there, made by somebody else: its fields become the manifest's"
    return AddonStep("correct", wanted.ref, found.refused or why, wanted)


def _removals(
    left: list[Found], asked: Mapping[Any, WantedAddon], there: Mapping[Any, Found], whole: bool, adopt: bool
) -> Iterator[AddonStep]:
    """Give what becomes of objects that are not in the folder; nothing goes while any workload has to stay."""
    due: list[Found] = []
    waits = False
    for each in left:
        if each.mode != "Reconcile" or each.controlled or each.going or each.owner:
            continue
        if not each.ours and not adopt:
            yield AddonStep(
                "leave", each.ref, f"it has {MODE_LABEL}=Reconcile, but is not of this set: --adopt takes it"
            )
        elif not whole:
            waits = True
            yield AddonStep("hold", each.ref, "it is not in the folder, which has mistakes")
        elif blocker := _successor_to_wait_for(each, asked, there):
            waits = True
            yield AddonStep("hold", each.ref, f"it goes when {blocker} is ready")
        else:
            due.append(each)
    for each in due:
        if waits:
            yield AddonStep("hold", each.ref, "it goes after the workloads that have to stay for now")
        else:
            yield AddonStep("remove", each.ref, "it left the folder", None, each)


def _successor_to_wait_for(
    old: Found, asked: Mapping[Any, WantedAddon], there: Mapping[Any, Found]
) -> ObjectRef | None:
    """Give the first object that takes another's place and is not there yet."""
    if old.kind.kind not in WORKLOADS:
        return None
    for key, new in asked.items():
        same = (new.kind.kind, new.ref.namespace) == (old.kind.kind, old.ref.namespace)
        if not same or not _same_application(old.labels, new.addon.body["metadata"]["labels"]):
            continue
        found = there.get(key)
        up = found is not None and not found.differs and (found.ready or (found.started and both_on_host(old, found)))
        if not up:
            return new.ref
    return None


def both_on_host(old: Found, new: Found) -> bool:
    """Say whether two workloads may want the same ports, so that one cannot wait for the other."""
    return old.on_host and new.on_host


def _same_application(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    label = next((each for each in APPLICATION if each in one and each in other), None)
    return label is not None and all(one.get(each) == other.get(each) for each in (label, *PART))


def _order(each: WantedAddon | Found) -> tuple[int, str, str, str]:
    """Give the place of an object: what others need first, workloads last."""
    kind = each.kind.kind
    place = FIRST.index(kind) if kind in FIRST else len(FIRST) + (kind in WORKLOADS)
    return place, kind, each.ref.namespace, each.ref.name
