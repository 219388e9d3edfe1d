"""Inputs of services: manifests and a machine as a node sees them.

Here: objects as plain values to Inputs, through the code that reads manifests. Not here: what they mean.
Invariant: an object that does not decode fails the test, unless it asks for faults.
"""

import json
from collections.abc import Iterable, Mapping
from ipaddress import ip_interface
from typing import Any

from podgate.features.services.compile import watches
from podgate.features.services.settings import Settings
from podgate.joints import Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.pods import POD
from podgate.model.machine import Address, Interface, Machine
from podgate.model.snapshot import Absent, Listed, Snapshot, Watch
from podgate.model.table import Table
from podgate.sources.objects import Wanted, read_objects

Objects = Iterable[Mapping[str, Any]]


def node_object(name: str, *addresses: str, zone: str = "", pod_ranges: Iterable[str] = ()) -> dict[str, Any]:
    """Give a Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone} if zone else {}},
        "spec": {"podCIDRs": list(pod_ranges)},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def service_range(*ranges: str) -> dict[str, Any]:
    """Give a ServiceCIDR."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": list(ranges)},
    }


def machine_of(*addresses: str) -> Machine:
    """Give a machine with these addresses, each with its prefix length, on eth0."""
    return Machine(
        "node-1",
        (Interface("eth0", 2),),
        tuple(Address("eth0", ip_interface(address)) for address in addresses),
    )


def snapshot_of(
    objects: Objects, settings: Settings, node_name: str | None = None, absent: Mapping[str, Absent] | None = None
) -> Snapshot:
    """Give what a node watches of some objects; Pods are listed too."""
    watched = (*watches(settings, node_name), Watch(POD))
    lines = b"\n".join(json.dumps(each).encode() for each in objects)
    read = read_objects("objects.jsonl", lines, Wanted(watched))
    tables: dict[str, dict[ObjectRef, Any]] = {watch.kind.kind: {} for watch in watched}
    for ref, found in read.objects.items():
        tables[ref.kind][ref] = found
    kinds = {kind: Listed(Table.of(table)) for kind, table in tables.items()}
    return Snapshot({**kinds, **(absent or {})}, read.problems)


def inputs_of(
    objects: Objects,
    settings: Settings,
    machine: Machine | None = None,
    absent: Mapping[str, Absent] | None = None,
) -> Inputs:
    """Give the inputs of node-1, or of the settings' node."""
    name = settings.node_name or "node-1"
    return Inputs(snapshot_of(objects, settings, name, absent), machine=Machine(name) if machine is None else machine)
