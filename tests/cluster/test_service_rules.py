"""What the lab refuses and fills in of Services beside what a real API server does.

Here: the cases of tests/lab/test_servicevalidity.py, and what is given to Services that ask for little. Not here: words
of messages, and which address or port is given: an API server draws them.
Invariant: what is taken is deleted again: an API server only looks at ports and addresses when it stores them.
"""

import json
from typing import Any

import pytest
import yaml

from podgate.lab.kinds import Object
from tests.lab.test_servicevalidity import OTHERS, SERVICES
from tests.lab.world import World
from tests.support.cluster import ControlPlane

PATHS = {
    "Service": "/api/v1/namespaces/default/services",
    "ServiceCIDR": "/apis/networking.k8s.io/v1/servicecidrs",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
}


def asked(plane: ControlPlane, obj: Object) -> tuple[bool, Any]:
    """Say whether the API server takes an object, and what it says."""
    path = PATHS[obj["kind"]]
    code, answer = plane.request("POST", path, obj)
    assert code in (201, 400, 422, 500), answer  # 500: how it refuses a health check's port outside of the range
    if code == 201:
        plane.request("DELETE", f"{path}/{obj['metadata']['name']}", {"gracePeriodSeconds": 0})
    return code == 201, json.loads(answer)


def test_the_same_services_are_refused(plane: ControlPlane) -> None:
    different = {}
    for spec, field, _ in SERVICES:
        obj = yaml.safe_load(f"{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{{spec}}}}}")
        taken, answer = asked(plane, obj)
        if taken is not (field == ""):
            different[spec] = answer.get("message", "taken")
    assert different == {}


def test_the_same_other_objects_are_refused(plane: ControlPlane) -> None:
    different = {}
    for kind, body, field, _ in OTHERS:
        obj = yaml.safe_load(f"{{apiVersion: {kind}, metadata: {{name: s}}, {body}}}")
        taken, answer = asked(plane, obj)
        if taken is not (field == ""):
            different[body] = answer.get("message", "taken")
    assert different == {}


GIVEN = [
    "ports: [{port: 80}]",
    "ports: [{port: 80}], ipFamilies: [IPv6]",
    "ports: [{port: 80}], ipFamilyPolicy: PreferDualStack",
    "ports: [{port: 80}], ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]",
    "ports: [{port: 80}], ipFamilyPolicy: PreferDualStack, clusterIP: 'fd00:10:96::a'",
    "ports: [{port: 80}], clusterIP: None",
    "ports: [{port: 80}], clusterIP: None, selector: {a: b}",
    "ports: [{port: 80}], clusterIP: None, selector: {a: b}, ipFamilyPolicy: PreferDualStack",
    "ports: [{port: 80}], clusterIP: None, ipFamilyPolicy: SingleStack",
    "type: ExternalName, externalName: a.b",
    "ports: [{port: 80}], type: NodePort",
    "ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP}, {name: m, port: 9153}], type: NodePort",
    "ports: [{name: t, port: 53, nodePort: 30053}, {name: u, port: 53, protocol: UDP}], type: NodePort",
    "ports: [{port: 80}], type: LoadBalancer, externalTrafficPolicy: Local",
    "ports: [{port: 80}], type: LoadBalancer, externalTrafficPolicy: Local, allocateLoadBalancerNodePorts: false",
]


@pytest.mark.parametrize("spec", GIVEN)
def test_the_same_is_filled_in(plane: ControlPlane, spec: str) -> None:
    text = f"{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{{spec}}}}}"
    taken, answer = asked(plane, yaml.safe_load(text))
    assert taken, answer
    world = World()
    world.apply(text)
    assert shape(world.settle().of("Service")["s"]["spec"]) == shape(answer["spec"])


def shape(spec: Object) -> Object:
    """Give what does not depend on chance: which ports share a number, and of which families the addresses are."""
    numbers: list[int] = [port.get("nodePort", 0) for port in spec.get("ports", ())]
    return {
        "families": spec.get("ipFamilies"),
        "policy": spec.get("ipFamilyPolicy"),
        "addresses": [ip if ip == "None" else ":" in ip for ip in spec.get("clusterIPs", ())],
        "first": spec.get("clusterIP") == next(iter(spec.get("clusterIPs", ())), None),
        "node ports": [number and numbers.index(number) + 1 for number in numbers],
        "health check": bool(spec.get("healthCheckNodePort")),
    }
