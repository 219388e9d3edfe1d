"""Kinds: what the API says decodes to what podgate reads.

Here: one object per kind in the API's own JSON, and the defaults of absent fields. Not here: where objects come from.
Invariant: each field of each struct has its API name checked by at least one object here.
"""

import msgspec
import pytest

from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, NAMESPACE, ConfigMap, Namespace
from podgate.model.kinds.meta import ApiStruct, ObjectMeta, OwnerReference, ref_of
from podgate.model.kinds.nodes import NODE, Node, NodeAddress, NodeSpec, NodeStatus
from podgate.model.kinds.pods import POD, Pod, PodIP, PodSpec, PodStatus, pod_named, pod_names
from podgate.model.kinds.reports import Applied, NodeReport, ReportMeta

CASES: list[tuple[bytes, type[ApiStruct], ApiStruct]] = [
    (
        b"""{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1","labels":{"a":"b"},"uid":"u-1",
        "creationTimestamp":"2026-01-01T00:00:00Z","resourceVersion":"7"},
        "spec":{"podCIDR":"10.16.1.0/24","podCIDRs":["10.16.1.0/24","fd00:1::/64"],"providerID":"gce://x"},
        "status":{"addresses":[{"type":"InternalIP","address":"10.140.15.217"}],"nodeInfo":{}}}""",
        Node,
        Node(
            metadata=ObjectMeta(name="node-1", labels={"a": "b"}, uid="u-1", creation_timestamp="2026-01-01T00:00:00Z"),
            spec=NodeSpec(pod_cidr="10.16.1.0/24", pod_cidrs=("10.16.1.0/24", "fd00:1::/64")),
            status=NodeStatus(addresses=(NodeAddress(type="InternalIP", address="10.140.15.217"),)),
        ),
    ),
    (
        b"""{"metadata":{"name":"web","namespace":"shop","annotations":{"k":"v"},"creationTimestamp":null,
        "deletionTimestamp":"2026-01-02T00:00:00Z","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet",
        "name":"web-1","uid":"u-2","controller":true,"blockOwnerDeletion":true}]},
        "spec":{"nodeName":"node-1","hostNetwork":true,"containers":[{"name":"c"}]},
        "status":{"phase":"Running","hostIP":"10.140.15.217","podIP":"10.16.1.6","podIPs":[{"ip":"10.16.1.6"}]}}""",
        Pod,
        Pod(
            metadata=ObjectMeta(
                name="web",
                namespace="shop",
                annotations={"k": "v"},
                deletion_timestamp="2026-01-02T00:00:00Z",
                owner_references=(
                    OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web-1", uid="u-2", controller=True),
                ),
            ),
            spec=PodSpec(node_name="node-1", host_network=True),
            status=PodStatus(phase="Running", pod_ip="10.16.1.6", pod_ips=(PodIP("10.16.1.6"),)),
        ),
    ),
    (
        b"""{"metadata":{"name":"ip-masq-agent","namespace":"kube-system"},"data":{"config":"a: b\\n"},
        "binaryData":{"x":"AA=="},"immutable":true}""",
        ConfigMap,
        ConfigMap(metadata=ObjectMeta(name="ip-masq-agent", namespace="kube-system"), data={"config": "a: b\n"}),
    ),
    (
        b"""{"metadata":{"name":"masquerade.node-1","generation":3},"feature":"masquerade","node":"node-1",
        "applied":[{"kind":"MasqueradePolicy","name":"p","namespace":"","generation":2,"instead":"LastGoodPolicy"}]}""",
        NodeReport,
        NodeReport(
            metadata=ReportMeta("masquerade.node-1", generation=3),
            feature="masquerade",
            node="node-1",
            applied=(Applied("MasqueradePolicy", "p", "", 2, "LastGoodPolicy"),),
        ),
    ),
    (
        b"""{"metadata":{"name":"shop"},"spec":{"finalizers":["kubernetes"]}}""",
        Namespace,
        Namespace(ObjectMeta("shop")),
    ),
    (b"{}", Pod, Pod()),
    (b"{}", Node, Node()),
    (b"{}", ConfigMap, ConfigMap()),
]


