"""A cluster in memory: a store, the controllers, and a kubelet that gets Pods ready at once.

Here: what the controllers' tests drive. Not here: files and processes.
Invariant: ``settle`` ends when no controller wants anything, and fails when that never happens.
"""

import itertools
from typing import Any

from podgate.lab.applying import applied
from podgate.lab.controllers import Put, Remove, Write, reconcile
from podgate.lab.controllers.writes import performed
from podgate.lab.kinds import Object, known, ref_of
from podgate.lab.manifests import understood
from podgate.model.frozen import ObjectRef

ROUNDS = 100


class World:
    """Objects by reference; users apply and delete, controllers and the kubelet react."""

    def __init__(self, *, graceful: bool = False) -> None:
        self.objects: dict[ObjectRef, Object] = {}
        self.graceful = graceful
        self.broken: set[str] = set()
        """Images whose Pods never get ready."""
        self._uids = (f"uid-{number}" for number in itertools.count(1))
        self.apply("{apiVersion: v1, kind: Namespace, metadata: {name: default}}")

    def apply(self, text: str) -> None:
        manifests = understood({"test.yaml": text.encode()}, known(self.objects.values()))
        assert manifests.complaints == ()
        for obj in manifests.objects:
            self._put(applied(self.objects.get(ref_of(obj)), obj))

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        resource = known(self.objects.values()).named(kind)
        assert resource is not None
        ref = ObjectRef(resource.kind, name, namespace if resource.namespaced else "")
        assert ref in self.objects
        self._delete(ref)

    def discard(self, ref: ObjectRef) -> None:
        """Delete an object if it is there."""
        self._delete(ref)

    def step(self) -> tuple[Write, ...]:
        """Let the controllers act once, and the kubelet after them."""
        writes = reconcile(self.objects)
        for write in writes:
            if isinstance(write, Put):
                self._put(write.obj)
            elif isinstance(write, Remove):
                self._delete(write.ref)
            else:
                self.objects = dict(performed(self.objects, [write]))
        return writes

    def kubelet(self) -> bool:
        """Start one round of Pods and end those that terminate; give whether anything happened."""
        moved = False
        for ref, pod in list(self.objects.items()):
            if ref.kind != "Pod":
                continue
            if "deletionTimestamp" in pod["metadata"]:
                del self.objects[ref]
                moved = True
            elif "podIP" in pod.get("status", {}) and pod["status"].get("phase") != "Running":
                ready = pod["spec"]["containers"][0].get("image") not in self.broken
                conditions = [*pod["status"].get("conditions", ()), {"type": "Ready", "status": str(ready)}]
                status = {**pod["status"], "phase": "Running", "conditions": conditions}
                self.objects[ref] = {**pod, "status": status}
                moved = True
        return moved

    def settle(self) -> "World":
        for _ in range(ROUNDS):
            acted = bool(self.step())
            if not self.kubelet() and not acted:
                return self
        raise AssertionError(f"not settled after {ROUNDS} rounds: {reconcile(self.objects)}")

    def of(self, kind: str) -> dict[str, Any]:
        return {ref.name: obj for ref, obj in sorted(self.objects.items()) if ref.kind == kind}

    def pods(self) -> list[tuple[str, str, str]]:
        """Give node, image and readiness of each Pod, sorted."""
        return sorted(
            (
                pod["spec"].get("nodeName", ""),
                pod["spec"]["containers"][0]["image"],
                next((c["status"] for c in pod.get("status", {}).get("conditions", ()) if c["type"] == "Ready"), ""),
            )
            for pod in self.of("Pod").values()
        )

    def condition(self, pod: str, kind: str) -> Any:
        conditions = self.of("Pod")[pod].get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == kind), None)

    def _put(self, obj: Object) -> None:
        have = self.objects.get(ref_of(obj))
        uid = have["metadata"]["uid"] if have else next(self._uids)
        status = {**(have or {}).get("status", {}), **obj.get("status", {})}
        fresh = {**obj, "metadata": {**obj["metadata"], "uid": uid}}
        self.objects[ref_of(obj)] = {**fresh, "status": status} if status else fresh

    def _delete(self, ref: ObjectRef) -> None:
        obj = self.objects.get(ref)
        if obj and self.graceful and ref.kind == "Pod" and obj["spec"].get("nodeName"):
            metadata = {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            self.objects[ref] = {**obj, "metadata": metadata}
        else:
            self.objects.pop(ref, None)


def node(name: str, more: str = "") -> str:
    return f"---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n{more}\n"


def nodes(*names: str) -> str:
    return "".join(node(name) for name in names)


def pod(name: str, *, meta: str = "", spec: str = "") -> str:
    return (
        f"---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  {meta}\n"
        f"spec:\n  {spec}\n  containers: [{{name: c, image: {name}}}]\n"
    )


def workload(kind: str, name: str = "app", image: str = "one", *, spec: str = "", pod: str = "") -> str:
    return (
        f"---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        f"spec:\n  selector: {{matchLabels: {{app: {name}}}}}\n  {spec}\n"
        f"  template:\n    metadata: {{labels: {{app: {name}}}}}\n"
        f"    spec:\n      {pod}\n      containers: [{{name: c, image: {image}}}]\n"
    )
