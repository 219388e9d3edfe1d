"""A fake API server: what kube-apiserver answers to lists, watches and writes, over real HTTP or HTTPS.

Here: paths, accounts, pages, watches with bookmarks and initial events, on top of fake_objects.py. Not here: faults of
the network (chaos_proxy.py), any podgate code but the selectors' grammar.
Invariant: what it does not know it refuses, so that a test never passes on an answer that a real server would not give.
"""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support.fake_discovery import REVIEWS, discovered, reviewed
from tests.support.fake_objects import ApiError, Collection, Obj, Objects, Resource, Selection

RESOURCES = (
    Resource("", "v1", "Pod", "pods", True),
    Resource("", "v1", "Node", "nodes", False),
    Resource("", "v1", "ConfigMap", "configmaps", True),
    Resource("", "v1", "Secret", "secrets", True),
    Resource("", "v1", "Service", "services", True),
    Resource("", "v1", "Namespace", "namespaces", False),
    Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", True),
    Resource("events.k8s.io", "v1", "Event", "events", True),
)


class FakeApiServer:
    """The server. Change its attributes to change how it behaves.

    Attributes:
        objects: what is stored.
        tokens: which bearer tokens are known; None: everybody may come.
        forbidden: (verb, plural) pairs that nobody may do.
        streaming: ``yes``; ``no progress``, as with an old etcd; ``unknown``, as a server without KEP-3157.
        bookmark_every: seconds.
        requests: (method, path, query) of every request.
        certificates: the subjects of the client certificates that were shown.
    """

    def __init__(self, *resources: Resource) -> None:
        self.objects = Objects(resources or RESOURCES)
        self.objects.on_change = self._wake
        self.tokens: set[str] | None = None
        self.forbidden: set[tuple[str, str]] = set()
        self.streaming = "yes"
        self.bookmark_every = 60.0
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.certificates: list[Any] = []
        self.url = ""
        self.upstream: ssl.SSLContext | None = None
        self.streams = 0
        self._pages: dict[str, list[Obj]] = {}
        self._wakers: set[asyncio.Event] = set()
        self._cache: dict[tuple[str, str], bytes] = {}

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    def put(self, plural: str, obj: Obj) -> Obj:
        """Make or replace an object."""
        return self.objects.put(plural, obj)

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete one."""
        self.objects.remove(plural, name, namespace)

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator["FakeApiServer"]:
        """Serve on a port of 127.0.0.1; ``url`` says which."""
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0, access_log=None, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context)
            await site.start()
            address = runner.addresses[0]
            self.url = f"{'https' if context else 'http'}://127.0.0.1:{address[1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        if peer:
            self.certificates.append(peer)
        try:
            return await self._route(request)
        except ApiError as error:
            return web.json_response(error.status, status=error.code)

    async def _route(self, request: web.Request) -> web.StreamResponse:
        if self.tokens is not None:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            if scheme != "Bearer" or token not in self.tokens:
                raise ApiError(401, "Unauthorized", "Unauthorized")
        told = discovered(request.path, self.objects) if request.method == "GET" else None
        if told is not None:
            return web.json_response(told)
        if request.path in REVIEWS:
            return web.json_response(reviewed(await request.json(), self.forbidden), status=201)
        collection, namespace, name, subresource = self._find(request.path)
        verb = self._verb(request, name)
        if (verb, collection.resource.plural) in self.forbidden:
            raise ApiError(403, "Forbidden", f"User cannot {verb} resource {collection.resource.plural}")
        if verb == "watch":
            return await self._watch(request, collection, _selection(request, namespace))
        if verb == "list":
            return self._list(request, collection, _selection(request, namespace))
        body = await request.read()
        return self._single(verb, request, collection, (namespace, name), subresource, json.loads(body or b"{}"))

    def _find(self, path: str) -> tuple[Collection, str, str, str]:
        parts = path.strip("/").split("/")
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        collection = self.objects.collections.get((group, version, rest[0]))
        if collection is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        rest += ["", ""]
        return collection, namespace, rest[1], rest[2]

    @staticmethod
    def _verb(request: web.Request, name: str) -> str:
        if request.method == "GET":
            watches = request.query.get("watch") in ("true", "1")
            return "get" if name else "watch" if watches else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]

    def _single(  # noqa: PLR0917
        self,
        verb: str,
        request: web.Request,
        collection: Collection,
        name: tuple[str, str],
        subresource: str,
        body: Obj,
    ) -> web.Response:
        manager = request.query.get("fieldManager", request.headers.get("User-Agent", "unknown").split("/")[0])
        match verb:
            case "get":
                obj = self.objects.get(collection, name)
            case "create":
                body.setdefault("metadata", {}).setdefault("namespace", name[0])
                obj = self.objects.create(collection, body, manager)
                return web.json_response(obj, status=201)
            case "update":
                obj = self.objects.update(collection, name, body, manager, subresource=subresource)
            case "delete":
                obj = self.objects.delete(collection, name, (body.get("preconditions") or {}).get("uid", ""))
            case _:
                if request.content_type != "application/apply-patch+yaml":
                    raise ApiError(415, "UnsupportedMediaType", f"{request.content_type} is not supported here")
                if not request.query.get("fieldManager"):
                    raise ApiError(422, "Invalid", "fieldManager: Required value: is required for apply patch")
                force = request.query.get("force") == "true"
                with self.objects.trial(collection, name, dry=request.query.get("dryRun") == "All"):
                    obj = self.objects.apply(collection, name, body, manager, subresource=subresource, force=force)
        return web.json_response(obj)

    # Lists.

    def _list(self, request: web.Request, collection: Collection, selection: Selection) -> web.Response:
        token = request.query.get("continue", "")
        limit = int(request.query.get("limit", "0"))
        if token:
            given = json.loads(base64.b64decode(token))
            version, found = given["version"], self._pages.pop(token, None)
            if found is None or version < self.objects.oldest:
                raise ApiError(410, "Expired", "The provided continue parameter is too old")
        else:
            version, found = self.objects.version, list(collection.select(selection))
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            more = base64.b64encode(json.dumps({"version": version, "start": id(found)}).encode()).decode()
            self._pages[more] = found[limit:]
            metadata |= {"continue": more, "remainingItemCount": len(found) - limit}
            found = found[:limit]
        resource = collection.resource
        head = json.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
        items = b",".join(self.encoded(obj, listed=True) for obj in found)
        body = head[:-1].encode() + b', "items": [' + items + b"]}"
        return web.Response(body=body, content_type="application/json")

    def encoded(self, obj: Obj, *, listed: bool = False) -> bytes:
        """Encode once per version. Items of a list carry no type and version, as the API's own lists do."""
        key = (obj["metadata"]["uid"] + ("l" if listed else ""), obj["metadata"]["resourceVersion"])
        if key not in self._cache:
            plain = {name: value for name, value in obj.items() if not listed or name not in ("apiVersion", "kind")}
            self._cache[key] = json.dumps(plain, separators=(",", ":")).encode()
        return self._cache[key]

    # Watches.

    async def _watch(self, request: web.Request, collection: Collection, selection: Selection) -> web.StreamResponse:
        query = request.query
        initial = query.get("sendInitialEvents") == "true"
        if initial and (self.streaming == "unknown" or query.get("resourceVersionMatch") != "NotOlderThan"):
            raise ApiError(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.streams += 1
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            async with asyncio.timeout(float(query.get("timeoutSeconds", "1800"))):
                await self._send(response, collection, selection, query.get("resourceVersion", ""), initial, waker)
        except TimeoutError:
            await response.write_eof()
        finally:
            self._wakers.discard(waker)
            self.streams -= 1
        return response

    async def _send(  # noqa: PLR0917
        self, response: web.StreamResponse, collection: Collection, selection: Selection, since: str, initial: bool,
        waker: asyncio.Event,
    ) -> None:  # fmt: skip
        if initial and self.streaming == "no progress":
            error = ApiError(500, "InternalError", "a watch stream was requested by the client but the required "
                             "storage feature RequestWatchProgress is disabled")  # fmt: skip
            await _write(response, "ERROR", json.dumps(error.status).encode())
            return
        version = int(since or self.objects.version)
        if since and version < self.objects.oldest:
            expired = ApiError(410, "Expired", f"too old resource version: {version} ({self.objects.oldest})")
            await _write(response, "ERROR", json.dumps(expired.status).encode())
            return
        if initial:
            await self._send_initial(response, collection, selection)
        matches, position = selection.matcher(), 0
        bookmark_at = time.monotonic() + self.bookmark_every
        while True:
            waker.clear()
            ends = not collection.installed
            history = collection.history
            position = min(position, len(history))
            while position < len(history):
                change = history[position]
                position += 1
                if change.version > version:
                    version = change.version
                    event = change.event(matches)
                    if event:
                        await _write(response, event[0], self.encoded(event[1]))
            if ends:
                return
            try:
                async with asyncio.timeout(max(0.0, bookmark_at - time.monotonic())):
                    await waker.wait()
            except TimeoutError:
                if position < len(collection.history):
                    continue  # it came while the time was up: a bookmark says that all before it was sent
                # As in kube-apiserver, a watch that is ahead of the store hears nothing at all.
                if self.objects.version >= version:
                    version = self.objects.version
                    await _write(response, "BOOKMARK", _bookmark(collection.resource, version))
                bookmark_at = time.monotonic() + self.bookmark_every

    async def _send_initial(self, response: web.StreamResponse, collection: Collection, selection: Selection) -> None:
        version = self.objects.version
        for obj in list(collection.select(selection)):
            await _write(response, "ADDED", self.encoded(obj))
        end = {"k8s.io/initial-events-end": "true"}
        await _write(response, "BOOKMARK", _bookmark(collection.resource, version, end))


def _selection(request: web.Request, namespace: str) -> Selection:
    try:
        selection = Selection(namespace, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        selection.matcher()
    except ValueError as error:
        raise ApiError(400, "BadRequest", str(error)) from error
    return selection


def _bookmark(resource: Resource, version: int, annotations: dict[str, str] | None = None) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return json.dumps({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}).encode()


async def _write(response: web.StreamResponse, word: str, obj: bytes) -> None:
    await response.write(b'{"type":"' + word.encode() + b'","object":' + obj + b"}\n")
