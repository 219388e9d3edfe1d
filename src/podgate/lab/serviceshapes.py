"""Service shapes: what the lab reads of Services, ServiceCIDRs and EndpointSlices, with the API's defaults. Pure.

Here: the structs, and what follows from a Service's type. Not here: what an API server would refuse
(servicevalidity.py), deciding (controllers/services.py, controllers/endpointslices.py).
Invariant: what passes servicevalidity.py can be viewed as these.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from podgate.lab.shapes import Metadata, Shape

HEADLESS: Final = "None"
"""``clusterIP`` of a Service that wants none."""

Number = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class ServicePort(Shape, frozen=True):
    """One port of a Service; ``target_port`` None: the same as ``port``."""

    port: Number
    name: str = ""
    protocol: str = "TCP"
    target_port: Number | str | None = None
    node_port: Number = 0
    app_protocol: str = ""


class ServiceSpec(Shape, frozen=True):
    """What is wanted of a Service, and what it was given."""

    type: str = "ClusterIP"
    selector: Mapping[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str = ""
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    external_name: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    allocate_load_balancer_node_ports: bool | None = None
    session_affinity: str = "None"
    session_affinity_config: Mapping[str, Any] | None = None
    external_traffic_policy: str = ""
    internal_traffic_policy: str = "Cluster"
    health_check_node_port: Number = 0
    publish_not_ready_addresses: bool = False
    traffic_distribution: str = ""

    @property
    def given_ips(self) -> tuple[str, ...]:
        """Its cluster IPs, whichever of the two fields has them; ``("None",)`` for a headless one."""
        return self.cluster_ips or ((self.cluster_ip,) if self.cluster_ip else ())

    @property
    def headless(self) -> bool:
        """Whether it asks for no cluster IP."""
        return self.given_ips[:1] == (HEADLESS,)

    @property
    def named_elsewhere(self) -> bool:
        """Whether it is only another name (ExternalName), without addresses or endpoints."""
        return self.type == "ExternalName"

    @property
    def wants_node_ports(self) -> bool:
        """Whether its ports are given node ports."""
        return self.type == "NodePort" or (
            self.type == "LoadBalancer" and self.allocate_load_balancer_node_ports is not False
        )

    @property
    def wants_health_check(self) -> bool:
        """Whether load balancers ask each node for its endpoints."""
        return self.type == "LoadBalancer" and self.external_traffic_policy == "Local"


class Service(Shape, frozen=True):
    """A Service."""

    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()


class ServiceCIDRSpec(Shape, frozen=True):
    """Ranges of cluster IPs: one of each family at most."""

    cidrs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=2)]


class ServiceCIDR(Shape, frozen=True):
    """A ServiceCIDR (KEP-1880)."""

    metadata: Metadata
    spec: ServiceCIDRSpec


class EndpointPort(Shape, frozen=True):
    """One port of a slice."""

    name: str = ""
    port: Number | None = None
    protocol: str = "TCP"
    app_protocol: str = ""


class Endpoint(Shape, frozen=True):
    """One endpoint of a slice; the rest of it is made anew and compared as a whole."""

    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    target_ref: Mapping[str, str] | None = None


class EndpointSlice(Shape, frozen=True):
    """An EndpointSlice."""

    metadata: Metadata
    address_type: str
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()
