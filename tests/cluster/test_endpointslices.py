"""The lab's EndpointSlices beside those of kube-controller-manager, for the same Services, Pods and Nodes.

Here: what a slice says. Not here: its name and what is random in it, and which of several slices an endpoint stands in.
Invariant: the lab's controller gets the objects as the API server has them, so nothing but its own rules can differ.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from podgate.lab.controllers.endpointslices import CONTROLLER, MANAGED_BY, SERVICE_NAME, reconcile
from podgate.lab.controllers.writes import Put
from podgate.lab.kinds import Object, ref_of
from podgate.model.frozen import ObjectRef
from tests.support.cluster import ControlPlane
from tests.support.poll import poll

NAMESPACE: Final = "slices"
ZONE: Final = "topology.kubernetes.io/zone"
NODES: Final = {"slices-a": {ZONE: "east"}, "slices-b": {ZONE: "west"}, "slices-c": {}}
WEB: Final = [{"name": "web", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]
OTHER: Final = [{"name": "web", "containerPort": 9090}]

PODS: Final[dict[str, dict[str, Any]]] = {
    "ready": {"node": "slices-a", "ports": WEB, "ips": ["10.16.1.2", "fd00:16:1::2"]},
    "elsewhere": {"node": "slices-b", "ports": WEB, "ips": ["10.16.2.2", "fd00:16:2::2"]},
    "no-zone": {"node": "slices-c", "ports": OTHER, "ips": ["10.16.3.2"]},
    "unready": {"node": "slices-a", "ports": WEB, "ips": ["10.16.1.3", "fd00:16:1::3"], "ready": "False"},
    "going": {"node": "slices-a", "ports": WEB, "ips": ["10.16.1.4", "fd00:16:1::4"]},
    "going-unready": {"node": "slices-b", "ports": WEB, "ips": ["10.16.2.4"], "ready": "False"},
    "done": {"node": "slices-a", "ports": WEB, "ips": ["10.16.1.5"], "phase": "Succeeded", "ready": "False"},
    "pending": {"node": "slices-a", "ports": WEB, "ips": [], "phase": "Pending", "ready": "False"},
    "named": {"node": "slices-a", "ports": [], "ips": ["10.16.1.6"], "hostname": "db-0", "subdomain": "headless"},
    "nowhere": {"node": "slices-gone", "ports": WEB, "ips": ["10.16.9.9"]},
}
HTTP: Final = [{"name": "http", "port": 80, "targetPort": "web"}]
SERVICES: Final[dict[str, dict[str, Any]]] = {
    "by-number": {"ports": [{"port": 80, "targetPort": 8080, "appProtocol": "kubernetes.io/h2c"}]},
    "by-port": {"ports": [{"port": 80}]},
    "by-name": {"ports": HTTP},
    "two-ports": {"ports": [*HTTP, {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"}]},
    "wrong-protocol": {"ports": [{"port": 80, "protocol": "UDP", "targetPort": "web"}]},
    "dual": {"ports": HTTP, "ipFamilyPolicy": "RequireDualStack"},
    "six": {"ports": HTTP, "ipFamilies": ["IPv6"]},
    "published": {"ports": HTTP, "publishNotReadyAddresses": True},
    "headless": {"ports": HTTP, "clusterIP": "None"},
    "headless-without-ports": {"clusterIP": "None"},
    "same-zone": {"ports": HTTP, "trafficDistribution": "PreferSameZone"},
    "close": {"ports": HTTP, "trafficDistribution": "PreferClose"},
    "same-node": {"ports": HTTP, "trafficDistribution": "PreferSameNode"},
    "node-port": {"ports": HTTP, "type": "NodePort"},
    "nobody": {"ports": HTTP, "selector": {"app": "nobody"}},
    "by-hand": {"ports": HTTP, "selector": None},
}


def node(name: str, labels: Mapping[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"slices": "yes", **labels}}}


def pod(name: str, facts: Mapping[str, Any]) -> Object:
    more = {key: facts[key] for key in ("hostname", "subdomain") if key in facts}
    spec = {"nodeName": facts["node"], "containers": [{"name": "c", "image": "i", "ports": facts["ports"]}], **more}
    metadata = {"name": name, "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def status(facts: Mapping[str, Any]) -> Object:
    ips = facts["ips"]
    return {
        "phase": facts.get("phase", "Running"),
        "conditions": [{"type": "Ready", "status": facts.get("ready", "True")}],
        **({"podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips]} if ips else {}),
    }


def service(name: str, spec: Mapping[str, Any]) -> Object:
    metadata = {"name": name, "labels": {"tier": "front"}}
    given = {"selector": {"app": "web"}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": given}


def ask(plane: ControlPlane, verb: str, path: str, body: Any = None) -> Any:
    code, answer = plane.request(verb, path, body)
    assert code in (200, 201), f"{verb} {path}: {answer.decode()}"
    return json.loads(answer)


@pytest.fixture
def objects(plane: ControlPlane) -> Iterator[str]:
    """Make the objects, and give the path of their namespace."""
    inside = f"/api/v1/namespaces/{NAMESPACE}"
    ask(plane, "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    poll(lambda: plane.get(f"{inside}/serviceaccounts/default")[0] == 200)  # without it no Pod is taken
    for name, labels in NODES.items():
        ask(plane, "POST", "/api/v1/nodes", node(name, labels))
    for name, facts in PODS.items():
        made = ask(plane, "POST", f"{inside}/pods", pod(name, facts))
        ask(plane, "PUT", f"{inside}/pods/{name}/status", {**made, "status": status(facts)})
        if name.startswith("going"):
            ask(plane, "DELETE", f"{inside}/pods/{name}", {"gracePeriodSeconds": 300})
    for name, spec in SERVICES.items():
        ask(plane, "POST", f"{inside}/services", service(name, spec))
    yield inside
    for name in PODS:
        plane.request("DELETE", f"{inside}/pods/{name}", {"gracePeriodSeconds": 0})
    for name in NODES:
        plane.request("DELETE", f"/api/v1/nodes/{name}")
    plane.request("DELETE", inside)


def test_a_slice_says_what_the_real_controllers_says(plane: ControlPlane, objects: str) -> None:
    poll(lambda: ours(plane, objects) == theirs(plane))
    found = theirs(plane)
    assert len(found) == len(SERVICES) - 1
    told = {endpoint["targetRef"]["name"] for one in found["by-name"] for endpoint in one["endpoints"]}
    assert told == {"ready", "elsewhere", "no-zone", "unready", "going", "going-unready", "named"}


def ours(plane: ControlPlane, inside: str) -> Mapping[str, list[Object]]:
    """Give the slices that the lab makes of what the API server has, by Service."""
    known: dict[ObjectRef, Object] = {}
    for kind, path in (("Node", "/api/v1/nodes"), ("Pod", f"{inside}/pods"), ("Service", f"{inside}/services")):
        for obj in ask(plane, "GET", path)["items"]:
            whole = {"apiVersion": "v1", "kind": kind, **obj}
            known[ref_of(whole)] = whole
    return plain([write.obj for write in reconcile(known) if isinstance(write, Put)])


def theirs(plane: ControlPlane) -> Mapping[str, list[Object]]:
    """Give the slices that kube-controller-manager made, by Service."""
    return plain(ask(plane, "GET", f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")["items"])


def plain(slices: list[Object]) -> Mapping[str, list[Object]]:
    """Leave out what is random, and order what has no order."""
    found: dict[str, list[Object]] = {}
    for one in slices:
        metadata = one["metadata"]
        assert metadata["labels"][MANAGED_BY] == CONTROLLER
        endpoints = sorted(one.get("endpoints") or (), key=lambda endpoint: endpoint["targetRef"]["name"])
        body = {
            "labels": metadata["labels"],
            "owners": metadata["ownerReferences"],
            "addressType": one["addressType"],
            "ports": sorted(one.get("ports") or (), key=lambda port: port["name"]),
            "endpoints": endpoints,
        }
        found.setdefault(metadata["labels"][SERVICE_NAME], []).append(body)
    return {name: sorted(bodies, key=json.dumps) for name, bodies in sorted(found.items())}
