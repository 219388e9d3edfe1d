"""A server that tells its clients who they are."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.support.netns import netns
from tests.support.poll import poll
from tests.support.ports import own_ports

COMMAND = (sys.executable, "-m", "podgate.lab.peers.echo")


class Echo:
    """A server that runs: its ports, and its access log so far."""

    def __init__(self, process: "subprocess.Popen[str]", http: int = 0, tcp: int = 0, udp: int = 0) -> None:
        self.process, self.http, self.tcp, self.udp = process, http, tcp, udp
        self.lines: list[str] = []
        self.clients: list[HTTPConnection] = []
        assert process.stdout is not None
        assert process.stderr is not None
        self.started = process.stderr.readline().strip()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.lines.append(line.strip())

    def log(self, count: int) -> list[str]:
        poll(lambda: len(self.lines) >= count)
        return self.lines

    def client(self, address: str = "127.0.0.1") -> HTTPConnection:
        """Give a client that is closed with the server."""
        client = HTTPConnection(address, self.http, timeout=30)
        self.clients.append(client)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.process.kill()
        self._reader.join(60)
        self.process.communicate()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(60)
        return code


@contextmanager
def running(command: Sequence[str], **ports: int) -> Iterator[Echo]:
    server = Echo(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), **ports)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    http, tcp, udp = own_ports(3)
    command = [*COMMAND, f"--http={http}", f"--tcp={tcp}", f"--udp={udp}"]
    with running(command, http=http, tcp=tcp, udp=udp) as server:
        assert server.started == f"echo listens on http {http}, tcp {tcp}, udp {udp}"
        yield server


def get(client: HTTPConnection, path: str = "/", method: str = "GET", **more: Any) -> Any:
    client.request(method, path, **more)
    response = client.getresponse()
    assert response.status == 200
    return json.loads(response.read())


def test_http_says_what_it_saw(echo: Echo) -> None:
    client = echo.client()
    client.connect()
    source_port = client.sock.getsockname()[1]
    seen = get(client, "/a%20b?c=d", headers={"Host": "shop.example", "X-Twice": "one"})
    headers = seen.pop("headers")
    assert (headers["Host"], headers["X-Twice"]) == ("shop.example", "one")
    assert seen.pop("hostname") == socket.gethostname()
    assert seen == {
        "source": "127.0.0.1", "sourcePort": source_port, "destination": "127.0.0.1", "destinationPort": echo.http,
        "method": "GET", "host": "shop.example", "path": "/a%20b?c=d", "bodyBytes": 0, "connection": 1, "request": 1,
    }  # fmt: skip
    assert echo.log(1) == ['127.0.0.1 - "GET /a%20b?c=d" 200']


def test_http_keeps_connections_and_counts_requests_on_them(echo: Echo) -> None:
    first, second = echo.client(), echo.client()
    seen = [get(client) for client in (first, first, second, first)]
    assert [(one["connection"], one["request"]) for one in seen] == [(1, 1), (1, 2), (2, 1), (1, 3)]
    assert get(first, method="POST", body=b"x" * 100_000)["bodyBytes"] == 100_000
    assert get(first, method="PUT", body=iter([b"ab", b"c"]), encode_chunked=True)["bodyBytes"] == 3


def exchange(port: int, *pieces: bytes) -> bytes:
    """Send pieces, end sending, and give everything that comes."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_http_takes_pipelined_and_split_requests(echo: Echo) -> None:
    answer = exchange(echo.http, b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HT", b"TP/1.1\r\nHost: a\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 2
    assert [line.split('"')[1] for line in echo.log(2)] == ["GET /1", "GET /2"]


def test_http_head_has_no_body_and_close_closes(echo: Echo) -> None:
    head = exchange(echo.http, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head.endswith(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", echo.http), 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"HTTP/1.1 200" in exchange(echo.http, b"GET / HTTP/1.0\r\n\r\n")


def test_http_tells_a_client_that_waits_to_go_on(echo: Echo) -> None:
    with socket.create_connection(("127.0.0.1", echo.http), 30) as connection:
        connection.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        connection.sendall(b"ok")
        assert b'"bodyBytes": 2' in connection.recv(65536)


@pytest.mark.parametrize(
    "request_", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nA\x00: b\r\n\r\n"]
)
def test_http_refuses_what_is_no_request(echo: Echo, request_: bytes) -> None:
    assert exchange(echo.http, request_).startswith(b"HTTP/1.1 400")
    assert echo.log(1) == ['127.0.0.1 - "? ?" 400']


def test_tcp_says_the_source_and_gives_everything_back(echo: Echo) -> None:
    data = bytes(range(256)) * 8192  # more than any buffer in between
    with socket.create_connection(("127.0.0.1", echo.tcp), 30) as connection:
        writer = threading.Thread(target=_send, args=(connection, data))
        writer.start()
        came = b"".join(iter(lambda: connection.recv(65536), b""))
        writer.join()
        port = connection.getsockname()[1]
    assert came == f"127.0.0.1 {port}\n".encode() + data
    assert echo.log(1) == [f'127.0.0.1 - "TCP {echo.tcp}" OK']


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def test_udp_says_the_source_and_gives_the_datagram_back(echo: Echo) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(30)
        client.connect(("127.0.0.1", echo.udp))
        for data in (b"hello", b"", b"x" * 9000):
            client.send(data)
            assert client.recv(65536) == f"127.0.0.1 {client.getsockname()[1]}\n".encode() + data
    assert echo.log(3) == [f'127.0.0.1 - "UDP {echo.udp}" OK'] * 3


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_ipv6_too(echo: Echo) -> None:
    assert get(echo.client("::1"))["source"] == "::1"
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(30)
        datagrams.connect(("::1", echo.udp))
        datagrams.send(b"six")
        assert datagrams.recv(100) == f"::1 {datagrams.getsockname()[1]}\nsix".encode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_lets_an_open_request_end_and_closes_idle_connections(echo: Echo, number: int) -> None:
    idle = echo.client()
    get(idle)
    with socket.create_connection(("127.0.0.1", echo.http), 30) as busy:
        busy.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nhe")
        get(echo.client())  # so that the server has read what came before
        echo.process.send_signal(number)
        assert idle.sock.recv(10) == b""
        busy.sendall(b"re")
        answer = b"".join(iter(lambda: busy.recv(65536), b""))
    assert b"200 OK" in answer
    assert b"Connection: close" in answer
    assert echo.process.wait(60) == 0


def test_a_port_that_is_taken_is_named(echo: Echo) -> None:
    done = subprocess.run([*COMMAND, f"--http={echo.http}"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"echo: cannot listen on port {echo.http}: Address already in use\n"


@pytest.mark.parametrize("value", ["x", "0", "70000", "80,", ""])
def test_wrong_ports(value: str) -> None:
    done = subprocess.run([*COMMAND, f"--tcp={value}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--tcp: invalid list of ports" in done.stderr


def test_ports_from_the_environment_and_several_of_them() -> None:
    one, two = own_ports(2)
    environment = {"ECHO_HTTP": f"{one},{two}", "ECHO_TCP": "off", "ECHO_UDP": "off"}
    command = ["env", *(f"{key}={value}" for key, value in environment.items()), *COMMAND]
    with running(command, http=two) as server:
        assert server.started == f"echo listens on http {one}, http {two}"
        assert get(server.client())["destinationPort"] == two
        assert server.stop() == 0


def test_it_loads_little() -> None:
    code = "import sys, podgate.lab.peers.echo; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"h11", "asyncio"} <= set(loaded)
    assert not {"msgspec", "yaml", "inotify_simple", "rich"} & set(loaded)


@pytest.mark.kernel
def test_the_address_that_was_called_answers() -> None:
    with netns() as namespace:
        for address in ("10.70.0.2/32", "10.70.0.3/32", "fd70::2/128", "fd70::3/128"):
            namespace.run("ip", "address", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
        process = namespace.start(*COMMAND)
        try:
            for family, called in ((socket.AF_INET, "10.70.0.3"), (socket.AF_INET6, "fd70::3")):
                asked = partial(_asked, family, called.replace("3", "2"), called)
                assert poll(partial(namespace.call, asked)) == called
        finally:
            process.kill()
            process.communicate()


def _asked(family: int, caller: str, called: str) -> str:
    """Send a datagram to port 7, and give the address that answers; nothing if none does yet."""
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.bind((caller, 0))
        client.settimeout(0.2)
        client.sendto(b"?", (called, 7))
        try:
            return str(client.recvfrom(100)[1][0])
        except OSError:
            return ""
