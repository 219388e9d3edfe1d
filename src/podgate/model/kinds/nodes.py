"""Nodes, as far as their addresses, Pod ranges and taints go.

Here: the Node struct and its Kind value. Not here: what this machine itself has (podgate.model.machine).
Invariant: ranges and addresses are the API's text; who uses one parses it, and complains about that object.
"""

from typing import Final

import msgspec

from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.snapshot import Kind


class NodeAddress(ApiStruct, frozen=True, rename="camel", gc=False):
    """One address of a node; ``type`` is ``InternalIP``, ``ExternalIP``, ``Hostname``, ``InternalDNS`` or such."""

    type: str = ""
    address: str = ""


class Taint(ApiStruct, frozen=True, rename="camel", gc=False):
    """A mark on a node that keeps Pods away, or says what is done with it."""

    key: str = ""


class NodeSpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """``podCIDR`` is the first of ``podCIDRs``; older objects have only the former. Use ``Node.pod_ranges``."""

    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")
    taints: tuple[Taint, ...] = ()


class NodeStatus(ApiStruct, frozen=True, rename="camel", gc=False):
    """The addresses that the kubelet or the cloud reported."""

    addresses: tuple[NodeAddress, ...] = ()


class Node(ApiStruct, frozen=True, rename="camel", gc=False):
    """A node of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def pod_ranges(self) -> tuple[str, ...]:
        """The node's Pod ranges, one per family at most: ``podCIDRs``, else ``podCIDR`` alone, else none."""
        return self.spec.pod_cidrs or ((self.spec.pod_cidr,) if self.spec.pod_cidr else ())


NODE: Final[Kind[Node]] = Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False, decodes_to=Node)
