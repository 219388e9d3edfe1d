"""Kinds of networking.k8s.io: the ranges that cluster IPs come from.

Here: the ServiceCIDR struct and its Kind value. Not here: allocated addresses (IPAddress), policies, ingresses.
Invariant: ranges are the API's text.
"""

from typing import Final

from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.snapshot import Kind


class ServiceCIDRSpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """One range per family at most."""

    cidrs: tuple[str, ...] = ()


class ServiceCIDR(ApiStruct, frozen=True, rename="camel", gc=False):
    """Ranges that cluster IPs come from (KEP-1880, Kubernetes 1.33)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceCIDRSpec = ServiceCIDRSpec()


SERVICE_CIDR: Final[Kind[ServiceCIDR]] = Kind(
    group="networking.k8s.io",
    version="v1",
    kind="ServiceCIDR",
    plural="servicecidrs",
    namespaced=False,
    decodes_to=ServiceCIDR,
)
