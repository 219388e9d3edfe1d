"""Metadata servers behind nodes: each node has its own, of the cloud that its annotation names."""

import json
from collections.abc import Iterator
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podgate.lab.clouds import ADDRESSES, CLOUD, addresses_of, cloud_of
from podgate.lab.network import SEGMENT, CloudNet, NodeNet, Route, Topology, network, only_ipv4
from podgate.lab.peers.clouds.__main__ import CLOUDS
from podgate.lab.validity import fault_of
from tests.support.lab import TestLab, lab

METADATA = ip_address("169.254.169.254")


def node(name: str, number: int, cloud: str) -> str:
    return f"""\
apiVersion: v1
kind: Node
metadata: {{name: {name}, annotations: {{{CLOUD}: {cloud}}}}}
spec: {{podCIDRs: [10.16.{number}.0/24]}}
status: {{addresses: [{{type: InternalIP, address: 10.140.0.{number}}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: pod-{number}, annotations: {{lab.podgate.dev/ip: 10.16.{number}.6}}}}
spec:
  nodeName: {name}
  containers: [{{name: main, image: busybox, command: [sleep, infinity]}}]
"""


def test_every_cloud_that_can_be_asked_for_can_be_run() -> None:
    assert ADDRESSES.keys() == CLOUDS.keys()


def test_an_unknown_cloud_is_a_fault_that_names_the_known_ones() -> None:
    obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {CLOUD: "gcp"}}}
    with pytest.raises(ValueError, match="'gcp' is not one of gce, aws, azure, openstack"):
        cloud_of(obj)
    fault = fault_of(obj)
    assert fault is not None
    assert "is not one of gce" in fault.message


def test_a_server_is_on_the_segment_and_only_its_own_node_knows_the_way() -> None:
    nodes = tuple(
        NodeNet(name, (ip_interface(f"10.140.0.{number}/24"), ip_interface(f"fd00:140::{number}/64")))
        for number, name in ((2, "a"), (3, "b"))
    )
    made = network(Topology(nodes, clouds=(CloudNet("cloud-a", "a", addresses_of("gce")),)))
    assert any(SEGMENT in (veth.one.namespace, veth.other.namespace) for veth in made.veths)
    ways = {name: [route for route in found.routes if METADATA in route.destination and route.destination.prefixlen]
            for name, found in made.namespaces.items()}  # fmt: skip
    assert ways["node/a"] == [Route(ip_network(f"{METADATA}/32"), "eth0", None, ip_address("10.140.0.2"))]
    assert [name for name, found in ways.items() if found] == ["node/a"]
    assert {route.via for route in made.namespaces["host/cloud-a"].routes} == {
        ip_address("10.140.0.2"),
        ip_address("fd00:140::2"),
    }


def test_without_a_node_there_is_no_server_and_without_ipv6_no_ipv6_address() -> None:
    clouds = (CloudNet("cloud-a", "a", addresses_of("gce")),)
    assert "host/cloud-a" not in network(Topology(clouds=clouds)).namespaces
    assert only_ipv4(Topology(clouds=clouds)).clouds[0].addresses == (METADATA,)


@pytest.fixture(scope="module")
def running() -> Iterator[TestLab]:
    with lab(node("on-aws", 2, "aws"), node("on-azure", 3, "azure"), name="clouds") as started:
        yield started


def curl(running: TestLab, who: str, *words: str, seconds: int = 30) -> str:
    return running.execute(who, "curl", f"-sm{seconds}", *words, check=False)


@pytest.mark.kernel
@pytest.mark.lab
def test_each_node_and_its_pods_reach_their_own_cloud(running: TestLab) -> None:
    put = ("-XPUT", "-HX-aws-ec2-metadata-token-ttl-seconds: 60", "-o/dev/null", "-w%{http_code}")
    token = "http://169.254.169.254/latest/api/token"
    assert curl(running, "node/on-aws", *put, token) == "200"
    assert curl(running, "pod-2", *put, token, seconds=2) == "000"  # the answer's hop limit is 1: it ends at the node
    asked = "http://169.254.169.254/metadata/instance?api-version=2021-02-01"
    assert "compute" in curl(running, "pod-3", "-HMetadata: true", asked)
    first = json.loads(running.logs("host/cloud-on-azure").splitlines()[0])
    assert ["168.63.129.16", 32526] in first["listening"]
    assert curl(running, "node/on-azure", "-o/dev/null", "-w%{http_code}", "http://168.63.129.16:32526/") != "000"
