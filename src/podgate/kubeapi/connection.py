"""Connection: requests and watches over HTTP, to one API server.

Here: sending, credentials, time limits, what the outside world does to a connection. Not here: what is asked
(requests.py) and what answers mean.
Invariant: whatever goes wrong on the way is one UnreachableError that says what and where; an answer of the server, of
any code, is a value.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from podgate import __version__
from podgate.kubeapi.access import Access, AccessError
from podgate.kubeapi.answers import Refusal, refusal
from podgate.kubeapi.credentials import Credentials
from podgate.kubeapi.requests import Request
from podgate.model.frozen import Frozen
from podgate.observe.requests import NO_ANSWER, OnRequest, uncounted

UNAUTHORIZED: Final = 401
_REFUSED: Final = 300
"""A redirect is refused too: it could lead to a server that nobody chose."""
_BODY: Final = 1 << 16
"""Bytes of a body that are read at once from the socket, before reading pauses."""


Around = Callable[[], contextlib.AbstractContextManager[None]]


class UnreachableError(Exception):
    """No answer, or half of one; the message says of which server and why."""


class SilentError(UnreachableError):
    """A watch that said nothing for so long that the other side may be gone, or may have forgotten us."""


class Limits(Frozen, frozen=True):
    """How long things may take, in seconds.

    Attributes:
        connect: TCP and TLS together.
        answer: a whole answer that is no watch.
        silence: how long a watch may say nothing: bookmarks come about once a minute (k8s.io/apiserver, cacher).
    """

    connect: float = 10.0
    answer: float = 60.0
    silence: float = 90.0


class Answer(Frozen, frozen=True):
    """A whole answer: what was asked for, or the refusal."""

    body: bytes = b""
    refused: Refusal | None = None


class Stream:
    """A watch that has begun, or the refusal to begin it."""

    def __init__(self, response: aiohttp.ClientResponse | None, refused: Refusal | None, limits: Limits) -> None:
        self._response = response
        self._limits = limits
        self.refused = refused

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give what arrives, until the server ends it; raises UnreachableError when it breaks or falls silent."""
        if self._response is None:
            return
        content = self._response.content
        silence = self._limits.silence
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await content.readany()
            except TimeoutError as error:
                raise SilentError(f"nothing was heard for {silence:g} s") from error
            except (aiohttp.ClientError, OSError) as error:
                raise UnreachableError(_why(error)) from error
            if not chunk:
                return
            yield chunk


class Connection:
    """One API server. Use it as an asynchronous context, several at a time if need be; it connects when it sends.

    Args:
        access: which server, and who we are.
        limits: how long things may take.
        around: entered while a socket is made, as to make it in another network namespace.
        told: told of each request's answer, as ``RequestCounts.answered``.
    """

    def __init__(
        self,
        access: Access,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        around: Around = contextlib.nullcontext,
        told: OnRequest = uncounted,
    ) -> None:
        self.access = access
        self._limits = limits
        self._around = around
        self._told = told
        self._host = urlsplit(access.server).netloc
        self._credentials = Credentials(access)
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        self._users += 1
        if self._session is not None:
            return self
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect),
            headers={"User-Agent": f"podgate/{__version__}", "Accept": "application/json"},
            # Answers stay uncompressed: unpacking costs us, and packing the server, more CPU time than it saves.
            skip_auto_headers=("Accept-Encoding",),
            read_bufsize=_BODY,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._session is not None and not self._users:
            session, self._session = self._session, None
            await session.close()

    async def send(self, request: Request) -> Answer:
        """Send and wait for the whole answer. Raises UnreachableError, AccessError."""
        try:
            async with asyncio.timeout(self._limits.answer), self._opened(request) as response:
                body = await response.read()
                if response.status >= _REFUSED:
                    return Answer(refused=refusal(response.status, body, response.headers.get("Retry-After", "")))
                return Answer(body)
        except TimeoutError as error:
            raise UnreachableError(f"{self._where(request)}: {self._late(error, self._limits.answer)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"{self._where(request)}: {_why(error)}") from error

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send, and give the answer while it arrives. Raises UnreachableError, AccessError."""
        async with contextlib.AsyncExitStack() as stack:
            limit = min(self._limits.answer, self._limits.silence)
            try:
                async with asyncio.timeout(limit):
                    response = await stack.enter_async_context(self._opened(request))
                    refused = await self._refused(response)
            except TimeoutError as error:
                raise UnreachableError(f"{self._where(request)}: {self._late(error, limit)}") from error
            except (aiohttp.ClientError, OSError) as error:
                raise UnreachableError(f"{self._where(request)}: {_why(error)}") from error
            # A watch that is left is never reused: its rest may not end for minutes.
            stack.callback(_leave, response)
            yield Stream(None if refused else response, refused, self._limits)

    async def _refused(self, response: aiohttp.ClientResponse) -> Refusal | None:
        if response.status < _REFUSED:
            return None
        return refusal(response.status, await response.read(), response.headers.get("Retry-After", ""))

    @contextlib.asynccontextmanager
    async def _opened(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send; after a 401 once more, with credentials that are read afresh."""
        generation = self._credentials.generation
        async with self._asked(request) as response:
            if response.status != UNAUTHORIZED:
                yield response
                return
        await self._credentials.renew(generation)
        async with self._asked(request) as response:
            yield response

    @contextlib.asynccontextmanager
    async def _asked(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the connection is used outside of its context")
        headers = await self._credentials.headers()
        more: dict[str, Any] = {}
        if self.access.server.startswith("https:"):
            more = {"ssl": await self._credentials.tls(), "server_hostname": self.access.server_name or None}
        if request.body:
            headers["Content-Type"] = request.content_type
        asking = self._session.request(
            request.method,
            self.access.server + request.path,
            params=request.query,
            data=request.body or None,
            headers=headers,
            allow_redirects=False,
            **more,
        )
        async with contextlib.AsyncExitStack() as stack:
            code, began = NO_ANSWER, asyncio.get_running_loop().time()
            try:
                response = await stack.enter_async_context(asking)
                code = str(response.status)
            finally:
                self._told(request.method, self._host, code, asyncio.get_running_loop().time() - began)
            yield response

    def _socket(self, address: Any) -> socket.socket:
        with self._around():
            return _socket(address)

    def _late(self, error: TimeoutError, limit: float) -> str:
        """Say which time was over: ours to connect, the kernel's, or this limit."""
        if isinstance(error, aiohttp.ServerTimeoutError):
            return f"no connection in {self._limits.connect:g} s"
        return _why(error) if error.errno else f"no answer in {limit:g} s"

    def _where(self, request: Request) -> str:
        return f"{self.access.server}: {request.what or request.path}"


def _leave(response: aiohttp.ClientResponse) -> None:
    """Drop a connection at once: closing TLS in order waits for an answer, maybe of a server that is gone."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the server's certificate is not trusted: {error.certificate_error}"
    if isinstance(error, OSError) and error.strerror:
        # asyncio says "Connect call failed" with the address, and why in the number alone.
        return os.strerror(error.errno or 0) if error.strerror.startswith("Connect call failed") else error.strerror
    return str(error) or type(error).__name__


def _socket(address: Any) -> socket.socket:
    """Make a socket that notices by itself, within half a minute, when the other side is gone (tcp(7))."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    return made


__all__ = ["AccessError", "Answer", "Connection", "Limits", "SilentError", "Stream", "UnreachableError"]
