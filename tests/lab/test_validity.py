"""What an API server would refuse; and what passes never makes a controller fail."""

import copy
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from podgate.lab.kinds import Kinds, Object, placed, ref_of
from podgate.lab.manifests import understood
from podgate.lab.validity import fault_of
from tests.lab.world import World, node, nodes, pod, workload

AFFINITY = (
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
    "[{matchExpressions: [{key: a, operator: In, values: [b]}],"
    " matchFields: [{key: metadata.name, operator: Exists}]}]}}}"
)
SPEC = f"tolerations: [{{operator: Exists, effect: NoSchedule}}]\n      {AFFINITY}"
TEXT = (
    nodes("a")
    + node("b", "spec: {podCIDR: 10.1.0.0/24, taints: [{key: a, effect: NoExecute}]}\nstatus: {addresses: "
           "[{type: InternalIP, address: 10.0.0.1}]}")
    + pod("one", meta="annotations: {lab.podgate.dev/ip: 10.1.0.3}")
    + pod("two", spec="nodeName: b\n  hostNetwork: true")
    + workload("DaemonSet", "agent", pod=SPEC,
               spec="updateStrategy: {rollingUpdate: {maxSurge: 20%, maxUnavailable: 0}}")
    + workload("Deployment", "web", spec="replicas: 2\n  strategy: {rollingUpdate: {maxSurge: 1}}")
    + workload("ReplicaSet", "set", spec="replicas: 1")
    + "---\n{apiVersion: lab.podgate.dev/v1, kind: Host, metadata: {name: h}, spec: {addresses: [10.9.0.1],"
    " routes: [{to: 10.0.0.0/8, via: 10.9.0.2}]}}\n"
    + "---\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: LoadBalancer, clusterIP: 10.96.0.9,"
    " selector: {app: web}, ports: [{name: a, port: 80, targetPort: http, nodePort: 30000}], ipFamilies: [IPv4],"
    " loadBalancerSourceRanges: [10.0.0.0/8], externalIPs: [192.0.2.1], sessionAffinity: ClientIP,"
    " sessionAffinityConfig: {clientIP: {timeoutSeconds: 9}}, externalTrafficPolicy: Local}}\n"
    "---\n{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: c}, spec: {cidrs: [10.96.0.0/16]}}\n"
    "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: e}, addressType: IPv4,"
    " endpoints: [{addresses: [10.1.0.3], targetRef: {name: one}}], ports: [{name: a, port: 80}]}\n"
)  # fmt: skip
VALID = understood({"f.yaml": TEXT.encode()}, Kinds()).objects
ODD: st.SearchStrategy[Any] = st.sampled_from([
    None, True, 0, 1, -1, 7, 1.5, "", "a", "0%", "30%", "%", "10.1.0.3", "10.1.0.0/30", "::1", "fd00::/64", "x/y",
    [], [None], [1], ["a"], [{}], {}, {"a": "b"}, {"a": None}, {"matchLabels": {}},
])  # fmt: skip


def paths(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([above] if above else []), *(path for key, one in inner for path in paths(one, (*above, key)))]


@st.composite
def spoiled(draw: st.DrawFn) -> list[Object]:
    """Give the valid objects with some of their values replaced by others, or removed."""
    objects = copy.deepcopy(list(VALID))
    for _ in range(draw(st.integers(1, 3))):
        obj = draw(st.sampled_from(objects))
        *above, last = draw(st.sampled_from(paths(obj)))
        place: Any = obj
        for key in above:
            place = place[key]
        if draw(st.booleans()) and isinstance(place, dict):
            del place[last]
        else:
            place[last] = copy.deepcopy(draw(ODD))
    return objects


@given(spoiled())
def test_what_has_no_fault_makes_no_controller_fail_or_run_in_circles(objects: list[Object]) -> None:
    good = [obj for obj in objects if fault_of(obj) is None]
    assume(good)
    world = World()
    for obj in (placed(obj, Kinds().of(obj)) for obj in good):
        world.objects[ref_of(obj)] = {**obj, "metadata": {**obj["metadata"], "uid": f"own-{obj['metadata']['name']}"}}
    world.settle()


def test_the_objects_that_are_spoiled_were_good() -> None:
    assert len(VALID) == 11
    assert [fault_of(obj) for obj in VALID] == [None] * len(VALID)
