"""Connections over real sockets: TLS that is always verified, time limits, and errors that say what and where."""

import asyncio
import socket
from pathlib import Path

import pytest

from podgate.kubeapi.access import Access, AccessError, InFile, Login
from podgate.kubeapi.connection import Connection, Limits, SilentError, UnreachableError
from podgate.kubeapi.requests import Request, follow, list_page
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.secret import Secret
from podgate.model.snapshot import Watch
from podgate.observe.requests import NO_ANSWER
from tests.support.asynchronous import in_loop
from tests.support.certificates import Certificates
from tests.support.chaos_proxy import ChaosProxy, Fault
from tests.support.fake_apiserver import FakeApiServer

LIST = list_page(Watch(CONFIG_MAP))
LIMITS = Limits()


async def ask(access: Access, request: Request = LIST, limits: Limits = LIMITS) -> bytes:
    async with Connection(access, limits) as connection:
        answer = await connection.send(request)
        assert answer.refused is None, answer.refused
        return answer.body


async def complaint(access: Access, limits: Limits = LIMITS) -> str:
    with pytest.raises((UnreachableError, AccessError)) as caught:
        await ask(access, limits=limits)
    return str(caught.value)


@in_loop
async def test_a_server_that_our_authority_signed_is_trusted(certificates: Certificates) -> None:
    async with FakeApiServer().serving(certificates.server_context()) as server:
        for authority in (Secret(certificates.read("ca.crt")), InFile(certificates.path("ca.crt"))):
            assert b"ConfigMapList" in await ask(Access(server.url, authority))


@in_loop
async def test_nobody_else_is(certificates: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    async with FakeApiServer().serving(certificates.server_context()) as server:
        for authority in (None, InFile(other.path("ca.crt"))):
            said = await complaint(Access(server.url, authority))
            assert "list ConfigMap: the server's certificate is not trusted" in said


@in_loop
async def test_the_name_in_the_certificate_counts(certificates: Certificates) -> None:
    authority = InFile(certificates.path("ca.crt"))
    async with FakeApiServer().serving(certificates.server_context()) as server:
        assert await ask(Access(server.url, authority, "kubernetes.default"))
        assert "not trusted" in await complaint(Access(server.url, authority, "another.name"))
        assert "not trusted" in await complaint(Access(server.url.replace("127.0.0.1", "localhost"), authority))


@in_loop
async def test_a_client_certificate_logs_in_from_memory_or_files(certificates: Certificates) -> None:
    authority = InFile(certificates.path("ca.crt"))
    logins = (
        Login(certificate=Secret(certificates.read("client.crt")), key=Secret(certificates.read("client.key"))),
        Login(certificate=InFile(certificates.path("client.crt")), key=InFile(certificates.path("client.key"))),
    )
    async with FakeApiServer().serving(certificates.server_context()) as server:
        for login in logins:
            await ask(Access(server.url, authority, login=login))
        subjects = [dict(part for group in peer["subject"] for part in group) for peer in server.certificates]
        assert [subject["commonName"] for subject in subjects] == ["system:node:n1"] * 2


@in_loop
async def test_a_redirect_is_not_followed() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        proxy.strike(Fault(status=307))
        async with Connection(Access(proxy.url)) as connection:
            answer = await connection.send(LIST)
            assert answer.refused is not None
            assert answer.refused.code == 307
        assert server.requests == []


@in_loop
async def test_a_server_that_is_not_there_is_named() -> None:
    said = await complaint(Access("http://127.0.0.1:1"))
    assert said.startswith("http://127.0.0.1:1: list ConfigMap: ")
    assert "refused" in said.lower() or "Connect call failed" in said


@in_loop
async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        proxy.strike(Fault(delay=30))
        said = await complaint(Access(proxy.url), Limits(answer=0.2))
        assert said.endswith("list ConfigMap: no answer in 0.2 s")


@in_loop
async def test_a_server_that_lets_nobody_connect_is_given_up_and_which_limit_was_over_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        access = Access(f"https://127.0.0.1:{mute.getsockname()[1]}")
        assert (await complaint(access, Limits(connect=0.2))).endswith("list ConfigMap: no connection in 0.2 s")
        async with Connection(access, Limits(connect=0.2)) as connection:
            with pytest.raises(UnreachableError, match=r"no connection in 0\.2 s"):
                async with connection.stream(LIST):
                    pass


@in_loop
async def test_each_request_is_told_once_with_what_was_answered() -> None:
    told: list[tuple[str, str, str]] = []

    def note(method: str, host: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        told.append((method, host, code))

    missing = Request("GET", "/api/v1/namespaces/default/configmaps/none")
    async with FakeApiServer().serving() as server, Connection(Access(server.url), told=note) as connection:
        host = server.url.removeprefix("http://")
        for request in (LIST, missing):
            await connection.send(request)
        async with connection.stream(follow(Watch(CONFIG_MAP), "1", 5)):
            pass
    async with Connection(Access("http://127.0.0.1:1"), told=note) as connection:
        with pytest.raises(UnreachableError):
            await connection.send(LIST)
    assert told == [*(("GET", host, code) for code in ("200", "404", "200")), ("GET", "127.0.0.1:1", NO_ANSWER)]


@in_loop
async def test_half_an_answer_is_none() -> None:
    async with FakeApiServer().serving() as server, ChaosProxy(server.url).serving() as proxy:
        server.objects.put("configmaps", {"metadata": {"name": "large"}, "data": {"x": "y" * 10_000}})
        for then in ("cut", "close"):
            proxy.strike(Fault(after=1000, then=then))
            assert "list ConfigMap" in await complaint(Access(proxy.url))


@in_loop
async def test_a_watch_that_says_nothing_is_silent() -> None:
    async with FakeApiServer().serving() as server, Connection(Access(server.url), Limits(silence=0.1)) as connection:
        request = follow(Watch(CONFIG_MAP), str(server.objects.version), 60)
        async with connection.stream(request) as stream:
            with pytest.raises(SilentError, match=r"nothing was heard for 0\.1 s"):
                await anext(stream.chunks())


@in_loop
async def test_a_watch_that_is_left_ends_at_the_server() -> None:
    async with FakeApiServer().serving() as server, Connection(Access(server.url)) as connection:
        async with connection.stream(follow(Watch(CONFIG_MAP), "1000", 60)) as stream:
            assert stream.refused is None
            async with asyncio.timeout(60):
                while not server.streams:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while server.streams:
                await asyncio.sleep(0.01)


@in_loop
async def test_it_is_used_inside_of_its_context_alone() -> None:
    with pytest.raises(RuntimeError, match="outside of its context"):
        await Connection(Access("http://127.0.0.1:1")).send(LIST)
