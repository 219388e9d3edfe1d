"""Requests to a Kubernetes API as data. Pure.

Here: the request value and one function per request that podgate makes. Not here: sending (connection.py).
Invariant: names of objects reach a path percent-encoded, and nothing secret is in a request: credentials are added when
it is sent.

Verbs and parameters: kubernetes.io, "Kubernetes API Concepts".
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import Bounds
from podgate.model.snapshot import Kind, Watch

APPLY: Final = "application/apply-patch+yaml"
"""The content type of server-side apply; JSON is YAML too (KEP-555)."""

JSON: Final = "application/json"
PAGE: Final = 500
"""Objects per page of a list, as kubectl and client-go ask for."""
NOBODY: Final = "podgate-asks-for-the-version"
"""The name that is asked for where any would do: it tells who reads a server's log what for."""

_ONE_NAME: Final = "metadata.name="

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Request(Frozen, frozen=True):
    """One HTTP request.

    Attributes:
        path: with a leading slash, encoded.
        query: parameters, in order.
        body: what is sent; empty for nothing.
        content_type: of the body.
        what: for messages: as ``list Pod`` or ``apply Service/default/web``.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = JSON
    what: str = ""

    def parameters(self) -> Mapping[str, str]:
        """Give the query as a mapping."""
        return dict(self.query)


def encoded(part: str) -> str:
    """Percent-encode one part of a path (RFC 3986, 2.3: what is unreserved stays)."""
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in part.encode("utf-8", "surrogatepass")
    )


def path_of(kind: Kind[Any], namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Give the path of a collection, or of one object in it, or of a part of that object."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if namespace and kind.namespaced:
        parts += ["namespaces", namespace]
    parts += [part for part in (kind.plural, name, subresource) if part]
    return "".join(f"/{encoded(part)}" for part in parts)


def _selected(watch: Watch) -> tuple[tuple[str, str], ...]:
    selectors = (("labelSelector", watch.label_selector), ("fieldSelector", watch.field_selector))
    return tuple((name, value) for name, value in selectors if value)


def page_of(kind: Kind[Any]) -> int:
    """Give how many objects of a kind a page has: few of one whose objects may be long, and anybody's."""
    bounds: Bounds | None = getattr(kind.decodes_to, "bounds", None)
    return bounds.page if bounds else PAGE


def list_page(watch: Watch, token: str = "", limit: int = PAGE) -> Request:
    """Ask for one page of a consistent list; ``token`` is where the page before ended, ``limit`` 0 asks for all."""
    query = [*_selected(watch)]
    if limit:
        query.append(("limit", str(limit)))
    if token:
        query.append(("continue", token))
    return Request("GET", path_of(watch.kind, watch.namespace), tuple(query), what=f"list {watch.kind.kind}")


def follow(watch: Watch, resource_version: str, seconds: int) -> Request:
    """Ask for the changes since a resource version; the server ends the answer after ``seconds``."""
    query = (
        *_selected(watch),
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", str(seconds)),
    )
    return Request("GET", path_of(watch.kind, watch.namespace), query, what=f"watch {watch.kind.kind}")


def stream_all(watch: Watch, seconds: int) -> Request:
    """Ask for all objects as events, then for the changes, in one answer (KEP-3157)."""
    query = (
        *_selected(watch),
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("timeoutSeconds", str(seconds)),
    )
    return Request("GET", path_of(watch.kind, watch.namespace), query, what=f"list and watch {watch.kind.kind}")


def ask_version(watch: Watch, ref: ObjectRef | None = None) -> Request:
    """Ask for the resource version of what a watch follows, and of one object in it.

    It costs a server the reading of one key, whatever there is of the kind: a list of one name in one namespace. Since
    it says no resource version, the answer is as new as the store (KEP-2340), also where the server's memory is late.

    Args:
        watch: what is followed; its selectors stay, since rights may depend on them.
        ref: the object; None for nobody in particular.
    """
    field_selector = watch.field_selector
    if _ONE_NAME not in field_selector:
        field_selector = ",".join((*filter(None, [field_selector]), f"{_ONE_NAME}{ref.name if ref else NOBODY}"))
    narrowed = msgspec.structs.replace(watch, field_selector=field_selector)
    path = path_of(watch.kind, watch.namespace or (ref.namespace if ref else "") or "default")
    return Request("GET", path, _selected(narrowed), what=f"ask for the version of {watch.kind.kind}")


def get(kind: Kind[Any], ref: ObjectRef) -> Request:
    """Ask for one object."""
    return Request("GET", path_of(kind, ref.namespace, ref.name), what=f"get {ref}")


def dry_run(request: Request) -> Request:
    """Have a write checked and answered as if it were done, and not done."""
    return msgspec.structs.replace(request, query=(*request.query, ("dryRun", "All")))


def create(kind: Kind[Any], ref: ObjectRef, body: Mapping[str, Any], field_manager: str) -> Request:
    """Make an object; 409 when it is there."""
    path = path_of(kind, ref.namespace)
    query = (("fieldManager", field_manager),)
    return Request("POST", path, query, msgspec.json.encode(body), what=f"create {ref}")


def replace(kind: Kind[Any], ref: ObjectRef, body: Mapping[str, Any], field_manager: str) -> Request:
    """Replace an object; 409 when ``metadata.resourceVersion`` in the body is not the newest."""
    path = path_of(kind, ref.namespace, ref.name)
    return Request("PUT", path, (("fieldManager", field_manager),), msgspec.json.encode(body), what=f"replace {ref}")


def apply(
    kind: Kind[Any], ref: ObjectRef, body: Mapping[str, Any], field_manager: str, *, subresource: str = "", force: bool
) -> Request:
    """Own the fields in the body and no others (server-side apply).

    Args:
        kind: the object's kind.
        ref: which object.
        body: the fields, without type and name.
        field_manager: who owns them.
        subresource: as ``status``; empty for the object itself.
        force: take fields that others own; without it such a conflict is a 409.
    """
    metadata = {**body.get("metadata", {}), "name": ref.name}
    if kind.namespaced:
        metadata["namespace"] = ref.namespace
    whole = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    query = (("fieldManager", field_manager), ("force", "true" if force else "false"))
    return Request(
        "PATCH",
        path_of(kind, ref.namespace, ref.name, subresource),
        query,
        msgspec.json.encode(whole),
        APPLY,
        f"apply {'the ' + subresource + ' of ' if subresource else ''}{ref}",
    )


def delete(kind: Kind[Any], ref: ObjectRef, uid: str = "") -> Request:
    """Remove an object; with ``uid`` only that one, never a later one of the same name."""
    body = msgspec.json.encode({"preconditions": {"uid": uid}}) if uid else b""
    return Request("DELETE", path_of(kind, ref.namespace, ref.name), body=body, what=f"delete {ref}")
