"""Which labels a selector matches, and which nodes may take a Pod."""

import msgspec
import pytest

from podgate.lab.selecting import allows, matches, tolerates, untolerated
from podgate.lab.shapes import LabelSelector, Node, PodSpec, Taint, Toleration

LABELS = {"app": "web", "tier": "1", "empty": ""}

SELECTORS = [
    ({}, True),
    ({"matchLabels": {"app": "web"}}, True),
    ({"matchLabels": {"app": "web", "x": "y"}}, False),
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
    ({"matchExpressions": [{"key": "x", "operator": "In", "values": [""]}]}, False),
    ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
    ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["web"]}]}, True),
    ({"matchExpressions": [{"key": "empty", "operator": "Exists"}]}, True),
    ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
    ({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, True),
    ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}, False),
    ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
]


@pytest.mark.parametrize(("selector", "expected"), SELECTORS)
def test_label_selectors(selector: object, expected: bool) -> None:
    assert matches(msgspec.convert(selector, LabelSelector), LABELS) is expected


NODE = msgspec.convert({"metadata": {"name": "n", "labels": {"cpu": "8", "disk": "ssd", "odd": "x"}}}, Node)


def required(*terms: object) -> object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


PLACES = [
    ({}, True),
    ({"nodeSelector": {"disk": "ssd"}}, True),
    ({"nodeSelector": {"disk": "hdd"}}, False),
    ({"affinity": {}}, True),
    ({"affinity": required(expression("cpu", "Gt", "4"))}, True),
    ({"affinity": required(expression("cpu", "Gt", "8"))}, False),
    ({"affinity": required(expression("cpu", "Lt", "9"))}, True),
    ({"affinity": required(expression("odd", "Gt", "1"))}, False),
    ({"affinity": required(expression("missing", "Lt", "1"))}, False),
    ({"affinity": required({})}, False),
    ({"affinity": required()}, False),
    ({"affinity": required({}, expression("disk", "Exists"))}, True),
    ({"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})}, True),
    ({"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]})}, False),
    ({"nodeSelector": {"disk": "hdd"}, "affinity": required(expression("disk", "Exists"))}, False),
]


@pytest.mark.parametrize(("spec", "expected"), PLACES)
def test_node_selectors_and_affinity(spec: dict[str, object], expected: bool) -> None:
    assert allows(msgspec.convert({"containers": [{}], **spec}, PodSpec), NODE) is expected


TAINT = Taint("gpu", "NoSchedule", "a100")
TOLERATIONS = [
    (Toleration("gpu", "Exists"), True),
    (Toleration("gpu", "Exists", effect="NoSchedule"), True),
    (Toleration("gpu", "Exists", effect="NoExecute"), False),
    (Toleration("gpu", "Equal", "a100"), True),
    (Toleration("gpu", "Equal", "h100"), False),
    (Toleration("gpu"), False),
    (Toleration(operator="Exists"), True),
    (Toleration("cpu", "Exists"), False),
]


@pytest.mark.parametrize(("toleration", "expected"), TOLERATIONS)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_the_first_taint_that_keeps_a_pod_off() -> None:
    spec = {
        "unschedulable": True,
        "taints": [{"key": "wish", "effect": "PreferNoSchedule"}, {"key": "gpu", "effect": "NoExecute"}],
    }
    node = msgspec.convert({"metadata": {"name": "n"}, "spec": spec}, Node)
    assert untolerated((), node) == Taint("gpu", "NoExecute")
    found = untolerated((Toleration("gpu", "Exists"),), node)
    assert found == Taint("node.kubernetes.io/unschedulable", "NoSchedule")
    assert untolerated((Toleration("gpu", "Exists"),), node, frozenset({"NoExecute"})) is None
    assert untolerated((Toleration(operator="Exists"),), node) is None
