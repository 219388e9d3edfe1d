"""Kinds and version of an API server, from its answers."""

import msgspec
import pytest

from podgate.kubeapi.discovery import kinds_of, kinds_request, version_of

APPS = {
    "kind": "APIResourceList",
    "groupVersion": "apps/v1",
    "resources": [
        {"name": "daemonsets", "singularName": "daemonset", "namespaced": True, "kind": "DaemonSet", "verbs": ["get"]},
        {"name": "daemonsets/status", "namespaced": True, "kind": "DaemonSet", "verbs": ["get"]},
        {"name": "deployments/scale", "group": "autoscaling", "version": "v1", "namespaced": True, "kind": "Scale"},
    ],
}


@pytest.mark.parametrize(
    ("version", "path"),
    [("v1", "/api/v1"), ("apps/v1", "/apis/apps/v1"), ("a/b/c", "/apis/a%2Fb/c"), ("../x", "/apis/../x")],
)
def test_paths_follow_from_group_and_version(version: str, path: str) -> None:
    assert kinds_request(version).path == path


def test_subresources_are_no_kinds() -> None:
    kinds = kinds_of("apps/v1", msgspec.json.encode(APPS))
    assert list(kinds) == ["DaemonSet"]
    kind = kinds["DaemonSet"]
    assert (kind.group, kind.version, kind.plural, kind.namespaced) == ("apps", "v1", "daemonsets", True)


def test_version() -> None:
    assert version_of(b'{"major": "1", "gitVersion": "v1.36.3"}') == "v1.36.3"
