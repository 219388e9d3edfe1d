"""What an API server would refuse of Services, ServiceCIDRs and EndpointSlices."""

import pytest

from podgate.lab.kinds import Kinds, Object
from podgate.lab.manifests import understood
from podgate.lab.validity import fault_of

PORT = "ports: [{port: 80}]"
BOTH = "clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9, 'fd00:10:96::9']"
SERVICES = [
    (PORT, "", ""),
    ("clusterIP: None", "", ""),
    ("type: ExternalName, externalName: example.com", "", ""),
    (f"type: NodePort, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], {PORT}", "", ""),
    ("ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP, targetPort: dns-udp}]", "", ""),
    (f"type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001, {PORT}", "", ""),
    (f"externalIPs: [192.0.2.1], externalTrafficPolicy: Local, {PORT}", "", ""),
    (f"type: LoadBalancer, loadBalancerSourceRanges: [' 10.0.0.0/8 '], {PORT}", "", ""),
    (f"ipFamilyPolicy: PreferDualStack, {BOTH}, {PORT}", "", ""),
    (f"sessionAffinityConfig: {{clientIP: {{timeoutSeconds: 5}}}}, {PORT}", "", ""),
    (f"clusterIPs: [10.96.0.9], {PORT}", "spec.clusterIPs", "add clusterIP: 10.96.0.9"),
    ("type: LoadBalancer", "spec.ports", "needs a port"),
    (f"type: Loadbalancer, {PORT}", "spec.type", "'Loadbalancer' is not one of"),
    ("type: ExternalName", "spec.externalName", "needs it"),
    ("type: ExternalName, externalName: a, clusterIP: 10.96.0.1", "spec.clusterIP", "remove it"),
    ("type: ExternalName, externalName: a, ipFamilies: [IPv4]", "spec.ipFamilies", "remove them"),
    ("ports: [{port: 0}]", "spec.ports[0].port", "0 is no port"),
    ("ports: [{port: 65536}]", "spec.ports[0].port", "65535"),
    ("ports: [{port: '80'}]", "spec.ports[0].port", "expected a whole number, got text"),
    ("ports: [{port: 80, protocol: tcp}]", "spec.ports[0].protocol", "'tcp' is not one of SCTP, TCP, UDP"),
    ("ports: [{port: 80, targetPort: Web}]", "spec.ports[0].targetPort", "not the name of a port"),
    ("ports: [{port: 80}, {port: 81}]", "spec.ports[0].name", "needs a name"),
    ("ports: [{name: a, port: 80}, {name: a, port: 81}]", "spec.ports[1].name", "another port"),
    ("ports: [{name: A, port: 80}]", "spec.ports[0].name", "'A' is not a name"),
    ("ports: [{name: a, port: 80}, {name: b, port: 80}]", "spec.ports[1]", "TCP 80 is given twice"),
    ("ports: [{port: 80, nodePort: 30000}]", "spec.ports[0].nodePort", "type ClusterIP has no node ports"),
    ("type: NodePort, ports: [{port: 80, nodePort: 8080}]", "spec.ports[0].nodePort", "30000 to 32767"),
    (
        "type: NodePort, ports: [{name: a, port: 80, nodePort: 30000}, {name: b, port: 81, nodePort: 30000}]",
        "spec.ports[1].nodePort",
        "given twice",
    ),
    (f"type: NodePort, clusterIP: None, {PORT}", "spec.clusterIP", "'None' does not go with type NodePort"),
    (f"clusterIP: 010.96.0.1, {PORT}", "spec.clusterIP", "'010.96.0.1' is not an address"),
    (f"clusterIP: 10.96.0.1, clusterIPs: [10.96.0.2], {PORT}", "spec.clusterIPs", "align them"),
    (f"clusterIP: None, clusterIPs: [None, 10.96.0.2], {PORT}", "spec.clusterIPs", "only value"),
    (
        f"clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9, 10.96.0.8], {PORT}",
        "spec.clusterIPs",
        "one address of each family",
    ),
    (f"{BOTH}, {PORT}", "spec.ipFamilyPolicy", "two spec.clusterIPs"),
    (f"clusterIP: 10.96.0.9, ipFamilies: [IPv6], {PORT}", "spec.clusterIPs[0]", "not of IPv6"),
    (f"ipFamilies: [ipv4], {PORT}", "spec.ipFamilies[0]", "'ipv4' is not one of"),
    (f"ipFamilies: [IPv4, IPv4], {PORT}", "spec.ipFamilies", "given twice"),
    (f"ipFamilyPolicy: Dual, {PORT}", "spec.ipFamilyPolicy", "'Dual' is not one of"),
    (f"externalIPs: [127.0.0.1], {PORT}", "spec.externalIPs[0]", "127.0.0.1 is loopback"),
    (f"externalIPs: [example.com], {PORT}", "spec.externalIPs[0]", "not an address"),
    (f"sessionAffinity: clientIP, {PORT}", "spec.sessionAffinity", "'clientIP' is not one of"),
    (
        f"sessionAffinity: ClientIP, sessionAffinityConfig: {{clientIP: {{timeoutSeconds: 86401}}}}, {PORT}",
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        "86401 is not within",
    ),
    (f"externalTrafficPolicy: Local, {PORT}", "spec.externalTrafficPolicy", "not reached from outside"),
    (f"type: NodePort, externalTrafficPolicy: local, {PORT}", "spec.externalTrafficPolicy", "'local' is not one of"),
    (f"internalTrafficPolicy: local, {PORT}", "spec.internalTrafficPolicy", "'local' is not one of"),
    (f"trafficDistribution: Near, {PORT}", "spec.trafficDistribution", "'Near' is not one of"),
    (f"healthCheckNodePort: 30000, {PORT}", "spec.healthCheckNodePort", "goes with type LoadBalancer"),
    (
        f"type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 8080, {PORT}",
        "spec.healthCheckNodePort",
        "not within 30000 to 32767",
    ),
    (f"allocateLoadBalancerNodePorts: true, {PORT}", "spec.allocateLoadBalancerNodePorts", "type LoadBalancer only"),
    (f"loadBalancerSourceRanges: [10.0.0.0/8], {PORT}", "spec.loadBalancerSourceRanges", "type LoadBalancer only"),
    (
        f"type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/33], {PORT}",
        "spec.loadBalancerSourceRanges[0]",
        "not a range",
    ),
]


