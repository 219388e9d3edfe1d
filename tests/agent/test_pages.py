"""What the agent tells: its pages and its log."""

import json
import os
import pty
import socket
import subprocess
from pathlib import Path

import pytest

from podgate.linux.namespaces import inside_network
from tests.support.agent import DEFAULTS, PODGATE, elements, is_whole, running, started
from tests.support.netns import NetNamespace
from tests.support.poll import poll

pytestmark = pytest.mark.kernel

STEP = 'step="nftables/ip"'
METRICS = {
    "ready",
    "config_generation",
    'entries{family="ip",set="keep"}',
    'entries{family="ip",set="own-pods"}',
    f"sync_age_seconds{{{STEP}}}",
    f"committed_generation{{{STEP}}}",
    f'sync_total{{result="success",{STEP}}}',
    f'sync_total{{result="failure",{STEP}}}',
    f"sync_duration_seconds_sum{{{STEP}}}",
    f"sync_duration_seconds_count{{{STEP}}}",
    f"drift_healed_total{{{STEP}}}",
}


def test_the_metrics_are_there_from_the_start_so_that_alerts_can_be_written(node: NetNamespace, tmp_path: Path) -> None:
    with running(node, tmp_path) as agent:
        found = agent.metrics()
        assert {f"podgate_masquerade_{name}" for name in METRICS} <= found.keys()
        assert sum(name.startswith("podgate_masquerade_config_info{hash=") for name in found) == 1
        assert agent.metric("ready") == 1.0
        assert agent.metric('entries{family="ip",set="keep"}') == 4.0
        assert agent.get("/healthz") == (200, "ok\n")
        assert agent.get("/readyz") == (200, "ok\n")
        assert agent.get("/nothing")[0] == 404


def test_the_metrics_follow_the_configuration(node: NetNamespace, tmp_path: Path) -> None:
    def info() -> str:
        return next(name for name in agent.metrics() if "config_info" in name)

    path = tmp_path / "ip-masq-agent"
    path.write_text("nonMasqueradeCIDRs: [10.0.0.0/8]\n")
    with running(node, tmp_path, "--config", path) as agent:
        first, generation = info(), agent.metric("config_generation")
        path.write_text("nonMasqueradeCIDRs: [10.0.0.0/8, 192.0.2.0/24]\n")
        poll(lambda: info() != first)
        assert agent.metric("config_generation") > generation
        poll(lambda: agent.metric('entries{family="ip",set="keep"}') == 3.0)
        second = info()
        path.write_text("nonMasqueradeCIDRs: [abc]\n")
        poll(lambda: agent.metric('errors_total{reason="InvalidCIDR"}') == 1.0)
        assert info() == second  # the configuration in force is still this one
        path.write_text("nonMasqueradeCIDRs: [10.0.0.0/8]\n")
        poll(lambda: info() == first)


@pytest.mark.slow
def test_the_log_is_one_json_line_per_change_and_per_fault(node: NetNamespace, tmp_path: Path) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text("nonMasqueradeCIDRs: [10.0.0.0/8]\nresyncInterval: 1s\n")
    with running(node, tmp_path, "--config", path) as agent:
        path.write_text("nonMasqueradeCIDRs: [192.0.2.0/24]\nresyncInterval: 1s\n")
        poll(lambda: elements(node) == frozenset({"192.0.2.0/24", "169.254.0.0/16"}))
        path.write_text("nonMasqueradeCIDRs: [192.0.2.1/24]\nresyncInterval: 1s\n")
        poll(lambda: agent.log("192.0.2.1/24"))
        healed = f'sync_total{{result="success",{STEP}}}'
        passes = agent.metric(healed)
        poll(lambda: agent.metric(healed) >= passes + 2)  # drift checks that find nothing say nothing
        agent.stop()
        lines = [json.loads(line) for line in agent.text().splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    assert [(line["level"], line["message"].split(":")[0]) for line in lines] == [
        ("info", "starting"),
        ("info", "applied"),
        ("info", "applied"),
        ("error", str(path)),
        ("info", "stopped"),
    ]
    assert "192.0.2.0/24" in lines[3]["message"]  # the fix


def test_on_a_terminal_the_log_is_text(node: NetNamespace, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*PODGATE, "masquerade", "run", "--once", "--state-dir", str(tmp_path / "state")]
    with inside_network(node.descriptor):
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert process.wait(60) == 0
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "starting" in said
    assert "{" not in said.partition("\n")[0]


@pytest.mark.slow
def test_a_busy_address_does_not_stop_the_rules_and_is_taken_when_it_is_free(
    node: NetNamespace, tmp_path: Path
) -> None:
    with inside_network(node.descriptor):
        holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 10350))
    holder.listen()
    with started(node, tmp_path) as agent:
        poll(lambda: is_whole(node, DEFAULTS))
        poll(lambda: agent.log("127.0.0.1:10350"))
        holder.close()
        poll(agent.ready)
        assert len(agent.log("cannot serve")) == 1


@pytest.mark.slow
def test_health_pages_on_an_address_of_their_own(node: NetNamespace, tmp_path: Path) -> None:
    with started(node, tmp_path, "--metrics-addr", "127.0.0.2:9000", "--health-addr", "127.0.0.1:10350") as agent:
        poll(agent.ready)
        assert agent.get("/healthz")[0] == 200
        assert agent.get("/metrics")[0] == 404
        with inside_network(node.descriptor):
            asking = socket.create_connection(("127.0.0.2", 9000), timeout=30)
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"podgate_masquerade_ready 1" in b"".join(iter(lambda: asking.recv(1 << 16), b""))
        asking.close()


@pytest.mark.slow
def test_without_addresses_nothing_listens(node: NetNamespace, tmp_path: Path) -> None:
    with started(node, tmp_path, "--metrics-addr", ""):
        poll(lambda: is_whole(node, DEFAULTS))
        assert node.run("ss", "-Hltn") == ""
