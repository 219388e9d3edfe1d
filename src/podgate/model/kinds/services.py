"""Services, as far as a proxy on a node reads them.

Here: the Service struct, the words that its fields take, its Kind value. Not here: endpoints
(podgate.model.kinds.discovery), and what other components read: selectors, ``targetPort``,
``publishNotReadyAddresses``, ``trafficDistribution``.
Invariant: addresses and ranges are the API's text; who uses one parses it, and complains about that object. Metadata is
slim, since a cluster has tens of thousands of these.
"""

from typing import Final

import msgspec

from podgate.model.kinds.meta import ApiStruct
from podgate.model.snapshot import Kind

PROXY_NAME_LABEL: Final = "service.kubernetes.io/service-proxy-name"
"""Names the proxy that a Service and its slices are for; without it they are for the cluster's default one."""


class ServiceLabels(ApiStruct, frozen=True, rename="camel", gc=False):
    """The one label that is read: whose it is; None where the label is not there."""

    proxy_name: str | None = msgspec.field(default=None, name=PROXY_NAME_LABEL)


class ServiceMeta(ApiStruct, frozen=True, rename="camel", gc=False):
    """Who it is, whose, and since when (RFC 3339 text)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    labels: ServiceLabels = ServiceLabels()


class ServicePort(ApiStruct, frozen=True, rename="camel", gc=False):
    """One port. ``name`` joins it with the ports of slices; ``node_port`` 0: none."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    node_port: int = 0


class ClientIPConfig(ApiStruct, frozen=True, rename="camel", gc=False):
    """How long a client stays with its endpoint, in seconds (API default: 3 hours)."""

    timeout_seconds: int = 10800


class SessionAffinityConfig(ApiStruct, frozen=True, rename="camel", gc=False):
    """The settings of session affinity."""

    client_ip: ClientIPConfig = msgspec.field(default=ClientIPConfig(), name="clientIP")


class ServiceSpec(ApiStruct, frozen=True, rename="camel", gc=False):
    """What is wanted. ``cluster_ip`` is the first of ``cluster_ips``; older objects have only the former."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    ports: tuple[ServicePort, ...] = ()
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    load_balancer_source_ranges: tuple[str, ...] = ()
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig = SessionAffinityConfig()
    external_traffic_policy: str = ""
    internal_traffic_policy: str = "Cluster"
    health_check_node_port: int = 0


class LoadBalancerIngress(ApiStruct, frozen=True, rename="camel", gc=False):
    """One address of a load balancer; empty where it has only a host name.

    ``ip_mode``: ``VIP`` when packets reach nodes with this destination, ``Proxy`` when not (KEP-1860).
    """

    ip: str = ""
    ip_mode: str = msgspec.field(default="VIP", name="ipMode")


class LoadBalancerStatus(ApiStruct, frozen=True, rename="camel", gc=False):
    """The addresses that a load balancer gave."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(ApiStruct, frozen=True, rename="camel", gc=False):
    """What was done for it."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(ApiStruct, frozen=True, rename="camel", gc=False):
    """A Service."""

    metadata: ServiceMeta = ServiceMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
AFFINITIES: Final = ("ClientIP", "None")
TRAFFIC_POLICIES: Final = ("Cluster", "Local")
PORT_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
IP_MODES: Final = ("Proxy", "VIP")
"""The words that an API server takes (Kubernetes 1.36, pkg/apis/core/validation)."""

SERVICE: Final[Kind[Service]] = Kind(
    group="", version="v1", kind="Service", plural="services", namespaced=True, decodes_to=Service
)

HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
"""On what no proxy needs to know: Services without a cluster IP, and their slices."""
