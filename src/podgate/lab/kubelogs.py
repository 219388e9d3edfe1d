"""The logs of the lab's Pods for the API server, which asks a node's kubelet for them.

Here: ``/containerLogs``, over TLS, on this machine's loopback. Not here: writing the logs (lab/runner.py).
Invariant: only output of the lab's own containers can be read, and only by whoever shows a certificate of the
cluster's own authority, as the API server does.

What the API server sends: k8s.io/kubernetes, pkg/registry/core/pod/strategy.go, LogLocation. Of its parameters
tailLines, limitBytes and follow count; a lab's output has no times, and that of all restarts is in one file.
"""

import asyncio
import os
import socket
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from podgate.kubeapi.requests import Request
from podgate.lab.places import Places
from podgate.linux.namespaces import inside_network
from podgate.linux.waiting import for_ever

AUTHORITY: Final = Request(
    "GET",
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
    what="get the authority of the cluster's clients",
)
"""Where an API server publishes whom its clients are signed by."""

_CHUNK: Final = 1 << 16
_LOOK_EVERY: Final = 0.1


def authority(body: bytes) -> str:
    """Read the answer to ``AUTHORITY``: certificates in PEM; empty when there are none."""
    data: Mapping[str, str] = msgspec.json.decode(body, type=dict[str, Any]).get("data") or {}
    return data.get("client-ca-file", "")


class Logs:
    """Serves logs. ``port`` is where, once ``open`` was called.

    Args:
        places: the lab's files.
        machine: the machine's network namespace.
        clients: who may ask: certificates of their authority, in PEM.
    """

    def __init__(self, places: Places, machine: int, clients: str) -> None:
        self._places = places
        self._clients = clients
        with inside_network(machine):
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    async def run(self) -> None:
        """Serve until cancelled."""
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, self._listener, ssl_context=self._tls()).start()
            await for_ever()
        finally:
            await runner.cleanup()

    def _tls(self) -> ssl.SSLContext:
        """Make a certificate for this run; an API server does not verify it unless it is told to."""
        certificate, key = self._places.state / "kubelet.crt", self._places.state / "kubelet.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
             "365", "-subj", "/CN=podgate lab", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
             "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=self._clients)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        if any(part in {".", ".."} or "/" in part for part in names.values()):
            raise web.HTTPBadRequest(text="no such container\n")
        path = self._places.container_log(names["namespace"], names["pod"], names["container"])
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise web.HTTPNotFound(text=f"container {names['container']} has no output yet\n") from error
        with os.fdopen(descriptor, "rb") as file:
            return await self._sent(request, file, path)

    async def _sent(self, request: web.Request, file: Any, path: Path) -> web.StreamResponse:
        tail, limit = _number(request, "tailLines"), _number(request, "limitBytes")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        data = file.read()
        if tail is not None:
            data = b"".join(data.splitlines(keepends=True)[max(len(data.splitlines()) - tail, 0) :])
        await response.write(data if limit is None else data[:limit])
        while request.query.get("follow") == "true" and _is_there(path):
            if data := file.read(_CHUNK):
                await response.write(data)
            else:
                await asyncio.sleep(_LOOK_EVERY)
        await response.write_eof()
        return response


def _is_there(path: Path) -> bool:
    return path.exists()


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    return int(text) if text.isdigit() else None
