"""What stays of an object when it is applied again."""

from podgate.lab.applying import applied
from podgate.lab.kinds import Object

NODE: Object = {
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux", "disk": "ssd"}},
    "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "taints": [1]},
    "status": {"addresses": [{"type": "InternalIP", "address": "a"}, {"type": "Hostname", "address": "n"}]},
}


def test_a_new_object_is_what_the_user_wrote() -> None:
    assert applied(None, NODE) is NODE


def test_a_nodes_ranges_and_own_labels_stay_and_other_fields_go() -> None:
    found = applied(NODE, {"kind": "Node", "metadata": {"name": "n"}})
    assert found == {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
    }


def test_what_the_user_sets_wins() -> None:
    given = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"kubernetes.io/os": "other"}},
        "spec": {"podCIDRs": ["10.1.0.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "b"}]},
    }
    found = applied(NODE, given)
    assert found["spec"] == {"podCIDRs": ["10.1.0.0/24"]}
    assert found["metadata"] == given["metadata"]
    assert [one["address"] for one in found["status"]["addresses"]] == ["b", "n"]


def test_one_of_two_equal_ranges_keeps_both() -> None:
    found = applied(NODE, {"kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}})
    assert found["spec"] == {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}


def test_a_pod_stays_where_it_is() -> None:
    before = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "a"}}
    assert applied(before, {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"x": 1}})["spec"] == {
        "x": 1,
        "nodeName": "a",
    }
    moved = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "b"}}
    assert applied(before, moved) == moved


def test_of_other_kinds_nothing_stays() -> None:
    given = {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {}}
    assert applied({**given, "spec": {"nodeName": "a"}}, given) is given
