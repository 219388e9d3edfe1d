"""The fields that controllers read."""

from typing import Any

import pytest

from podgate.lab.shapes import Deployment, Node, Pod, ShapeFault, shape_fault, view


def test_absent_fields_have_the_apis_defaults() -> None:
    template: dict[str, Any] = {"spec": {"containers": [{}]}}
    value = view({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": template}}, Deployment)
    assert (value.spec.replicas, value.spec.strategy.type, value.spec.revision_history_limit) == (
        1,
        "RollingUpdate",
        10,
    )
    pod = view({"metadata": {"name": "p"}, "spec": {"containers": [{}]}}, Pod)
    assert (pod.status.phase, pod.ready, pod.ended, pod.terminating) == ("Pending", False, False, False)


def test_a_nodes_ranges_from_either_field() -> None:
    for spec in ({"podCIDR": "10.0.0.0/24"}, {"podCIDRs": ["10.0.0.0/24"]}):
        assert view({"metadata": {"name": "n"}, "spec": spec}, Node).ranges == ("10.0.0.0/24",)
    assert view({"metadata": {"name": "n"}}, Node).ranges == ()


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "Pod"}, "", "needs apiVersion and kind"),
    ({"kind": 1, "apiVersion": "v1"}, "", "needs apiVersion and kind"),
    ({"kind": "Any", "apiVersion": "v1"}, "", "metadata"),
    ({"kind": "Any", "apiVersion": "v1", "metadata": {"name": 1}}, "metadata.name", "put text in quotes"),
    ({"kind": "Any", "apiVersion": "v1", "metadata": {"name": True}}, "metadata.name", "booleans in YAML"),
    ({"kind": "Any", "apiVersion": "v1", "metadata": {"labels": {"a": 1.5}}}, "metadata.labels", "in quotes"),
    (
        {"kind": "Node", "apiVersion": "v1", "metadata": {}, "spec": {"taints": [{"key": "a"}]}},
        "spec.taints[0]",
        "effect",
    ),
    ({"kind": "Host", "apiVersion": "lab.podgate.dev/v1", "metadata": {}, "spec": {}}, "spec", "addresses"),
]


@pytest.mark.parametrize(("obj", "field", "says"), FAULTS)
def test_what_does_not_fit_is_named_by_its_field(obj: dict[str, Any], field: str, says: str) -> None:
    fault = shape_fault(obj)
    assert isinstance(fault, ShapeFault)
    assert (fault.field, says in fault.message) == (field, True), fault


def test_a_kind_of_another_group_is_not_held_to_the_shape() -> None:
    assert shape_fault({"kind": "Pod", "apiVersion": "example.com/v1", "metadata": {"name": "p"}}) is None
