"""The two places that objects come from, for tests that must pass with both: a folder, and a real API server.

Here: putting and removing an object in each, what an agent is told about where they are. Not here: the way of an
agent to the API server (kube_proxy.py), what a test does with them.
Invariant: both show an agent the same objects; what a test put is gone when its origin is left.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from tests.support.cluster import ControlPlane
from tests.support.poll import poll

Obj = dict[str, Any]

PLURALS: Final = {
    "ConfigMap": "configmaps",
    "Namespace": "namespaces",
    "Node": "nodes",
    "Pod": "pods",
    "MasqueradePolicy": "masqueradepolicies",
    "MetadataPolicy": "metadatapolicies",
}


class Origin(Protocol):
    """Where objects come from."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What tells an agent of it."""
        ...

    def put(self, obj: Obj) -> None:
        """Make an object, or change it."""
        ...

    def remove(self, obj: Obj) -> None:
        """Delete an object."""
        ...


class Folder:
    """A folder of manifests, one file per object."""

    def __init__(self, path: Path) -> None:
        self._path = path / "objects"
        self._path.mkdir()
        self._fresh = path / "fresh"
        self.arguments = ("--source", str(self._path))

    def put(self, obj: Obj) -> None:
        self._fresh.write_text(json.dumps(obj))
        self._fresh.rename(self._file(obj))

    def remove(self, obj: Obj) -> None:
        self._file(obj).unlink()

    def _file(self, obj: Obj) -> Path:
        metadata = obj["metadata"]
        return self._path / f"{obj['kind']}.{metadata.get('namespace', '')}.{metadata['name']}.json"


class Api:
    """The API server of a control plane, written to as its administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._made: list[Obj] = []
        self.arguments = ("--kubeconfig", str(plane.kubeconfig))

    def put(self, obj: Obj) -> None:
        if obj not in self._made:
            self._made.append(obj)
        if self._plane.get(self._path(obj))[0] == 404:
            self._make(obj)
        else:
            self._change(obj, "", lambda live: _merged(live, obj))
        if "status" in obj:
            self._change(obj, "/status", lambda live: {**live, "status": {**live["status"], **obj["status"]}})

    def remove(self, obj: Obj) -> None:
        body = {"gracePeriodSeconds": 0} if obj["kind"] == "Pod" else None
        self._plane.request("DELETE", self._path(obj), body)

    def remove_all(self) -> None:
        for obj in reversed(self._made):
            self.remove(obj)

    def _make(self, obj: Obj) -> None:
        path = self._path(obj).rpartition("/")[0]
        if obj["kind"] == "Pod":
            # A controller makes the account that every Pod has.
            accounts = f"/api/v1/namespaces/{obj['metadata']['namespace']}/serviceaccounts/default"
            poll(lambda: self._plane.get(accounts)[0] == 200)
        code, answer = self._plane.request("POST", path, obj)
        assert code == 201, answer

    def _change(self, obj: Obj, below: str, changed: Callable[[Obj], Obj]) -> None:
        """Replace what is there; again when a controller changed it meanwhile."""

        def replaced() -> bool:
            live = json.loads(self._plane.get(self._path(obj))[1])
            code, answer = self._plane.request("PUT", self._path(obj) + below, changed(live))
            assert code in (200, 409), answer
            return code == 200

        poll(replaced)

    @staticmethod
    def _path(obj: Obj) -> str:
        version, namespace = obj["apiVersion"], obj["metadata"].get("namespace", "")
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{base}{within}/{PLURALS[obj['kind']]}/{obj['metadata']['name']}"


def _merged(live: Obj, obj: Obj) -> Obj:
    """Give an object with the labels of another, and its other fields; of a Pod, the API lets little else change."""
    labels = {**live["metadata"].get("labels", {}), **obj["metadata"].get("labels", {})}
    kept = ("metadata", "status", *(("spec",) if obj["kind"] == "Pod" else ()))
    fields = {name: value for name, value in obj.items() if name not in kept}
    return {**live, **fields, "metadata": {**live["metadata"], "labels": labels}}
