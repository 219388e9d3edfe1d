"""The real API server as the scenarios of api_days.py want one: objects are written by a client that is none of ours.

Here: that adapter. Not here: the control plane (cluster.py).
Invariant: what the tests' label selects is gone when a test begins.
"""

import json
import ssl
from typing import Any
from urllib.parse import quote

from tests.support.api_days import LABEL
from tests.support.cluster import ControlPlane

PATHS = {
    "configmaps": "/api/v1/namespaces/{namespace}/configmaps",
    "nodes": "/api/v1/nodes",
    "gadgets": "/apis/podgate.test/v1/namespaces/{namespace}/gadgets",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


class RealApi:
    """A control plane's API server, as its administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.url = plane.server
        pki = plane.folder / "pki"
        _ = plane.kubeconfig  # makes the administrator's certificate
        self.upstream: ssl.SSLContext | None = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self.upstream.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._ask("DELETE", f"{PATHS['configmaps'].format(namespace='default')}?labelSelector={LABEL}")

    def put(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Make or replace an object."""
        path = self._path(plural, obj["metadata"].get("namespace", "default"))
        code, made = self._ask("POST", path, obj)
        if code == 409:
            path = f"{path}/{quote(obj['metadata']['name'], safe='')}"
            code, made = self._ask("PUT", path, obj)
        assert code in (200, 201), made
        return made

    def get(self, plural: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """Give an object; None where there is none."""
        code, obj = self._ask("GET", f"{self._path(plural, namespace)}/{quote(name, safe='')}")
        return obj if code == 200 else None

    def remove(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete one."""
        code, answer = self._ask("DELETE", f"{self._path(plural, namespace)}/{quote(name, safe='')}")
        assert code in (200, 202, 404), answer

    @staticmethod
    def _path(plural: str, namespace: str) -> str:
        return PATHS[plural].format(namespace=namespace)

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        code, answer = self.plane.request(method, path, body)
        assert code, answer
        return code, json.loads(answer)
