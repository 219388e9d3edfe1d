"""For random Services and flows ``explain`` tells what the rules that are written for them do, by either back end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podgate.features.services.node import here_of
from podgate.features.services.settings import Settings
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from tests.features.services.flows import FAKE, Flow, Scenario
from tests.features.services.test_flows import compiled
from tests.features.services.test_flows import told as explained
from tests.features.services.test_to_iptables import in_force
from tests.features.services.test_to_iptables import traced as through_chains
from tests.features.services.test_to_nftables import told as done
from tests.features.services.test_to_nftables import traced, written

WORLD = FAKE["ip"]
PLACES = {"local-1": "node-1", "local-2": "node-1", "remote-1": "node-2", "remote-2": ""}
POLICIES = st.sampled_from(["Cluster", "Local"])

services = st.fixed_dictionaries(
    {
        "external": st.lists(st.sampled_from(["external-ip", "node", "node-second", "cluster-ip-2"]), max_size=2),
        "balancers": st.lists(st.sampled_from(["balancer-1", "balancer-2"]), max_size=1),
        "ranges": st.lists(st.sampled_from(["outside-range", "node-range", "cluster-cidr"]), max_size=2),
        "ports": st.lists(
            st.tuples(
                st.sampled_from(["TCP", "UDP"]), st.sampled_from([80, 81]), st.sampled_from([0, 30080, 30081, 80])
            ),
            min_size=1,
            max_size=2,
        ),
        "outside": POLICIES,
        "inside": POLICIES,
        "endpoints": st.lists(
            st.tuples(
                st.sampled_from(sorted(PLACES)),
                st.booleans(),
                st.booleans(),
                st.sampled_from([[], ["zone-a"], ["zone-b"]]),
            ),
            max_size=4,
        ),
    }
)
INTERFACES = {"detect_local_mode": "InterfaceNamePrefix", "pod_interface_name_prefix": WORLD["pod-interfaces"]}
NODE_RANGE = {"detect_local_mode": "NodeCIDR"}
settings = st.builds(
    lambda local, rest: {**local, **rest},
    st.sampled_from([{"cluster_cidr": ""}, {"cluster_cidr": WORLD["cluster-cidr"]}, INTERFACES, NODE_RANGE]),
    st.fixed_dictionaries(
        {
            "masquerade_all": st.booleans(),
            "nodeport_addresses": st.sampled_from(["primary", "all", WORLD["node-range"]]),
        }
    ),
)
flows = st.builds(
    Flow,
    st.sampled_from(
        ["node", *(WORLD[name] for name in ("pod", "local-1", "remote-1", "other-pod", "outside", "blocked"))]
    ),
    st.sampled_from(
        [
            WORLD[name]
            for name in (
                "cluster-ip-1",
                "cluster-ip-2",
                "external-ip",
                "balancer-1",
                "node",
                "node-second",
                "unallocated",
            )
        ]
    ),
    st.sampled_from([80, 81, 30080, 30081]),
    st.sampled_from(["tcp", "udp"]),
    st.just(""),
    st.just(()),
    st.just(False),
    st.just(()),
)


def objects(index: int, service: dict[str, Any]) -> list[dict[str, Any]]:
    name = f"s{index}"
    ports = [
        {"name": f"p{number}", "protocol": protocol, "port": port, "nodePort": node_port}
        for number, (protocol, port, node_port) in enumerate(service["ports"])
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": f"2026-01-0{index}T00:00:00Z"},
            "spec": {
                "type": "LoadBalancer",
                "clusterIP": WORLD[f"cluster-ip-{index}"],
                "externalIPs": [WORLD[each] for each in service["external"]],
                "loadBalancerSourceRanges": [WORLD[each] for each in service["ranges"]],
                "externalTrafficPolicy": service["outside"],
                "internalTrafficPolicy": service["inside"],
                "healthCheckNodePort": 32000 + index,
                "ports": ports,
            },
            "status": {"loadBalancer": {"ingress": [{"ip": WORLD[each]} for each in service["balancers"]]}},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": port["name"], "protocol": port["protocol"], "port": 8080} for port in ports],
            "endpoints": [
                {
                    "addresses": [WORLD[place]],
                    "nodeName": PLACES[place],
                    "conditions": {"ready": ready, "serving": True, "terminating": terminating},
                    "hints": {"forZones": [{"name": zone} for zone in zones]},
                }
                for place, ready, terminating, zones in service["endpoints"]
            ],
        },
    ]


@given(st.lists(services, min_size=1, max_size=3), settings, st.lists(flows, min_size=8, max_size=16, unique=True))
def test_what_is_explained_is_what_the_table_does(
    found: list[dict[str, Any]], given_settings: dict[str, Any], asked: list[Flow]
) -> None:
    made = [each for index, service in enumerate(found, 1) for each in objects(index, service)]
    intent, inputs, options = compiled(Scenario("random", given_settings, tuple(made), (), zone="zone-a"), "ip")
    state = written(intent, "ip")
    here = here_of("node-1", inputs.objects.objects(NODE).get(ObjectRef("Node", "node-1")), inputs.machine)
    assert isinstance(options, Settings)
    told, seen = {}, {}
    for flow in asked:
        verdict, endpoints, masquerade, hairpin = explained(intent, inputs, here, flow)
        told[str(flow)] = (verdict, endpoints, endpoints if masquerade else hairpin)
        verdict, endpoints, _, masqueraded = done(traced(state, flow, "ip"))
        seen[str(flow)] = (verdict, endpoints, masqueraded)
    assert told == seen


@given(st.lists(services, min_size=1, max_size=2), settings, st.lists(flows, min_size=8, max_size=16, unique=True))
def test_what_is_explained_is_what_iptables_does(
    found: list[dict[str, Any]], given_settings: dict[str, Any], asked: list[Flow]
) -> None:
    made = [each for index, service in enumerate(found, 1) for each in objects(index, service)]
    wanted = {"nodeport_addresses": "primary", **given_settings, "backend": "iptables"}
    intent, inputs, _ = compiled(Scenario("random", wanted, tuple(made), (), zone="zone-a"), "ip")
    tables = in_force(intent, "ip")
    here = here_of("node-1", inputs.objects.objects(NODE).get(ObjectRef("Node", "node-1")), inputs.machine)
    told, seen = {}, {}
    for flow in asked:
        verdict, endpoints, masquerade, hairpin = explained(intent, inputs, here, flow)
        told[str(flow)] = (verdict, endpoints, endpoints if masquerade else hairpin)
        verdict, endpoints, _, masqueraded = done(through_chains(tables, flow, "ip"))
        seen[str(flow)] = (verdict, endpoints, masqueraded)
    assert told == seen
