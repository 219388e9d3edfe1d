"""Services and EndpointSlices as they are in clusters, for benchmarks of the API.

Here: objects of a realistic size, of the kinds that a service proxy reads. Not here: servers.
Invariant: an object depends on its number alone, so that two processes agree on what is expected.
"""

from typing import Any, Final

from podgate.model.kinds.config import NAMESPACE
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.services import SERVICE
from podgate.model.snapshot import Kind

Obj = dict[str, Any]


KINDS: Final[dict[str, Kind[Any]]] = {"Namespace": NAMESPACE, "Service": SERVICE, "EndpointSlice": ENDPOINT_SLICE}


def managed(manager: str, *fields: str) -> list[Obj]:
    """Give ``managedFields`` as a server sends them along: about a third of an object."""
    tree: Obj = {f"f:{field}": {".": {}, "f:x": {}} for field in fields}
    return [{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
             "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": tree}, "f:spec": tree}}]  # fmt: skip


def service(number: int, version: int) -> Obj:
    """Give a Service about as large as they are in clusters."""
    address = f"10.{number >> 14}.{number >> 7 & 127}.{number & 127}"
    name = f"service-{number}"
    metadata = {"name": name, "namespace": f"ns-{number % 300}", "uid": f"0f3c1a52-7d2e-4b7e-9c1d-{number:012d}",
                "resourceVersion": str(version), "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": name, "app.kubernetes.io/managed-by": "Helm"},
                "managedFields": managed("helm", "ports", "selector", "type", "sessionAffinity", "ip")}  # fmt: skip
    ports = [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]
    spec = {"ports": ports, "selector": {"app": name}, "clusterIP": address, "clusterIPs": [address],
            "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster"}  # fmt: skip
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}


def endpoint_slice(number: int, version: int, node: int = 0) -> Obj:
    """Give the slice of that Service, with three endpoints."""
    metadata = {"name": f"service-{number}-x7k2p", "namespace": f"ns-{number % 300}",
                "generateName": f"service-{number}-", "uid": f"1f3c1a52-7d2e-4b7e-9c1d-{number:012d}",
                "resourceVersion": str(version), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kubernetes.io/service-name": f"service-{number}",
                           "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "managedFields": managed("kube-controller-manager", "endpoints", "ports", "addressType")}  # fmt: skip
    endpoints = [
        {"addresses": [f"10.1{each}.{number >> 8 & 255}.{number & 255}"],
         "nodeName": f"node-{(number + each + node) % 500}",
         "conditions": {"ready": True, "serving": True, "terminating": False},
         "targetRef": {"kind": "Pod", "namespace": f"ns-{number % 300}", "name": f"service-{number}-5c9d-{each}",
                       "uid": f"2f3c1a52-7d2e-4b7e-9c1d-{number:012d}"}}
        for each in range(3)
    ]  # fmt: skip
    return {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata, "addressType": "IPv4",
            "endpoints": endpoints, "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]}  # fmt: skip
