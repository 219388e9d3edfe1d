"""Kinds of Services: what the API says decodes to what a proxy reads.

Here: Service, EndpointSlice, ServiceCIDR and what a proxy reads of a Node. Not here: other kinds (test_kinds.py).
Invariant: each field of each struct has its API name checked by at least one object here.
"""

import msgspec
import pytest

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import (
    ENDPOINT_SLICE,
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Hints,
    NamedHint,
    SliceAnnotations,
    SliceLabels,
    SliceMeta,
    TargetRef,
)
from podgate.model.kinds.meta import ApiStruct, ObjectMeta, ref_of
from podgate.model.kinds.networking import SERVICE_CIDR, ServiceCIDR, ServiceCIDRSpec
from podgate.model.kinds.nodes import Node, NodeSpec, Taint
from podgate.model.kinds.services import (
    SERVICE,
    ClientIPConfig,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
)

CASES: list[tuple[bytes, type[ApiStruct], ApiStruct]] = [
    (
        b"""{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop","uid":"u-1","generation":2,
        "creationTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b"},"annotations":{"k":"v"}},
        "spec":{"type":"LoadBalancer","clusterIP":"10.96.0.7","clusterIPs":["10.96.0.7","fd00::7"],
        "ipFamilies":["IPv4","IPv6"],"selector":{"app":"web"},
        "ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":"web","nodePort":30080}],
        "externalIPs":["192.0.2.7"],"loadBalancerSourceRanges":["198.51.100.0/24"],
        "sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}},
        "externalTrafficPolicy":"Local","internalTrafficPolicy":"Local","healthCheckNodePort":32000,
        "publishNotReadyAddresses":true,"trafficDistribution":"PreferClose"},
        "status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7","ipMode":"Proxy"},{"hostname":"lb.example"}]}}}""",
        Service,
        Service(
            ServiceMeta("web", "shop", "u-1", 2, "2026-01-01T00:00:00Z"),
            ServiceSpec(
                type="LoadBalancer",
                cluster_ip="10.96.0.7",
                cluster_ips=("10.96.0.7", "fd00::7"),
                ports=(ServicePort("http", "TCP", 80, 30080),),
                external_ips=("192.0.2.7",),
                load_balancer_source_ranges=("198.51.100.0/24",),
                session_affinity="ClientIP",
                session_affinity_config=SessionAffinityConfig(ClientIPConfig(60)),
                external_traffic_policy="Local",
                internal_traffic_policy="Local",
                health_check_node_port=32000,
            ),
            ServiceStatus(LoadBalancerStatus((LoadBalancerIngress("203.0.113.7", "Proxy"), LoadBalancerIngress()))),
        ),
    ),
    (
        b"""{"metadata":{"name":"web-x1","namespace":"shop","uid":"u-2","generation":3,
        "labels":{"kubernetes.io/service-name":"web","other":"x"},
        "annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"}},
        "addressType":"IPv4","ports":[{"name":"http","protocol":"UDP","port":8080,"appProtocol":"x"},{}],
        "endpoints":[{"addresses":["10.244.1.2"],"conditions":{"ready":false,"serving":false,"terminating":true},
        "nodeName":"node-1","zone":"a","targetRef":{"kind":"Pod","name":"web-1","namespace":"shop","uid":"u-3"},
        "hints":{"forZones":[{"name":"a"}],"forNodes":[{"name":"node-1"}]}},{"addresses":["10.244.1.3"]}]}""",
        EndpointSlice,
        EndpointSlice(
            SliceMeta("web-x1", "shop", "u-2", 3, SliceLabels("web"), SliceAnnotations("2026-01-01T00:00:00Z")),
            "IPv4",
            (
                Endpoint(
                    ("10.244.1.2",),
                    Conditions(ready=False, serving=False, terminating=True),
                    "node-1",
                    Hints((NamedHint("a"),), (NamedHint("node-1"),)),
                    TargetRef("u-3"),
                ),
                Endpoint(("10.244.1.3",), Conditions(ready=True, serving=True, terminating=False)),
            ),
            (EndpointPort("http", "UDP", 8080), EndpointPort("", "TCP", 0)),
        ),
    ),
    (
        b"""{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/16","fd00::/112"]},"status":{}}""",
        ServiceCIDR,
        ServiceCIDR(ObjectMeta("kubernetes"), ServiceCIDRSpec(("10.96.0.0/16", "fd00::/112"))),
    ),
    (
        b"""{"metadata":{"name":"node-1"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}""",
        Node,
        Node(ObjectMeta("node-1"), NodeSpec(taints=(Taint("a"),))),
    ),
    (b"{}", Service, Service()),
    (b"{}", EndpointSlice, EndpointSlice()),
]


@pytest.mark.parametrize(("text", "decodes_to", "expected"), CASES)
def test_an_object_of_the_api_decodes(text: bytes, decodes_to: type[ApiStruct], expected: ApiStruct) -> None:
    assert msgspec.json.decode(text, type=decodes_to) == expected


def test_slim_metadata_leads_to_references() -> None:
    assert ref_of(SERVICE, ServiceMeta("web", "shop")) == ObjectRef("Service", "web", "shop")
    assert ref_of(ENDPOINT_SLICE, SliceMeta("web-1", "shop")) == ObjectRef("EndpointSlice", "web-1", "shop")
    assert ref_of(SERVICE_CIDR, ObjectMeta("kubernetes", "x")) == ObjectRef("ServiceCIDR", "kubernetes")


def test_endpoints_of_one_state_and_node_share_the_values_that_say_so() -> None:
    text = b'{"addresses":["10.244.1.%d"],"conditions":{"ready":true},"nodeName":"node-1"}'
    one, other = (msgspec.json.decode(text % number, type=Endpoint) for number in (1, 2))
    assert one.conditions is other.conditions
    assert one.node_name is other.node_name
