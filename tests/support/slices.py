"""EndpointSlices as a cluster's controller writes them, for tests whose endpoints differ in address and node alone.

Here: one builder. Not here: slices with hints, or a state for each endpoint: tests of those write them out.
Invariant: a slice carries its Service's name in its label, and its own begins with it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from podgate.lab.kinds import Object


def endpoint_slice(
    service: str,
    address_type: str,
    ends: Iterable[tuple[str, str]],
    *ports: tuple[str, int, str],
    labels: Mapping[str, str] | None = None,
    conditions: Mapping[str, bool] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Object:
    """Give a slice of a Service.

    Args:
        service: the Service's name.
        address_type: ``IPv4`` or ``IPv6``, or the word of a world that stands for it.
        ends: addresses and their nodes.
        ports: names, numbers and protocols.
        labels: more labels.
        conditions: of every endpoint; empty: all are ready.
        metadata: more of it; without, the name is the Service's with ``-1``, in ``default``.
    """
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-1",
            "namespace": "default",
            **(metadata or {}),
            "labels": {**(labels or {}), "kubernetes.io/service-name": service},
        },
        "addressType": address_type,
        "endpoints": [
            {"addresses": [address], "nodeName": node, "conditions": dict(conditions or {})} for address, node in ends
        ],
        "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
    }
