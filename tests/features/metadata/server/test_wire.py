"""The case files against the running server: bytes on the wire, and what the metadata server saw of them."""

import asyncio
import json
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from podgate.features.metadata.filter import Filter
from podgate.features.metadata.server.exposure import Exposure
from podgate.targets.listeners.state import ListenAddress
from tests.features.metadata.wire import ISSUE, TOKEN, Exchange, Sent, exchanges_of
from tests.support.cases import Case, read_cases
from tests.support.metadata_upstream import PROXY, World, get, proxy_to, read_answer, run
from tests.support.netns import NetNamespace, netns

pytestmark = pytest.mark.kernel

CASES = [
    (case, *found)
    for case in read_cases(*sorted((Path(__file__).parents[1] / "cases").glob("*.case")))
    if (found := exchanges_of(case))[1]
]
PROXY6 = ListenAddress("::1", 0, "proxy")
ANYBODY = Exposure(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
SECRET = "a secret of the cloud's"


class Upstream:
    """A metadata server that keeps every byte, and answers each request with as many."""

    def __init__(self) -> None:
        self.saw: list[Sent] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [int(line[16:]) for line in head.split(b"\r\n") if line[:16] == b"Content-Length: "]
                body = await reader.readexactly(sum(lengths))
                self.saw.append(Sent(head, body))
                writer.write(_reply(head))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _reply(head: bytes) -> bytes:
    body = json.dumps({"kept": 1, "admin_pass": SECRET}).encode()
    if head.startswith(b"PUT /latest/api/token "):
        body = TOKEN.encode()
    length = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    return length + (b"" if head.startswith(b"HEAD ") else body)


@pytest.fixture(scope="module")
def node() -> Iterator[NetNamespace]:
    """Have a network with the addresses of all clients in the cases."""
    with netns() as made:
        for source in {each.source for _, _, exchanges in CASES for each in exchanges if each.source}:
            plain = ["nodad"] if ":" in source else []
            made.run("ip", "addr", "add", f"{source}/{ip_address(source).max_prefixlen}", "dev", "lo", *plain)
        yield made


@pytest.mark.parametrize(("case", "filter_", "exchanges"), CASES, ids=[str(case) for case, _, _ in CASES])
def test_case(node: NetNamespace, case: Case, filter_: Filter, exchanges: list[Exchange]) -> None:
    del case

    async def main() -> None:
        upstream = Upstream()
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        to, addresses = (host, port), frozenset({PROXY, PROXY6})
        async with server, proxy_to(to, filter_=filter_, exposure=ANYBODY, addresses=addresses) as world:
            for exchange in exchanges:
                await said(world, upstream, exchange)

    node.call(lambda: run(main()))


async def said(world: World, upstream: Upstream, exchange: Exchange) -> None:
    """Say a line, and compare what comes back and what went up."""
    if exchange.needs_token:
        await world.ask(ISSUE)
    upstream.saw.clear()
    reader, writer = await connected(world, exchange.source)
    try:
        writer.write(exchange.data)
        for part in exchange.parts:
            if not part.status:
                await world.status(get())  # whatever the proxy does with those bytes, it has done by now
                upstream.saw.pop()
                assert not reader.at_eof(), exchange.line
                continue
            async with asyncio.timeout(60):
                status, _, body = await read_answer(reader, head_only=part.method == "HEAD")
                assert status == part.status, f"{exchange.line}: {status} {body!r}"
                assert part.sent or body == part.body, exchange.line
                assert not part.hides or (SECRET.encode() not in body and b"kept" in body), exchange.line
                assert not part.closes or await reader.read() == b"", exchange.line
    finally:
        writer.close()
    assert upstream.saw == [part.sent for part in exchange.parts if part.sent], exchange.line


async def connected(world: World, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not source:
        return await world.connect()
    to = ("::1", world.port_of(PROXY6)) if ":" in source else ("127.0.0.1", world.port)
    return await asyncio.open_connection(*to, local_addr=(source, 0))
