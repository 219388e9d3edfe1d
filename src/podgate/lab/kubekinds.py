"""Kinds of a Kubernetes API as the lab reads them: whole objects, as JSON has them. Pure.

Here: from the lab's kinds to the API's, and from frames to objects. Not here: which objects count (kubeview.py),
requests (kubewrites.py).
Invariant: an object has apiVersion and kind, no nulls and no managedFields, whether a list or a watch brought it.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from podgate.kubeapi.answers import refusal
from podgate.kubeapi.frames import INITIAL_END, Batch, Bookmark, Event, Gone, ListPage, NotAFrame, Put
from podgate.lab.kinds import BUILT_IN, LAB_GROUP, Object, Resource
from podgate.model.converting import without_nulls
from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Kind

WATCHED: Final = (
    "Namespace", "Node", "Pod", "ConfigMap", "Secret", "DaemonSet", "Deployment", "Host",
)  # fmt: skip
"""What the lab acts on, waits for, or mounts."""

DEFINITION: Final[Object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"hosts.{LAB_GROUP}"},
    "spec": {
        "group": LAB_GROUP,
        "scope": "Cluster",
        "names": {"kind": "Host", "plural": "hosts", "singular": "host"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            part: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for part in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}
"""The lab's own kind, which an API server does not know by itself."""


def kind_of(resource: Resource, version: str = "v1") -> Kind[Any]:
    """Give a kind of the lab as one of the API."""
    return Kind(resource.group, version, resource.kind, resource.plural, resource.namespaced, dict)


def kind_named(name: str) -> Kind[Any]:
    """Give a built-in kind by its name."""
    return kind_of(next(resource for resource in BUILT_IN if resource.kind == name))


def whole(kind: Kind[Any], value: Object) -> Object:
    """Give an object as the lab keeps it."""
    metadata = {key: part for key, part in (value.get("metadata") or {}).items() if key != "managedFields"}
    plain: Object = without_nulls({**value, "metadata": metadata})
    return {"apiVersion": kind.api_version, "kind": kind.kind, **plain}


class Whole:
    """Reads what the API answers about one kind, losing nothing. The lab's ``Decoding``."""

    def __init__(self, kind: Kind[Any]) -> None:
        self._kind = kind

    def batch(self, lines: Iterable[bytes]) -> Batch:
        """Read some lines of a watch; raises NotAFrame."""
        events: list[Event] = []
        version = of_object = ""
        for line in lines:
            frame = self._decoded(line)
            value = frame.get("object") or {}
            if frame.get("type") == "ERROR":
                events.append(refusal(500, msgspec.json.encode(value)))
                continue
            metadata = value.get("metadata") or {}
            version = str(metadata.get("resourceVersion", version))
            match frame.get("type"):
                case "ADDED" | "MODIFIED":
                    events.append(Put(self._ref(metadata), whole(self._kind, value)))
                case "DELETED":
                    events.append(Gone(self._ref(metadata)))
                case "BOOKMARK":
                    events.append(Bookmark((metadata.get("annotations") or {}).get(INITIAL_END) == "true"))
                case other:
                    raise NotAFrame(f"a watch of {self._kind.kind} sent the type {other!r}")
            if frame.get("type") != "BOOKMARK":
                of_object = version
        return Batch(tuple(events), version, of_object)

    def page(self, body: bytes) -> ListPage:
        """Read one page of a list; raises NotAFrame."""
        value = self._decoded(body)
        metadata = value.get("metadata") or {}
        items = value.get("items") or ()
        puts = tuple(Put(self._ref(item.get("metadata") or {}), whole(self._kind, item)) for item in items)
        return ListPage(puts, str(metadata.get("resourceVersion", "")), str(metadata.get("continue", "")))

    def _decoded(self, data: bytes) -> Object:
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise NotAFrame(f"no JSON object about {self._kind.kind}: {error}") from error

    def _ref(self, metadata: Object) -> ObjectRef:
        if not isinstance(metadata.get("name"), str):
            raise NotAFrame(f"an object of {self._kind.kind} without a name")
        namespace = str(metadata.get("namespace", "")) if self._kind.namespaced else ""
        return ObjectRef(self._kind.kind, metadata["name"], namespace)
