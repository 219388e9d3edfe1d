"""Meant: a mistyped kind or version is told, somebody else's kind never is.

Here: the rule as a table, and what a file with slips gives. Not here: what `check` prints (test_cli_places.py).
Invariant: each silent case is a kind that some cluster has.
"""

import json

import pytest

from podgate.features.services.compile import watches
from podgate.features.services.settings import Settings
from podgate.model.frozen import file_ref
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.meta import ApiStruct, own_kind
from podgate.model.kinds.networking import SERVICE_CIDR
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.kinds.services import SERVICE
from podgate.model.problems import Problem
from podgate.sources.meant import meant
from podgate.sources.objects import FileObjects, Wanted, read_objects

POLICY = own_kind("MetadataPolicy", "metadatapolicies", ApiStruct)
KINDS = (SERVICE, ENDPOINT_SLICE, SERVICE_CIDR, NODE, POD, CONFIG_MAP, POLICY)

SLIPS = [
    # apiVersion, kind, part of what is told
    ("v1", "Servce", '"Servce" is no kind that is read here (did you mean "Service"?), so web is ignored'),
    ("v1", "services", 'did you mean "Service"?'),
    ("discovery.k8s.io/v1", "EndpointSlices", 'did you mean "EndpointSlice"?'),
    ("v1", "Endpointslice", 'did you mean "EndpointSlice" of discovery.k8s.io/v1?'),
    (
        "discovery.k8s.io/v1beta1",
        "EndpointSlice",
        'EndpointSlice is not read as "discovery.k8s.io/v1beta1", so web is ignored: write apiVersion: discovery',
    ),
    ("v1", "EndpointSlice", "write apiVersion: discovery.k8s.io/v1"),
    ("discovery.k8s.io/v1", "Service", "write apiVersion: v1"),
    ("V1", "Service", "write apiVersion: v1"),
    ("discovery.k8s.oi/v1", "EndpointSlice", "write apiVersion: discovery.k8s.io/v1"),
    ("podgate.dev/v2", "MetadataPolicy", "write apiVersion: podgate.dev/v1alpha1"),
    ("example.com/v1", "MetadataPolicy", "write apiVersion: podgate.dev/v1alpha1"),
    ("podgate.dev/v1alpha1", "MetadataPolicies", 'did you mean "MetadataPolicy"?'),
]

SILENT = [
    ("apps/v1", "Deployment"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "ServiceAcount"),
    ("v1", "Endpoints"),
    ("v1", "PodTemplate"),
    ("v1", "ServiceList"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("storage.k8s.io/v1", "CSINode"),
    ("v1", "Config"),
    ("metrics.k8s.io/v1beta1", "NodeMetrics"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("serving.knative.dev/v1", "Service"),
    ("longhorn.io/v1beta2", "Node"),
    ("networking.istio.io/v1", "ServiceEntry"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceImport"),
    ("vpcresources.k8s.aws/v1alpha1", "CNINode"),
]


@pytest.mark.parametrize(("api_version", "kind", "told"), SLIPS)
def test_a_slip_is_told_with_what_was_meant(api_version: str, kind: str, told: str) -> None:
    found = meant(api_version, kind, KINDS)
    assert found is not None
    assert told in found.message("web", 1)


@pytest.mark.parametrize(("api_version", "kind"), SILENT)
def test_the_kind_of_somebody_else_is_no_slip(api_version: str, kind: str) -> None:
    assert meant(api_version, kind, KINDS) is None


def read(*objects: object) -> FileObjects:
    text = "".join(f"{json.dumps(obj)}\n" for obj in objects)
    return read_objects("m.jsonl", text.encode(), Wanted(watches(Settings(), "n1")))


def named(kind: str, name: str, api_version: str = "v1") -> object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def test_the_objects_of_a_file_with_one_slip_are_one_problem_at_the_first() -> None:
    old = [named("EndpointSlice", f"s{index}", "discovery.k8s.io/v1beta1") for index in range(1000)]
    found = read(named("Deployment", "d", "apps/v1"), named("Service", "web"), *old)
    message = (
        'EndpointSlice is not read as "discovery.k8s.io/v1beta1", so s0 and 999 more of this file are ignored: '
        "write apiVersion: discovery.k8s.io/v1"
    )
    assert found.problems == (Problem(file_ref("m.jsonl"), "warning", "UnknownVersion", "[2].apiVersion", message),)
    assert ([ref.name for ref in found.objects], found.others) == (["web"], 1001)


def test_an_object_without_a_name_is_told_too() -> None:
    (problem,) = read({"apiVersion": "v1", "kind": "Servce"}).problems
    assert "so this object is ignored" in problem.message


def test_an_old_version_beside_the_right_one_takes_nothing_from_it() -> None:
    found = read(named("Service", "web", "v1beta1"), named("Service", "web"))
    assert ([ref.name for ref in found.objects], found.broken) == (["web"], frozenset())
