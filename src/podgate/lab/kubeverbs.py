"""What up, apply, get and delete do when a lab has joined a cluster: they ask its API server.

Here: the objects' side of those verbs. Not here: arguments and waiting (lab/objectverbs.py), running Pods (the daemon).
Invariant: objects are written by server-side apply under one field manager, so that applying the same manifest again
changes nothing. As with kubectl, what the manifest says wins over whoever wrote the field before.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec

from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import AccessError, Connection, UnreachableError
from podgate.kubeapi.requests import Request, apply, create, get, list_page, path_of
from podgate.lab.kinds import LAB_GROUP, Kinds, Object, Resource, defined_by, group_of, placed, ref_of
from podgate.lab.kubeaccess import connection, join
from podgate.lab.kubejoin import Join
from podgate.lab.kubekinds import DEFINITION, WATCHED, kind_named, kind_of, whole
from podgate.lab.kubeview import OWNED, OWNER, version_of
from podgate.lab.kubewrites import MANAGER, deletion, status_request
from podgate.lab.messages import LabError, ObjectVersion
from podgate.model.frozen import ObjectRef
from podgate.model.snapshot import Kind, Watch

_PATIENCE: Final = 10.0
"""Seconds in which a new namespace gets its account and a new kind its path."""

_LEAVING: Final = 60.0
"""Seconds in which a deleted object and what belongs to it must be gone."""

_AGAIN: Final = 0.1
_CONFLICT: Final = 409
_GONE: Final = 404
_NOT_YET: Final = (403, _GONE, _CONFLICT)
_NAMESPACE: Final = kind_named("Namespace")
_DEFINITION: Final = kind_named("CustomResourceDefinition")

T = TypeVar("T")


class _Session:
    """Requests one after the other; a refusal is the user's to see."""

    def __init__(self, opened: Connection) -> None:
        self._connection = opened

    async def asked(self, request: Request, *refused_is_none: int) -> Object | None:
        """Send; None for these codes, LabError for other refusals."""
        answer = await self._connection.send(request)
        if answer.refused is None:
            return msgspec.json.decode(answer.body or b"{}", type=dict[str, Any])
        if answer.refused.code in refused_is_none:
            return None
        raise LabError(f"{request.what}: {_said(answer.refused)}")

    async def eventually(self, request: Request) -> Object:
        """Send until the API server takes it, as long as its controllers may still be at work on what it needs."""
        until = time.monotonic() + _PATIENCE
        while True:
            found = await self.asked(request, *(_NOT_YET if time.monotonic() < until else ()))
            if found is not None:
                return found
            await asyncio.sleep(_AGAIN)

    async def gone(self, request: Request) -> None:
        """Ask until there is nothing any more."""
        until = time.monotonic() + _LEAVING
        while await self.asked(request, _GONE) is not None:
            if time.monotonic() > until:
                raise LabError(f"{request.what}: it is still there after {_LEAVING:g} s; what belongs to it goes first")
            await asyncio.sleep(_AGAIN)

    async def kinds(self) -> Kinds:
        """Give the kinds that this API server has, as far as the lab can tell."""
        found = await self.asked(list_page(Watch(_DEFINITION), limit=0), 403)
        return Kinds(filter(None, map(defined_by, (found or {}).get("items") or ())))


def _said(refused: Refusal) -> str:
    return f"{refused.code} {refused.reason}: {refused.message}"


def _run(joined: Join, work: Callable[[_Session], Coroutine[Any, Any, T]]) -> T:
    async def session() -> T:
        async with connection(joined) as opened:
            return await work(_Session(opened))

    try:
        return asyncio.run(session())
    except (UnreachableError, AccessError) as error:
        raise LabError(str(error)) from error


def joining(kubeconfig: str, context: str) -> Join:
    """Find the way to a cluster; raises LabError."""
    try:
        return join(kubeconfig, context)
    except AccessError as error:
        raise LabError(str(error), 2) from error


def known_kinds(joined: Join) -> Kinds:
    """Give the kinds of the cluster's API; raises LabError."""
    return _run(joined, _Session.kinds)


def prepare(joined: Join) -> None:
    """Make the API server know the lab's own kind."""

    async def work(session: _Session) -> None:
        ref = ref_of(DEFINITION)
        await session.asked(apply(_DEFINITION, ref, DEFINITION, MANAGER, force=True))
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = await session.asked(get(_DEFINITION, ref)) or {}
            conditions = (found.get("status") or {}).get("conditions") or ()
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                return
            await asyncio.sleep(_AGAIN)
        raise LabError(f"the API server does not establish {ref}")

    _run(joined, work)


