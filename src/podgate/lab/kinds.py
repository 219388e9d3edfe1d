"""Kinds: which kinds of object the lab knows, and how a kind and its API group become a folder's name. Pure.

Here: the table, kinds from CustomResourceDefinitions, references. Not here: the fields of a kind (shapes.py), files.
Invariant: a (group, kind) leads to exactly one ``Resource``, the same for everybody who reads the lab's directory.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.spelling import nearest

Object = dict[str, Any]
"""An object as JSON has it. Treat it as frozen: build another one instead of changing it."""

LAB_GROUP: Final = "lab.podgate.dev"


class Resource(Frozen, frozen=True):
    """A kind of object.

    Attributes:
        group: the API group; empty for the core group.
        plural: as in URLs.
        stored_only: nothing in the lab acts on it: it is kept for agents to read.
    """

    group: str
    kind: str
    plural: str
    namespaced: bool
    stored_only: bool = False

    @property
    def folder(self) -> str:
        """``daemonsets.apps``; ``pods`` for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _resources() -> tuple[Resource, ...]:
    # Group, then "Kind plural" pairs; ! marks cluster-scoped kinds, * those that nothing in the lab acts on.
    table = {
        "": "Namespace!namespaces Node!nodes Pod pods ConfigMap configmaps Secret secrets Service services"
        " ServiceAccount serviceaccounts Endpoints endpoints Event events"
        " PersistentVolume!*persistentvolumes PersistentVolumeClaim*persistentvolumeclaims"
        " ReplicationController*replicationcontrollers ResourceQuota*resourcequotas LimitRange*limitranges"
        " PodTemplate*podtemplates",
        "apps": "DaemonSet daemonsets Deployment deployments ReplicaSet replicasets"
        " StatefulSet*statefulsets ControllerRevision*controllerrevisions",
        "batch": "Job*jobs CronJob*cronjobs",
        "autoscaling": "HorizontalPodAutoscaler*horizontalpodautoscalers",
        "policy": "PodDisruptionBudget*poddisruptionbudgets",
        "discovery.k8s.io": "EndpointSlice endpointslices",
        "networking.k8s.io": "Ingress ingresses IngressClass!ingressclasses NetworkPolicy*networkpolicies"
        " ServiceCIDR!servicecidrs",
        "coordination.k8s.io": "Lease leases",
        "scheduling.k8s.io": "PriorityClass!priorityclasses",
        "storage.k8s.io": "StorageClass!*storageclasses CSIDriver!*csidrivers",
        "node.k8s.io": "RuntimeClass!*runtimeclasses",
        "rbac.authorization.k8s.io": "Role roles RoleBinding rolebindings ClusterRole!clusterroles"
        " ClusterRoleBinding!clusterrolebindings",
        "apiextensions.k8s.io": "CustomResourceDefinition!customresourcedefinitions",
        "apiregistration.k8s.io": "APIService!*apiservices",
        "admissionregistration.k8s.io": "MutatingWebhookConfiguration!*mutatingwebhookconfigurations"
        " ValidatingWebhookConfiguration!*validatingwebhookconfigurations"
        " ValidatingAdmissionPolicy!*validatingadmissionpolicies"
        " ValidatingAdmissionPolicyBinding!*validatingadmissionpolicybindings",
        LAB_GROUP: "Host!hosts",
    }
    resources = []
    for group, text in table.items():
        words = text.replace("!", " ! ").replace("*", " * ").split()
        while words:
            kind = words.pop(0)
            marks = []
            while words[0] in {"!", "*"}:
                marks.append(words.pop(0))
            resources.append(Resource(group, kind, words.pop(0), "!" not in marks, "*" in marks))
    return tuple(resources)


BUILT_IN: Final = _resources()
_HOMES: Final[Mapping[str, str]] = {resource.kind: resource.group for resource in BUILT_IN}