@pytest.mark.parametrize(("text", "decodes_to", "expected"), CASES)
def test_an_object_of_the_api_decodes(text: bytes, decodes_to: type[ApiStruct], expected: ApiStruct) -> None:
    assert msgspec.json.decode(text, type=decodes_to) == expected


def test_equal_objects_encode_back_to_the_api_s_names() -> None:
    text = b'{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]},"status":{"addresses":[]}}'
    encoded = msgspec.to_builtins(msgspec.json.decode(text, type=Node))
    assert set(encoded["spec"]) == {"podCIDR", "podCIDRs", "taints"}
    assert set(encoded["metadata"]) >= {"creationTimestamp", "deletionTimestamp", "ownerReferences"}


def test_a_wrong_type_is_refused_with_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.data\[\.\.\.\]"):
        msgspec.json.decode(b'{"data":{"config":1}}', type=ConfigMap)


@pytest.mark.parametrize(
    ("node", "ranges"),
    [
        (Node(), ()),
        (Node(spec=NodeSpec(pod_cidr="10.0.0.0/24")), ("10.0.0.0/24",)),
        (Node(spec=NodeSpec("10.0.0.0/24", ("10.0.0.0/24", "fd00::/64"))), ("10.0.0.0/24", "fd00::/64")),
    ],
)
def test_pod_ranges_prefer_the_plural_field(node: Node, ranges: tuple[str, ...]) -> None:
    assert node.pod_ranges == ranges


@pytest.mark.parametrize(
    ("pod", "addresses"),
    [
        (Pod(), ()),
        (Pod(status=PodStatus(pod_ip="10.0.0.1")), ("10.0.0.1",)),
        (
            Pod(status=PodStatus(pod_ip="10.0.0.1", pod_ips=(PodIP("10.0.0.1"), PodIP("fd00::1")))),
            ("10.0.0.1", "fd00::1"),
        ),
    ],
)
def test_pod_addresses_prefer_the_plural_field(pod: Pod, addresses: tuple[str, ...]) -> None:
    assert pod.addresses == addresses


def test_references_name_a_namespace_only_where_the_kind_has_one() -> None:
    metadata = ObjectMeta(name="x", namespace="shop")
    assert ref_of(POD, metadata) == ObjectRef("Pod", "x", "shop")
    assert ref_of(CONFIG_MAP, metadata) == ObjectRef("ConfigMap", "x", "shop")
    assert ref_of(NODE, metadata) == ObjectRef("Node", "x")
    assert ref_of(NAMESPACE, metadata) == ObjectRef("Namespace", "x")


def test_a_pod_is_named_as_users_do() -> None:
    names = (("web", "shop"), ("web", "default"), ("db", "default"))
    pods = {ObjectRef("Pod", name, namespace): Pod(ObjectMeta(name, namespace)) for name, namespace in names}
    for text, found in (("shop/web", ("web", "shop")), ("web", ("web", "default")), ("/web", None), ("shop/db", None)):
        pod = pod_named(text, pods)
        assert (None if pod is None else (pod.metadata.name, pod.metadata.namespace)) == found
    assert pod_names("x", pods) == "default/db, default/web, shop/web"
    assert pod_names("x", ()) == "none"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("default/carts", "shop/cart and 99 more"),
        ("nopod", "shop/cart, shop/web-0, shop/web-1 and 97 more"),
    ],
)
def test_of_many_pods_a_few_of_a_like_name_are_told(text: str, told: str) -> None:
    names = ["cart", *(f"web-{number}" for number in range(99))]
    assert pod_names(text, [ObjectRef("Pod", name, "shop") for name in names]) == told
