"""``podgate services run`` and Services that change: what upstream's end-to-end tests do to a Service, step by step.

Here: the steps as data, and real packets after each. Not here: Services that stay as they are (test_services_flows.py),
connections that outlive a change (test_services_connections.py).
Invariant: one agent sees all steps of a story in order, so each is a difference to the one before; IPv4 and IPv6 at
once.

A step's packets are lines ``SENDER > TO:PORT[/PROTOCOL] = ENDPOINT… [masq]``, with the names of
tests/features/services/flows; instead of endpoints ``reject``, ``drop`` or ``none``, and ``reject|none`` where
iptables, which knows no ranges of Services, does something else than nftables.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from podgate.lab.kinds import Object
from tests.agent.test_services_flows import Podgate
from tests.features.services.flows import FAMILIES, Flow, Scenario, for_iptables
from tests.support.service_flows import THIS, WORLDS, differences, flow_lab
from tests.support.service_lab import ServiceLab
from tests.support.services_agent import PROXY_NAME
from tests.support.slices import endpoint_slice

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

HERE: Final = ("local-1", "local-2", "node")
UNREADY: Final = {"ready": False, "serving": False, "terminating": False}
HEADLESS: Final = "service.kubernetes.io/headless"


def service(*ports: Mapping[str, Any], name: str = "web", ip: str = "cluster-ip-1", **more: Any) -> Object:
    """Give a Service; ``labels`` and ``status`` are not of its spec."""
    metadata = {"name": name, "namespace": "shop", "labels": more.pop("labels", {})}
    status = more.pop("status", {})
    spec = {"clusterIP": f"${{{ip}}}", "ports": [{"name": "http", "port": 80, **each} for each in ports or ({},)]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {**spec, **more}, "status": status}


def endpoints(*places: str, name: str = "web", part: int = 1, **more: Any) -> Object:
    """Give a slice: ``ports`` are names and numbers, and ``conditions`` those of all endpoints."""
    ports = [
        (each, number, "UDP" if each == "udp" else "TCP") for each, number in more.pop("ports", {"http": 8080}).items()
    ]
    ends = [(f"${{{place}}}", "${this}" if place in HERE else "${other}") for place in places]
    return endpoint_slice(
        name, "${address-type}", ends, *ports, metadata={"name": f"{name}-{part}", "namespace": "shop"}, **more
    )


NAME: Final = {"type": "ExternalName", "externalName": "www.example"}
NODE_PORT: Final = {"nodePort": 30080}
UDP: Final = {"name": "udp", "protocol": "UDP"}
MORE: Final = {"name": "more", "port": 81}
TO_ONE: Final = "pod > cluster-ip-1:80 = local-1:8080"
FROM_OUTSIDE: Final = "outside > node:30080 = local-1:8080 masq"
NOBODY: Final = "pod > cluster-ip-1:80 = drop|none"
BOTH: Final = "local-1:8080 remote-1:8080"
BALANCER: Final = {"loadBalancer": {"ingress": [{"ip": "${balancer-1}"}]}}
ONE: Final = endpoints("local-1")
PAIR: Final = endpoints("local-1", "remote-1")

STORIES: Final[Mapping[str, Mapping[str, tuple[list[Object], list[str]]]]] = {
    "types": {
        "a cluster IP": ([service(), ONE], [TO_ONE]),
        "a name": ([service(**NAME), ONE], [NOBODY]),
        "a cluster IP again": ([service(), ONE], [TO_ONE]),
        "a name again": ([service(**NAME), ONE], [NOBODY]),
        "a node port": ([service(NODE_PORT, type="NodePort"), ONE], [TO_ONE, FROM_OUTSIDE]),
        "a name for good": ([service(**NAME), ONE], [NOBODY, "outside > node:30080 = none"]),
    },
    "ports": {
        "one number, two protocols": (
            [
                service(NODE_PORT, {**UDP, **NODE_PORT}, type="NodePort"),
                endpoints("local-1", ports={"http": 8080, "udp": 8080}),
            ],
            [
                *(TO_ONE, "pod > cluster-ip-1:80/udp = local-1:8080", FROM_OUTSIDE),
                "outside > node:30080/udp = local-1:8080 masq",
            ],
        ),
        "TCP alone": (
            [service(NODE_PORT, type="NodePort"), endpoints("local-1", ports={"http": 8080, "udp": 8080})],
            [TO_ONE, "pod > cluster-ip-1:80/udp = reject|none", FROM_OUTSIDE, "outside > node:30080/udp = none"],
        ),
        "UDP alone": (
            [service({**UDP, **NODE_PORT}, type="NodePort"), endpoints("local-1", ports={"http": 8080, "udp": 8080})],
            [
                *("pod > cluster-ip-1:80/udp = local-1:8080", "pod > cluster-ip-1:80 = reject|none"),
                *("outside > node:30080/udp = local-1:8080 masq", "outside > node:30080 = none"),
            ],
        ),
        "two ports": (
            [service({}, MORE), endpoints("local-1", ports={"http": 8080, "more": 9090})],
            [TO_ONE, "pod > cluster-ip-1:81 = local-1:9090"],
        ),
        "one of them": (
            [service(MORE), endpoints("local-1", ports={"more": 9090})],
            ["pod > cluster-ip-1:81 = local-1:9090", "pod > cluster-ip-1:80 = reject|none"],
        ),
        "another target": (
            [service(MORE), endpoints("local-1", ports={"more": 8080})],
            ["pod > cluster-ip-1:81 = local-1:8080"],
        ),
        "another name in the Service alone": (
            [service({"name": "other", "port": 81}), endpoints("local-1", ports={"more": 8080})],
            ["pod > cluster-ip-1:81 = reject"],
        ),
    },
    "node ports": {
        "one": ([service(NODE_PORT, type="NodePort"), ONE], [FROM_OUTSIDE]),
        "another number": (
            [service({"nodePort": 30081}, type="NodePort"), ONE],
            ["outside > node:30081 = local-1:8080 masq", "outside > node:30080 = none"],
        ),
        "given up, and taken by another Service": (
            [
                *(service(), ONE, service({"nodePort": 30081}, name="next", ip="cluster-ip-2", type="NodePort")),
                endpoints("remote-1", name="next"),
            ],
            [TO_ONE, "outside > node:30081 = remote-1:8080 masq"],
        ),
    },
    "affinity": {
        "none": (
            [service(NODE_PORT, type="NodePort"), PAIR],
            [f"pod > cluster-ip-1:80 = {BOTH}", f"outside > node:30080 = {BOTH} masq"],
        ),
        "of clients": (
            [service(NODE_PORT, type="NodePort", sessionAffinity="ClientIP"), PAIR],
            [f"pod > cluster-ip-1:80 = {BOTH}", f"outside > node:30080 = {BOTH} masq"],
        ),
        "none again": ([service(), PAIR], [f"pod > cluster-ip-1:80 = {BOTH}"]),
        "of clients at node ports that see them": (
            [
                service(NODE_PORT, type="NodePort", sessionAffinity="ClientIP", externalTrafficPolicy="Local"),
                endpoints("local-1", "local-2", "remote-1"),
            ],
            ["outside > node:30080 = local-1:8080 local-2:8080"],
        ),
    },
    "comings and goings": {
        "two": (
            [service(), ONE, service(name="two", ip="cluster-ip-2"), endpoints("remote-1", name="two")],
            [TO_ONE, "pod > cluster-ip-2:80 = remote-1:8080"],
        ),
        "the second alone": (
            [service(name="two", ip="cluster-ip-2"), endpoints("remote-1", name="two")],
            [NOBODY, "pod > cluster-ip-2:80 = remote-1:8080"],
        ),
        "the first again, and a third": (
            [
                *(service(), endpoints("local-2"), service(name="two", ip="cluster-ip-2")),
                *(endpoints("remote-1", name="two"), service(name="three", ip="cluster-ip-3"), endpoints(name="three")),
            ],
            [
                *("pod > cluster-ip-1:80 = local-2:8080", "pod > cluster-ip-2:80 = remote-1:8080"),
                "pod > cluster-ip-3:80 = reject",
            ],
        ),
        "another one at the first one's address": (
            [service(name="two"), endpoints("remote-1", name="two")],
            ["pod > cluster-ip-1:80 = remote-1:8080"],
        ),
    },
    "whose it is": {
        "ours": ([service(), ONE], [TO_ONE]),
        "another proxy's": (
            [service(labels={PROXY_NAME: "other"}), endpoints("local-1", labels={PROXY_NAME: "other"})],
            [NOBODY],
        ),
        "ours again": ([service(), ONE], [TO_ONE]),
        "slices of a headless Service": (
            [service(), endpoints("local-1", labels={HEADLESS: ""})],
            ["pod > cluster-ip-1:80 = reject"],
        ),
        "ours for good": ([service(), ONE], [TO_ONE]),
        "headless": (
            [{**service(), "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}, ONE],
            [NOBODY],
        ),
    },
    "readiness": {
        "not yet": ([service(), endpoints("local-1", conditions=UNREADY)], ["pod > cluster-ip-1:80 = reject"]),
        "ready": ([service(), ONE], [TO_ONE]),
        "evicted": ([service(), endpoints()], ["pod > cluster-ip-1:80 = reject"]),
        "told although it is not ready": (
            [
                service(publishNotReadyAddresses=True),
                endpoints("local-1", conditions={"ready": True, "serving": False}),
            ],
            [TO_ONE],
        ),
        "the slice has gone": ([service()], ["pod > cluster-ip-1:80 = reject"]),
    },
    "slices": {
        "several": (
            [service({}, MORE), ONE, endpoints("remote-1", part=2), endpoints("local-2", part=3, ports={"more": 9090})],
            [f"pod > cluster-ip-1:80 = {BOTH}", "pod > cluster-ip-1:81 = local-2:9090"],
        ),
        "endpoints that change places": (
            [service({}, MORE), endpoints("remote-1"), endpoints("local-1", part=2)],
            [f"pod > cluster-ip-1:80 = {BOTH}", "pod > cluster-ip-1:81 = reject"],
        ),
        "one in both": (
            [service({}, MORE), endpoints("remote-1"), endpoints("remote-1", part=2)],
            ["pod > cluster-ip-1:80 = remote-1:8080"],
        ),
    },
    "Pods on the node's network": {
        "anywhere": (
            [service(), endpoints("node", "other-node")],
            ["pod > cluster-ip-1:80 = node:8080 other-node:8080"],
        ),
        "on this node alone": (
            [service(internalTrafficPolicy="Local"), endpoints("node", "other-node")],
            ["pod > cluster-ip-1:80 = node:8080", "node > cluster-ip-1:80 = node:8080 masq"],
        ),
        "none on this node": (
            [service(internalTrafficPolicy="Local"), endpoints("other-node")],
            ["pod > cluster-ip-1:80 = drop"],
        ),
    },
    "load balancers": {
        "for some": (
            [
                service(NODE_PORT, type="LoadBalancer", status=BALANCER, loadBalancerSourceRanges=["${outside-range}"]),
                ONE,
            ],
            ["outside > balancer-1:80 = local-1:8080 masq", "blocked > balancer-1:80 = drop"],
        ),
        "for all": (
            [service(NODE_PORT, type="LoadBalancer", status=BALANCER), ONE],
            ["outside > balancer-1:80 = local-1:8080 masq", "blocked > balancer-1:80 = local-1:8080 masq"],
        ),
        "endpoints of this node, without a node port": (
            [
                service(type="LoadBalancer", status=BALANCER, externalTrafficPolicy="Local", healthCheckNodePort=32000),
                PAIR,
            ],
            ["outside > balancer-1:80 = local-1:8080", "outside > node:30080 = none"],
        ),
        "an address that was given back": ([service(), PAIR], ["pod > balancer-1:80 = none"]),
    },
}


def flow(line: str, backend: str) -> Flow:
    """Read a line."""
    where, _, what = line.partition(" = ")
    sender, _, to = where.partition(" > ")
    to, _, protocol = to.partition("/")
    name, _, port = to.partition(":")
    words = what.split()
    masquerade = words[-1] == "masq"
    found = tuple(word for word in words if ":" in word)
    verdict = "forward" if found else words[0].split("|")[-1 if backend == "iptables" else 0]
    return Flow(sender, name, int(port), protocol or "tcp", verdict, found, masquerade, ())


def scenarios(backend: str) -> Iterator[Scenario]:
    """Give each step as a scenario."""
    for story, steps in STORIES.items():
        for step, (objects, lines) in steps.items():
            flows = tuple(flow(line, backend) for line in lines)
            yield Scenario(f"{story}: {step}", {}, tuple(objects), flows)


def serve_on_nodes(lab: ServiceLab) -> None:
    """Have Pods on the nodes' network."""
    for family in FAMILIES:
        for place, name in ((THIS, "node"), ("node/node-2", "other-node")):
            lab.serve_once(place, WORLDS[family][name], "tcp", 8080)


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_every_step_of_every_story(backend: str, tmp_path: Path) -> None:
    with flow_lab() as lab:
        serve_on_nodes(lab)
        agent = Podgate(lab, backend, tmp_path)
        found = [for_iptables(each) if backend == "iptables" else each for each in scenarios(backend)]
        try:
            assert differences(lab, agent, found) == {}
        except AssertionError:
            print(agent.log.read_text()[-5000:])
            raise