def fault(text: str) -> tuple[str, str]:
    """Give field and message of what is wrong with a manifest, both empty for nothing."""
    manifests = understood({"f.yaml": text.encode()}, Kinds())
    if not manifests.complaints:
        (obj,) = manifests.objects
        assert fault_of(obj) is None
        return "", ""
    kind, field, message = str(manifests.complaints[0]).split("error: ")[1].split(": ", 2)
    assert kind
    return field, message


def checked(text: str, field: str, part: str) -> None:
    found, message = fault(text)
    assert found == field
    assert part in message


@pytest.mark.parametrize(("spec", "field", "part"), SERVICES)
def test_services(spec: str, field: str, part: str) -> None:
    checked(f"{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{{spec}}}}}", field, part)


OTHERS = [
    ("networking.k8s.io/v1, kind: ServiceCIDR", "spec: {cidrs: [10.96.0.0/12, 'fd00::/112']}", "", ""),
    ("networking.k8s.io/v1, kind: ServiceCIDR", "spec: {cidrs: [10.96.0.1/12]}", "spec.cidrs[0]", "host bits"),
    ("networking.k8s.io/v1, kind: ServiceCIDR", "spec: {cidrs: [10.0.0.0/8, 11.0.0.0/8]}", "spec.cidrs", "each family"),
    ("networking.k8s.io/v1, kind: ServiceCIDR", "spec: {cidrs: []}", "spec.cidrs", "length >= 1"),
    ("discovery.k8s.io/v1, kind: EndpointSlice", "addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}]", "", ""),
    ("discovery.k8s.io/v1, kind: EndpointSlice", "addressType: FQDN, endpoints: [{addresses: [a.b]}]", "", ""),
    ("discovery.k8s.io/v1, kind: EndpointSlice", "addressType: IP", "addressType", "'IP' is not one of"),
    (
        "discovery.k8s.io/v1, kind: EndpointSlice",
        "addressType: IPv6, endpoints: [{addresses: [10.0.0.1]}]",
        "endpoints[0].addresses[0]",
        "10.0.0.1 is not of IPv6",
    ),
    (
        "discovery.k8s.io/v1, kind: EndpointSlice",
        "addressType: IPv4, endpoints: [{addresses: []}]",
        "endpoints[0].addresses",
        "length >= 1",
    ),
    (
        "discovery.k8s.io/v1, kind: EndpointSlice",
        "addressType: IPv4, ports: [{port: 80, protocol: udp}]",
        "ports[0].protocol",
        "'udp' is not one of",
    ),
]


@pytest.mark.parametrize(("kind", "body", "field", "part"), OTHERS)
def test_other_kinds(kind: str, body: str, field: str, part: str) -> None:
    checked(f"{{apiVersion: {kind}, metadata: {{name: s}}, {body}}}", field, part)


def test_another_groups_service_is_not_looked_at() -> None:
    obj: Object = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}, "spec": 5}
    assert fault_of(obj) is None
