"""The request that takes a taint away says what it saw, and the plan what it does."""

import json

from podgate.targets.kubernetes.taints import Plan, Tainted, removal

TAINTED = Tainted("n/1", "u-1", "a.b/c", (0, 2))


def test_the_request_tests_what_it_removes_and_removes_from_the_end() -> None:
    request = removal(TAINTED)
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/n%2F1")
    assert request.content_type == "application/json-patch+json"
    assert json.loads(request.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "u-1"},
        {"op": "test", "path": "/spec/taints/2/key", "value": "a.b/c"},
        {"op": "remove", "path": "/spec/taints/2"},
        {"op": "test", "path": "/spec/taints/0/key", "value": "a.b/c"},
        {"op": "remove", "path": "/spec/taints/0"},
    ]


def test_a_plan_prints_itself() -> None:
    assert not Plan(())
    assert str(Plan((TAINTED,))) == "- Node/n/1: taint a.b/c"
    assert Plan((TAINTED,)).touches() == (TAINTED,)
    assert not Plan((TAINTED,)).without([TAINTED])
