"""Add-ons and the kinds of a fake API server that has them.

Here: manifests as values. Not here: the server (tests/support).
Invariant: every kind that a set of add-ons removes is installed.
"""

from typing import Any

from podgate.admin.addons.cluster import REMOVED
from podgate.admin.addons.folder import MODE_LABEL
from tests.support.fake_apiserver import RESOURCES
from tests.support.fake_objects import Resource

MORE = (Resource(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced) for kind in REMOVED)
KINDS = tuple(dict.fromkeys((*RESOURCES, *MORE)))


def manifest(kind: str, name: str, mode: str = "Reconcile", **more: Any) -> dict[str, Any]:
    labels = {MODE_LABEL: mode, "k8s-app": name.partition("-v")[0]}
    version = "apps/v1" if kind == "DaemonSet" else "v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        **more,
    }


def daemons(version: str, *, host: bool = False) -> dict[str, Any]:
    labels = {"k8s-app": "proxy", "version": version}
    spec = {"containers": [{"name": "a", "image": version}], **({"hostNetwork": True} if host else {})}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return manifest("DaemonSet", f"proxy-{version}", spec={"selector": {"matchLabels": labels}, "template": template})
