"""What a fake API server says about itself: its version, the kinds that it has, and who may do what.

Here: answers to discovery and to access reviews. Not here: objects (fake_objects.py), HTTP (fake_apiserver.py).
Invariant: a kind that is not installed is in no answer, and a group and version without any kind is a 404.
"""

from typing import Any

from tests.support.fake_objects import ApiError, Obj, Objects

REVIEWS = tuple(f"/apis/authorization.k8s.io/v1/{kind}subjectaccessreviews" for kind in ("self", ""))


def discovered(path: str, objects: Objects) -> Obj | None:
    """Answer ``/version`` and the lists of kinds; None for any other path."""
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
        case ["api", version]:
            return _kinds("", version, objects)
        case ["apis", group, version]:
            return _kinds(group, version, objects)
    return None


def _kinds(group: str, version: str, objects: Objects) -> Obj:
    found: list[dict[str, Any]] = []
    for resource in (each.resource for each in objects.collections.values()):
        if (resource.group, resource.version) == (group, version):
            plain = {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
            found += [plain, {**plain, "name": f"{resource.plural}/status"}]
    if not found:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": found}


def reviewed(body: Obj, forbidden: set[tuple[str, str]]) -> Obj:
    """Answer an access review; who may not make any at all is told by ("create", "subjectaccessreviews")."""
    if body["kind"] == "SubjectAccessReview" and ("create", "subjectaccessreviews") in forbidden:
        raise ApiError(403, "Forbidden", "User cannot create resource subjectaccessreviews")
    asked = body["spec"]["resourceAttributes"]
    plural = "/".join(part for part in (asked["resource"], asked.get("subresource", "")) if part)
    return {**body, "status": {"allowed": (asked["verb"], plural) not in forbidden}}
