"""What the server knows of its sockets, and whom it serves when the node's rules redirect, in the real kernel."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podgate.features.metadata.server.client import NEVER
from podgate.features.metadata.server.limits import Limits
from podgate.features.metadata.server.pool import Pool, ServerAddress
from podgate.features.metadata.server.proxy import _lifetime
from podgate.features.metadata.server.sockets import has_closed, keep_alive, original_destination, sockets_at
from podgate.features.metadata.server.upstream import upstream_socket
from tests.support.metadata_upstream import KUBE_ENV, ZONE
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll

RULES = """
table ip test {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    iifname "pod0" ip daddr 169.254.169.254 tcp dport 80 dnat to 169.254.169.252:988
    iifname "pod0" ip daddr 169.254.169.254 tcp dport 8080 dnat to 169.254.169.252:987
  }
}
"""


def test_a_connection_that_nobody_redirected_has_no_original_destination() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            assert original_destination(accepted) in ("", "127.0.0.1")
            keep_alive(accepted)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert not has_closed(accepted)
            client.shutdown(socket.SHUT_WR)
            assert poll(lambda: has_closed(accepted))
    assert Limits().answer < NEVER
    assert original_destination(None) == ""


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_that_two_connections_share_is_told_from_a_loop(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.create_server((host, 0), family=family) as one,
        socket.create_server((host, 0), family=family) as two,
        socket.socket(family) as first,
        socket.socket(family) as second,
    ):
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind((host, 0))
        name = first.getsockname()[:2]
        second.bind(name)
        first.connect(one.getsockname())
        assert sockets_at(*name) == 1
        second.connect(two.getsockname())
        assert sockets_at(*name) == 2


def test_what_the_upstream_sends_ahead_is_bounded_by_the_kernel() -> None:
    with upstream_socket(socket.AF_INET, 32 * 1024) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 64 * 1024
    pool = Pool(ServerAddress("127.0.0.1", 80), Limits(), memoryview(b""), lambda: False)
    assert len(pool) == 0
    assert not pool.is_ours(("127.0.0.1", 1))


def test_a_token_ends_when_amazon_says_so() -> None:
    assert _lifetime([b"X-aws-EC2-metadata-token-TTL-seconds: 60"]) == 60
    assert _lifetime([b"X-Other: 1"]) == 21600


@contextmanager
def started(node: NetNamespace, log: Path, *words: str) -> Iterator[None]:
    running = node.start("sh", "-c", f'exec "$@" >{log} 2>&1', "sh", sys.executable, "-m", *words)
    try:
        yield
    finally:
        running.terminate()
        running.wait(60)
        for stream in (running.stdin, running.stdout):
            if stream is not None:
                stream.close()


def ask(namespace: NetNamespace, address: str, port: int, target: str) -> str:
    def inside() -> str:
        try:
            with socket.create_connection((address, port), timeout=30) as connected:
                head = f"GET {target} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata-Flavor: Google\r\n"
                connected.sendall(f"{head}Connection: close\r\n\r\n".encode())
                return b"".join(iter(lambda: connected.recv(65536), b"")).decode()
        except OSError as error:
            return f"failed: {error}"

    return namespace.call(inside)


@pytest.mark.kernel
def test_under_the_old_rules_a_redirected_pod_is_served_and_a_direct_one_is_not(tmp_path: Path) -> None:
    with netns() as node, netns() as pod:
        node.connect("pod0", pod, "eth0")
        node.run("ip", "addr", "add", "169.254.169.252/32", "dev", "lo", "scope", "host")
        node.run("ip", "addr", "add", "127.0.0.2/32", "dev", "lo")
        node.run("ip", "addr", "add", "10.64.0.1/24", "dev", "pod0")
        pod.run("ip", "addr", "add", "10.64.0.5/24", "dev", "eth0")
        pod.run("ip", "route", "add", "default", "via", "10.64.0.1")
        node.run("nft", "-f", "-", text=RULES)
        upstream = ("--upstream", "http://127.0.0.1:80")
        cloud = ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")
        with (
            started(node, tmp_path / "cloud", *cloud),
            started(node, tmp_path / "log", "podgate.cli", "metadata", "run", "--no-firewall", *upstream),
        ):
            poll(lambda: ask(pod, "169.254.169.254", 80, ZONE).endswith("us-central1-a"))
            assert "concealed" in ask(pod, "169.254.169.254", 80, KUBE_ENV)
            assert "does not serve your address" in ask(pod, "169.254.169.252", 988, ZONE)
            assert ask(node, "169.254.169.252", 988, ZONE).endswith("us-central1-a")
        assert '"source": "10.64.0.5"' in (tmp_path / "log").read_text()
