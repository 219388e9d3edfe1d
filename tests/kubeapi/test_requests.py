"""Requests as data: paths, parameters and bodies, as an API server wants them."""

import json
from urllib.parse import urlencode

import pytest

from podgate.kubeapi.requests import (
    Request,
    apply,
    ask_version,
    create,
    delete,
    follow,
    get,
    list_page,
    path_of,
    replace,
    stream_all,
)
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.nodes import NODE
from podgate.model.snapshot import Kind, Watch

LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", True, CONFIG_MAP.decodes_to)
REF = ObjectRef("ConfigMap", "a", "ns")


def target(request: Request) -> str:
    """Give the path with its query, as it is sent."""
    return f"{request.path}?{urlencode(request.query)}" if request.query else request.path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (path_of(NODE), "/api/v1/nodes"),
        (path_of(NODE, "ignored", "n1"), "/api/v1/nodes/n1"),
        (path_of(CONFIG_MAP), "/api/v1/configmaps"),
        (path_of(CONFIG_MAP, "ns", "a"), "/api/v1/namespaces/ns/configmaps/a"),
        (path_of(LEASE, "ns", "a", "status"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a/status"),
        (path_of(CONFIG_MAP, "ns", "../x?y"), "/api/v1/namespaces/ns/configmaps/..%2Fx%3Fy"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


WATCH = Watch(CONFIG_MAP, "ns", "app in (a,b)", "metadata.name=a")
SELECTED = "labelSelector=app+in+%28a%2Cb%29&fieldSelector=metadata.name%3Da"


@pytest.mark.parametrize(
    ("request_", "query"),
    [
        (list_page(WATCH), f"{SELECTED}&limit=500"),
        (list_page(WATCH, "t", 0), f"{SELECTED}&continue=t"),
        (follow(WATCH, "7", 60), f"{SELECTED}&watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=60"),
        (
            stream_all(WATCH, 60),
            (
                f"{SELECTED}&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
                "&timeoutSeconds=60"
            ),
        ),
    ],
)
def test_lists_and_watches(request_: Request, query: str) -> None:
    assert request_.method == "GET"
    assert target(request_) == f"/api/v1/namespaces/ns/configmaps?{query}"


@pytest.mark.parametrize(
    ("watch", "ref", "expected"),
    [
        (WATCH, REF, f"/api/v1/namespaces/ns/configmaps?{SELECTED}"),
        (Watch(CONFIG_MAP), REF, "/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da"),
        (Watch(NODE), ObjectRef("Node", "n"), "/api/v1/nodes?fieldSelector=metadata.name%3Dn"),
        # Whoever is asked for, the version is the same; a selector stays, since rights may depend on it.
        (
            Watch(CONFIG_MAP, label_selector="a=b", field_selector="spec.x=y"),
            None,
            (
                "/api/v1/namespaces/default/configmaps?labelSelector=a%3Db"
                "&fieldSelector=spec.x%3Dy%2Cmetadata.name%3Dpodgate-asks-for-the-version"
            ),
        ),
    ],
)
def test_a_version_is_asked_for_by_one_name(watch: Watch, ref: ObjectRef | None, expected: str) -> None:
    assert target(ask_version(watch, ref)) == expected


def test_an_apply_names_its_object_and_its_owner() -> None:
    request = apply(CONFIG_MAP, REF, {"metadata": {"labels": {"x": "y"}}}, "podgate", force=False)
    assert (request.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert target(request) == "/api/v1/namespaces/ns/configmaps/a?fieldManager=podgate&force=false"
    assert json.loads(request.body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "ns", "labels": {"x": "y"}},
    }
    status = apply(NODE, ObjectRef("Node", "n"), {"status": {}}, "podgate", subresource="status", force=True)
    assert target(status) == "/api/v1/nodes/n/status?fieldManager=podgate&force=true"
    assert status.what == "apply the status of Node/n"


def test_writes_of_whole_objects() -> None:
    made = create(CONFIG_MAP, REF, {"a": 1}, "podgate")
    assert (made.method, target(made)) == ("POST", "/api/v1/namespaces/ns/configmaps?fieldManager=podgate")
    changed = replace(CONFIG_MAP, REF, {"a": 1}, "podgate")
    assert (changed.method, target(changed)) == ("PUT", "/api/v1/namespaces/ns/configmaps/a?fieldManager=podgate")
    assert target(get(CONFIG_MAP, REF)) == "/api/v1/namespaces/ns/configmaps/a"
    assert delete(CONFIG_MAP, REF).body == b""
    assert json.loads(delete(CONFIG_MAP, REF, "u").body) == {"preconditions": {"uid": "u"}}
