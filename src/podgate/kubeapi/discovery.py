"""Discovery: which kinds an API server has. Pure.

Here: the request for a group and version, its answer as kinds, the request for the server's version. Not here: what
to do about a kind that is missing.
Invariant: a kind that is given can be asked for: its paths follow from it alone.

Format: kubernetes.io, "Kubernetes API Concepts", APIResourceList; ``/version``.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from podgate.kubeapi.requests import Request, encoded
from podgate.model.kinds.meta import ApiStruct
from podgate.model.snapshot import Kind

VERSION: Final = Request("GET", "/version", what="get the server's version")


class _Resource(ApiStruct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _Resources(ApiStruct, frozen=True, rename="camel"):
    resources: tuple[_Resource, ...] = ()


class _Version(ApiStruct, frozen=True, rename="camel"):
    git_version: str = ""


def kinds_request(api_version: str) -> Request:
    """Ask for the kinds of a group and version, as ``v1`` or ``apps/v1``."""
    group, slash, version = api_version.rpartition("/")
    path = f"/apis/{encoded(group)}/{encoded(version)}" if slash else f"/api/{encoded(version)}"
    return Request("GET", path, what=f"list the kinds of {api_version}")


def kinds_of(api_version: str, body: bytes) -> Mapping[str, Kind[Any]]:
    """Read the kinds by name; an object of each is a plain map. Raises msgspec.DecodeError."""
    group, _, version = api_version.rpartition("/")
    found = msgspec.json.decode(body, type=_Resources)
    # A name with a slash is a subresource, as pods/log.
    return {
        each.kind: Kind(group, version, each.kind, each.name, each.namespaced, dict)
        for each in found.resources
        if "/" not in each.name
    }


def version_of(body: bytes) -> str:
    """Read the server's version, as ``v1.36.3``. Raises msgspec.DecodeError."""
    return msgspec.json.decode(body, type=_Version).git_version
