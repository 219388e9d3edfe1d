"""``podgate metadata run`` and ``metadata-proxy`` as processes: what they load, when they end, what they say."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podgate.features.metadata.server.running import SERVER, compile_states, shown
from podgate.features.metadata.settings import Settings
from podgate.joints import Inputs
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.targets.listeners.state import ListenAddress
from tests.support.netns import NetNamespace, netns
from tests.support.poll import poll


@contextmanager
def process(namespace: NetNamespace, log: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    with log.open("wb") as output:
        command = [sys.executable, "-m", *words]
        started = namespace.start("sh", "-c", f'exec "$@" 2>{log}', "sh", *command)
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()
            started.wait(60)
            for stream in (started.stdin, started.stdout):
                if stream is not None:
                    stream.close()
            assert output.closed is False


def ask(namespace: NetNamespace, port: int, path: str = "/") -> tuple[int, str]:
    def inside() -> tuple[int, str]:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connected:
                connected.sendall(f"GET {path} HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n".encode())
                answer = b"".join(iter(lambda: connected.recv(65536), b"")).decode()
        except OSError:
            return 0, ""
        return int(answer.split()[1]), answer

    return namespace.call(inside)


@pytest.mark.kernel
def test_the_proxy_answers_counts_and_ends_in_peace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("podgate.cli", "metadata", "run", "--addr", "127.0.0.1:988", "--no-firewall")
    upstream = ("--upstream", "http://127.0.0.1:80")
    cloud = ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")
    with netns() as node, process(node, tmp_path / "cloud", *cloud), process(node, log, *words, *upstream) as proxy:
        poll(lambda: ask(node, 988, "/computeMetadata/v1beta1/instance/zone")[0] == 200)
        poll(lambda: ask(node, 989, "/readyz")[0] == 200)
        assert ask(node, 988, "/computeMetadata/v1/instance/attributes/kube-env")[0] == 403
        page = ask(node, 989, "/whatever")[1]
        assert 'request_count{code="403",filter_result="filter_result_blocked"} 1' in page
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(60) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["message"] for line in lines][-1] == "stopped"
    assert [line["status"] for line in lines if line["message"] == "request"][-1] == 403


@pytest.mark.kernel
def test_a_taken_port_ends_it_and_names_the_holder_and_taken_metrics_do_not(tmp_path: Path) -> None:
    holding = "import socket,time\ns=[socket.create_server(('127.0.0.1',p)) for p in (988,1989)]\ntime.sleep(600)"
    (tmp_path / "hold.py").write_text(holding)
    with netns() as node, node.running(sys.executable, str(tmp_path / "hold.py")) as holder:
        poll(lambda: ":03DC " in node.run("cat", "/proc/self/net/tcp"))
        with process(node, tmp_path / "log", "podgate.features.metadata.dropin") as proxy:
            assert proxy.wait(60) == 1
        assert f"port 988 is in use by process {holder.pid} (" in (tmp_path / "log").read_text()
        other = ("podgate.features.metadata.dropin", "-addr=127.0.0.1:1988", "--metrics-addr", "127.0.0.1:1989")
        with process(node, tmp_path / "log2", *other):
            poll(lambda: ask(node, 1988, "/computeMetadata/v2/")[0] == 403)
            poll(lambda: "cannot serve pages on 127.0.0.1:1989" in (tmp_path / "log2").read_text())


PATH = "/etc/policy"
GOOD = b'{"rules": [{"paths": ["/computeMetadata/v1/instance/tags"], "verdict": "deny"}]}'


@pytest.mark.parametrize(
    ("files", "strictest", "policies"),
    [
        ({PATH: Present(GOOD)}, False, 1),
        ({PATH: Present(b"rules: []")}, True, 0),
        ({PATH: Missing()}, True, 0),
        ({PATH: Unreadable("Permission denied")}, True, 0),
        ({}, True, 0),
        ({PATH: Directory(("a.json",)), f"{PATH}/a.json": Present(GOOD)}, False, 1),
        ({PATH: Directory(("a.json", "b.yaml")), f"{PATH}/a.json": Present(GOOD)}, True, 1),
        ({PATH: Directory(())}, False, 0),
    ],
)
def test_a_policy_that_cannot_be_used_makes_everybody_s_rules_the_strictest(
    files: dict[str, FileContent], strictest: bool, policies: int
) -> None:
    compiled = compile_states(Settings(policy=PATH), Inputs(files=files))
    filter_ = compiled.states.policy.value
    assert (filter_.strictest, len(filter_.policies)) == (strictest, policies)
    assert bool(compiled.degraded) is strictest
    assert bool(compiled.problems) is strictest


def test_with_the_nodes_rules_the_port_before_is_closed_to_all() -> None:
    listeners = compile_states(Settings(), Inputs()).states.listeners
    assert listeners.addresses == {
        ListenAddress("169.254.169.252", 988, "proxy"),
        ListenAddress("169.254.169.252", 987, "closed"),
    }
    assert len(compile_states(Settings(firewall=False), Inputs()).states.listeners.addresses) == 1
    assert SERVER.files(Settings()) == ()
    assert shown(compile_states(Settings(audit=True), Inputs()).states.policy.value).endswith("audit only")