def apply_objects(
    joined: Join, lab: str, objects: Sequence[Object], kinds: Kinds
) -> tuple[tuple[str, ...], tuple[ObjectVersion, ...]]:
    """Apply objects that were checked before.

    Returns:
        A line per object: created, configured or unchanged; and the versions of those that the lab acts on.
    """

    async def work(session: _Session) -> tuple[tuple[str, ...], tuple[ObjectVersion, ...]]:
        lines: list[str] = []
        versions: list[ObjectVersion] = []
        namespaces: set[str] = set()
        known = kinds.plus(*filter(None, map(defined_by, objects)))
        for given in objects:
            resource = known.of(given)
            if resource is None:
                raise LabError(known.unknown(given), 2)
            obj = placed(given, resource)
            ref = ref_of(obj)
            if ref.namespace and ref.namespace not in namespaces:
                namespaces.add(ref.namespace)
                await _ensure_namespace(session, ref.namespace)
            word, after = await _applied(session, kind_of(resource, _version(obj)), ref, _marked(obj, lab))
            lines.append(f"{ref} {word}")
            if ref.kind in WATCHED:
                versions.append((ref.kind, ref.namespace, ref.name, version_of(after)))
        return tuple(lines), tuple(versions)

    return _run(joined, work)


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


def _marked(obj: Object, lab: str) -> Object:
    """Note on Nodes and Hosts which lab they belong to; leave out what only an API server writes."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in {"creationTimestamp", "uid"}}
    if obj["kind"] in OWNED and group_of(obj) in {"", LAB_GROUP}:
        metadata["labels"] = {**(metadata.get("labels") or {}), OWNER: lab}
    return {**obj, "metadata": metadata}


async def _ensure_namespace(session: _Session, name: str) -> None:
    ref = ObjectRef("Namespace", name)
    if await session.asked(get(_NAMESPACE, ref), _GONE) is None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await session.asked(create(_NAMESPACE, ref, body, MANAGER), _CONFLICT)


async def _applied(session: _Session, kind: Kind[Any], ref: ObjectRef, obj: Object) -> tuple[str, Object]:
    before = await session.asked(get(kind, ref), _GONE)
    body = {key: value for key, value in obj.items() if key != "status"}
    after = await session.eventually(apply(kind, ref, body, MANAGER, force=True))
    if ref.kind == "Node" and isinstance(obj.get("status"), dict):
        request = status_request(kind, ref, whole(kind, after), obj["status"])
        after = (await session.asked(request) if request else None) or after
    if before is None:
        return "created", after
    return "unchanged" if version_of(before) == version_of(after) else "configured", after


def listed(joined: Join, resource: Resource) -> list[Object]:
    """Give all objects of a kind."""

    async def work(session: _Session) -> list[Object]:
        kind = await _preferred(session, resource)
        found = await session.asked(list_page(Watch(kind), limit=0), _GONE) or {}
        return [whole(kind, item) for item in found.get("items") or ()]

    return _run(joined, work)


async def _preferred(session: _Session, resource: Resource) -> Kind[Any]:
    """Give a kind in the version that the API server prefers."""
    if not resource.group:
        return kind_of(resource)
    found = await session.asked(Request("GET", f"/apis/{resource.group}", what=f"find {resource.group}"), _GONE) or {}
    return kind_of(resource, (found.get("preferredVersion") or {}).get("version", "v1"))


def delete(joined: Join, objects: Sequence[tuple[Resource, ObjectRef]], *, wait: bool) -> None:
    """Delete objects and what belongs to them; with ``wait`` return when they are gone."""

    async def work(session: _Session) -> None:
        kinds = {ref: await _preferred(session, resource) for resource, ref in objects}
        body = msgspec.json.encode({"propagationPolicy": "Foreground"})
        missing = [
            str(ref)
            for ref, kind in kinds.items()
            if await session.asked(
                Request("DELETE", path_of(kind, ref.namespace, ref.name), body=body, what=f"delete {ref}"), _GONE
            )
            is None
        ]
        if missing:
            raise LabError(f"not found: {', '.join(missing)}")
        for ref, kind in kinds.items() if wait else ():
            await session.gone(get(kind, ref))

    _run(joined, work)


def unregister(joined: Join, lab: str) -> None:
    """Take a lab's Nodes and Hosts out of the cluster, with the Pods that ran there: nobody else would end them."""

    async def work(session: _Session) -> None:
        pods = kind_named("Pod")
        for kind in map(kind_named, OWNED):
            own = await session.asked(list_page(Watch(kind, label_selector=f"{OWNER}={lab}"), limit=0), _GONE) or {}
            for item in own.get("items") or ():
                ref = ObjectRef(kind.kind, item["metadata"]["name"])
                if kind.kind == "Node":
                    on_it = Watch(pods, field_selector=f"spec.nodeName={ref.name}")
                    for pod in (await session.asked(list_page(on_it, limit=0)) or {}).get("items") or ():
                        metadata = pod["metadata"]
                        place = ObjectRef("Pod", metadata["name"], metadata["namespace"])
                        await session.asked(deletion(pods, place, pod, at_once=True), _GONE, _CONFLICT)
                await session.asked(deletion(kind, ref, item, at_once=False), _GONE, _CONFLICT)

    _run(joined, work)