class Kinds:
    """The kinds that are known at one moment: the built-in ones and those that definitions add. Immutable."""

    def __init__(self, more: Iterable[Resource] = ()) -> None:
        self._more = tuple(more)
        self._by_kind: Mapping[tuple[str, str], Resource] = {
            (resource.group, resource.kind): resource for resource in (*self._more, *BUILT_IN)
        }

    def plus(self, *more: Resource) -> "Kinds":
        """Give the kinds with more of them; a built-in kind is never replaced."""
        return Kinds((*self._more, *more))

    def of(self, obj: Mapping[str, Any]) -> Resource | None:
        """Give the resource of an object by its apiVersion (any version) and kind; None if it is unknown."""
        return self._by_kind.get((group_of(obj), str(obj.get("kind", ""))))

    def of_ref(self, ref: ObjectRef) -> Resource | None:
        """Give the resource of a reference (see ``ref_of``): the built-in kind before a custom one."""
        kind, _, group = ref.kind.partition(".")
        if group:
            return self._by_kind.get((group, kind))
        found = [resource for resource in self._by_kind.values() if resource.kind == kind]
        return found[-1] if found else None

    def named(self, word: str) -> Resource | None:
        """Give the resource that a user means on the command line: kind, plural or short name, in any letter case."""
        wanted = word.lower()
        wanted = _SHORT.get(wanted, wanted)
        for resource in (*BUILT_IN, *self._more):
            if wanted in {resource.kind.lower(), resource.plural, resource.folder}:
                return resource
        return None

    def near(self, word: str) -> str | None:
        """Give the word for a kind that a mistyped one was probably meant to be; plurals before kinds."""
        plurals = [resource.plural for resource in self._by_kind.values()]
        return nearest(word, plurals) or nearest(word, self.names())

    def names(self) -> tuple[str, ...]:
        """Give all kinds, sorted, for messages."""
        return tuple(sorted({resource.kind for resource in self._by_kind.values()}))

    def unknown(self, obj: Mapping[str, Any]) -> str:
        """Say why an object's kind is not known, and what to do."""
        kind, version = str(obj.get("kind", "")), str(obj.get("apiVersion", ""))
        groups = sorted(
            {resource.group or "the core group" for resource in self._by_kind.values() if resource.kind == kind}
        )
        if groups:
            return f"{kind} is of {' or '.join(groups)}, not of apiVersion {version!r}; correct apiVersion"
        ours = any(resource.group == group_of(obj) for resource in self._by_kind.values())
        near = difflib.get_close_matches(kind, self.names(), 1) if ours else []
        hint = f"did you mean {near[0]}?" if near else "apply its CustomResourceDefinition with it or before it"
        return f"the kind {kind} of apiVersion {version!r} is not known; {hint}"


_SHORT: Final = {
    "cm": "configmaps", "crd": "customresourcedefinitions", "deploy": "deployments", "ds": "daemonsets",
    "ep": "endpoints", "ing": "ingresses", "no": "nodes", "ns": "namespaces", "po": "pods", "rs": "replicasets",
    "sa": "serviceaccounts", "svc": "services",
}  # fmt: skip


def group_of(obj: Mapping[str, Any]) -> str:
    """Give the API group of an object: what stands before the slash of apiVersion; empty for ``v1``."""
    group, slash, _ = str(obj.get("apiVersion", "")).partition("/")
    return group if slash else ""


def ref_of(obj: Mapping[str, Any]) -> ObjectRef:
    """Give the reference of an object that has kind and metadata.name.

    References carry no group; where another group uses the name of a built-in kind, the kind is told with its group:
    ``Service.serving.knative.dev`` is not mistaken for a Service.
    """
    metadata, kind = obj["metadata"], str(obj["kind"])
    if _HOMES.get(kind, group_of(obj)) != group_of(obj):
        kind = f"{kind}.{group_of(obj)}"
    return ObjectRef(kind, str(metadata["name"]), str(metadata.get("namespace") or ""))


def placed(obj: Object, resource: Resource | None) -> Object:
    """Put a namespaced object without a namespace into ``default``, and a cluster-scoped one into none."""
    if resource is None:
        return obj
    metadata = obj["metadata"]
    namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
    if metadata.get("namespace", "") == namespace:
        return obj
    rest = {key: value for key, value in metadata.items() if key != "namespace"}
    return {**obj, "metadata": {**rest, **({"namespace": namespace} if namespace else {})}}


def defined_by(definition: Mapping[str, Any]) -> Resource | None:
    """Give the resource that a CustomResourceDefinition adds; None if it is not whole."""
    spec = definition.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(names, dict):
        return None
    texts = (spec.get("group"), names.get("kind"), names.get("plural"))
    if not all(isinstance(text, str) and text for text in texts):
        return None
    group, kind, plural = map(str, texts)
    return Resource(group, kind, plural, spec.get("scope") != "Cluster", stored_only=True)


def known(objects: Iterable[Mapping[str, Any]]) -> Kinds:
    """Give the built-in kinds and those that the CustomResourceDefinitions among ``objects`` define."""
    definitions = (obj for obj in objects if obj.get("kind") == "CustomResourceDefinition")
    return Kinds(filter(None, map(defined_by, definitions)))
