"""Services and EndpointSlices of a cluster of any size, for benchmarks of the service proxy.

Here: objects as an API server or a ``.jsonl`` file gives them. Not here: measuring.
Invariant: an object depends on its number and version alone; version 1 of a slice has other endpoints than version 0.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Obj = dict[str, Any]

PODS: Final = "11.0.0.0/8"
"""The range of the endpoints."""

NAMESPACES: Final = 50


def namespace(number: int) -> str:
    """Name the namespace of a Service."""
    return f"ns-{number % NAMESPACES}"


def cluster_ip(number: int) -> str:
    """Give the cluster IP of a Service: in 10.96.0.0/12, as kubeadm has it, the first 256 left out."""
    at = number + 256
    return f"10.{96 + (at >> 16)}.{at >> 8 & 255}.{at & 255}"


def service(number: int, *, sticky: bool = False) -> Obj:
    """Give a Service."""
    metadata = {
        "name": f"s-{number}",
        "namespace": namespace(number),
        "uid": f"service-{number}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": f"s-{number}", "app.kubernetes.io/managed-by": "Helm"},
    }
    address = cluster_ip(number)
    spec = {
        "type": "ClusterIP",
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
        "sessionAffinity": "ClientIP" if sticky else "None",
        "selector": {"app": f"s-{number}"},
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
    }
    if sticky:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def slice_of(number: int, endpoints: int, *, version: int = 0, moved: int | None = None) -> Obj:
    """Give the EndpointSlice of a Service.

    Args:
        number: the Service's.
        endpoints: how many there are.
        version: of the endpoint that moved; of 0 to 3 each is another address.
        moved: the index of the one endpoint that another version has elsewhere; None for none.
    """
    labels = {"kubernetes.io/service-name": f"s-{number}", "endpointslice.kubernetes.io/managed-by": "bench"}
    metadata = {
        "name": f"s-{number}-x",
        "namespace": namespace(number),
        "uid": f"slice-{number}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
    }
    found = [_endpoint(number * endpoints + each, each, version if each == moved else 0) for each in range(endpoints)]
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": found,
    }


def _endpoint(number: int, index: int, version: int) -> Obj:
    address = f"11.{(number >> 16) + 64 * (version % 4)}.{number >> 8 & 255}.{number & 255}"
    return {
        "addresses": [address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "nodeName": f"node-{index}",
        "targetRef": {"kind": "Pod", "namespace": namespace(number), "name": f"p-{number}-{version}"},
        "zone": "zone-a",
    }


def objects(services: int, endpoints: int, *, sticky: bool = False) -> Iterator[Obj]:
    """Give all objects."""
    for number in range(services):
        yield service(number, sticky=sticky)
        yield slice_of(number, endpoints)


def write_file(path: Path, services: int, endpoints: int, *, sticky: bool = False) -> None:
    """Write a ``.jsonl`` file."""
    with path.open("w") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in objects(services, endpoints, sticky=sticky))
