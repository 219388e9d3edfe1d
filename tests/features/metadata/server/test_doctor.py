"""What doctor says of a node with a proxy, and of one without."""

import json
import os
import socket
from pathlib import Path

import pytest

from podgate.features.metadata.server.doctor import Finding, answer, examine
from podgate.features.metadata.settings import Settings
from tests.features.metadata.server.test_sockets import ask, started
from tests.support.metadata_upstream import ZONE
from tests.support.netns import netns
from tests.support.poll import poll

SETTINGS = Settings(addr="127.0.0.1:988", metrics_addr="127.0.0.1:989", upstream="http://127.0.0.1:80", firewall=False)


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in findings}


@pytest.mark.kernel
def test_a_node_with_a_proxy_is_well(tmp_path: Path) -> None:
    run = ("podgate.cli", "metadata", "run", "--addr", "127.0.0.1:988", "--upstream", "http://127.0.0.1:80")
    cloud = ("podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:80")
    with (
        netns() as node,
        started(node, tmp_path / "cloud", *cloud),
        started(node, tmp_path / "log", *run, "--no-firewall"),
    ):
        poll(lambda: ask(node, "127.0.0.1", 988, ZONE).endswith("us-central1-a"), 10)
        found = node.call(lambda: list(examine(SETTINGS)))
        assert set(verdicts(found).values()) == {"ok"}, found
        again = node.call(lambda: list(examine(SETTINGS)))
        assert again[-1] == Finding("denials", "ok", "2 requests refused since the proxy started")
        assert any("process" in finding.seen for finding in found)


@pytest.mark.kernel
def test_a_node_without_one_is_not() -> None:
    with netns() as node:
        found = verdicts(node.call(lambda: list(examine(SETTINGS))))
        assert found == {
            "address": "ok",
            "port 988": "bad",
            "a secret": "bad",
            "upstream": "bad",
            "other agents": "ok",
            "denials": "unknown",
        }
        text, code = node.call(lambda: answer(SETTINGS, as_json=False))
        assert code == 1
        assert text.splitlines()[0] == "ok      address: 127.0.0.1 is this node's"
        assert json.loads(node.call(lambda: answer(SETTINGS, as_json=True))[0])[1]["verdict"] == "bad"
        elsewhere = verdicts(node.call(lambda: list(examine(Settings()))))
        assert elsewhere["address"] == "bad"
        assert elsewhere["a secret"] == "unknown"
        assert elsewhere["port 987"] == "bad"


def test_an_answer_that_is_no_refusal_is_bad() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            accepted, _ = server.accept()
            accepted.recv(4096)
            accepted.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            os._exit(0)
        found = list(examine(Settings(addr=f"127.0.0.1:{port}", metrics_addr="", upstream=f"http://127.0.0.1:{port}")))
        os.waitpid(pid, 0)
    (secret,) = [finding for finding in found if finding.name == "a secret"]
    assert (secret.verdict, secret.seen.endswith("200")) == ("bad", True)
