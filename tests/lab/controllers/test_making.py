"""Names, hashes and Pods that come from their inputs alone."""

import re

import pytest

from podgate.lab.controllers.making import count, digest, owner_reference, pod_from, pod_name, template_hash
from podgate.lab.kinds import Object

OWNER: Object = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "agent", "namespace": "n", "uid": "u"},
    "spec": {
        "template": {
            "metadata": {"name": "ignored", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"containers": []},
        }
    },
}


def test_digests_are_safe_letters_and_depend_on_the_value_alone() -> None:
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{10}", digest({"a": 1, "b": 2}, 10))
    assert digest({"a": 1, "b": 2}, 10) == digest({"b": 2, "a": 1}, 10)
    assert digest({"a": 1}, 10) != digest({"a": "1"}, 10)
    assert len({digest(number, 5) for number in range(2000)}) > 1990


def test_names_differ_by_what_they_are_told_by_and_fit_a_label() -> None:
    assert pod_name(OWNER, "node", "x") == pod_name(OWNER, "node", "x")
    assert pod_name(OWNER, "node", "x") != pod_name(OWNER, "nodex")
    long = {**OWNER, "metadata": {**OWNER["metadata"], "name": "a" * 56 + "-" + "b" * 100}}
    assert re.fullmatch("a{56}-.{5}", pod_name(long, "x"))
    other = {**OWNER, "metadata": {**OWNER["metadata"], "uid": "v"}}
    assert pod_name(OWNER, "x") != pod_name(other, "x")


def test_a_hash_is_that_of_the_template() -> None:
    other = {**OWNER, "spec": {**OWNER["spec"], "minReadySeconds": 3}}
    assert template_hash(OWNER) == template_hash(other)


def test_a_pod_has_the_templates_labels_and_annotations_and_its_owner() -> None:
    pod = pod_from(OWNER, "agent-1", {"hash": "h"})
    assert pod["metadata"] == {
        "name": "agent-1",
        "namespace": "n",
        "labels": {"a": "b", "hash": "h"},
        "annotations": {"c": "d"},
        "ownerReferences": [owner_reference(OWNER)],
    }
    assert pod["spec"] == {"containers": []}


@pytest.mark.parametrize(
    ("value", "total", "up", "number"),
    [(3, 10, True, 3), ("25%", 10, True, 3), ("25%", 10, False, 2), ("25%", 4, True, 1), ("0%", 9, True, 0),
     ("100%", 7, False, 7), ("25%", 1, False, 0), ("150%", 2, True, 3)],
)  # fmt: skip
def test_numbers_and_percentages(value: int | str, total: int, up: bool, number: int) -> None:
    assert count(value, total, up=up) == number
