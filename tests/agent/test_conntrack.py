"""Open flows when the configuration changes, with the agent as a process: which are cut, and which go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent import Agent, running
from tests.support.old_agent import OldName
from tests.support.packet_lab import NODE, POD, SILENCE_SECONDS, NoAnswerError, PacketLab, packet_lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

OUT, ELSEWHERE = "203.0.113.5", "198.51.100.9"
MASQUERADED = "nonMasqueradeCIDRs: [10.244.0.0/16]\n"
KEPT = "nonMasqueradeCIDRs: [10.244.0.0/16, 203.0.113.0/24]\n"
BACKENDS = ["nftables", "iptables-nft", "iptables-legacy"]


@pytest.fixture
def lab() -> Iterator[PacketLab]:
    with packet_lab() as made:
        yield made


def followed(agent: Agent, step: str) -> list[str]:
    return [line["what"] for line in agent.log("followed") if line["step"] == step]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_open_udp_flow_changes_with_the_configuration_and_tcp_goes_on(
    lab: PacketLab, tmp_path: Path, backend: str
) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text(MASQUERADED)
    flags = ("--config", path, "--backend", backend)
    with (
        running(lab.node, tmp_path / "agent", *flags) as agent,
        lab.flow("pod") as udp,
        lab.flow("pod") as other,
        lab.flow("pod", protocol="tcp") as tcp,
    ):
        before = other.seen_by(ELSEWHERE)
        assert [udp.seen_by(OUT).address, before.address, tcp.seen_by(OUT).address] == [NODE[4]] * 3
        path.write_text(KEPT)
        poll(lambda: followed(agent, f"{backend}/ip") == ["1 tracked connection deleted"])
        assert udp.seen_by(OUT).address == POD[4]
        assert other.seen_by(ELSEWHERE) == before, "a flow whose decision did not change keeps its port too"
        assert tcp.seen_by(OUT).address == NODE[4], "an open TCP connection keeps its translation"
        assert lab.seen("pod", OUT, protocol="tcp").address == POD[4]
        path.write_text(MASQUERADED)
        poll(lambda: udp.seen_by(OUT).address == NODE[4])
        assert tcp.seen_by(OUT).address == NODE[4]


def test_cut_tcp_cuts_open_tcp_connections_too(lab: PacketLab, tmp_path: Path) -> None:
    path = tmp_path / "ip-masq-agent"
    path.write_text(MASQUERADED)
    with (
        running(lab.node, tmp_path / "agent", "--config", path, "--cut-tcp") as agent,
        lab.flow("pod", protocol="tcp") as tcp,
    ):
        assert tcp.seen_by(OUT).address == NODE[4]
        path.write_text(KEPT)
        poll(lambda: followed(agent, "nftables/ip"))
        with pytest.raises(NoAnswerError):
            tcp.seen_by(OUT, SILENCE_SECONDS)
        assert lab.seen("pod", OUT, protocol="tcp").address == POD[4]


def test_what_others_translate_and_a_restart_cut_nothing(lab: PacketLab, tmp_path: Path) -> None:
    lab.node.run("nft", "add table ip other; add chain ip other post { type nat hook postrouting priority 90; }")
    lab.node.run("nft", f"add rule ip other post ip daddr {OUT} snat to 192.0.2.77")
    path = tmp_path / "ip-masq-agent"
    path.write_text(MASQUERADED)
    with lab.flow("pod") as udp:
        with running(lab.node, tmp_path / "agent", "--config", path) as agent:
            assert udp.seen_by(OUT).address == "192.0.2.77"
            path.write_text(KEPT)
            poll(lambda: len(agent.log("applied")) == 2)
            assert udp.seen_by(OUT).address == "192.0.2.77"
            assert followed(agent, "nftables/ip") == []
        path.write_text(MASQUERADED)
        with running(lab.node, tmp_path / "again", "--config", path) as agent:
            assert udp.seen_by(OUT).address == "192.0.2.77"
            assert followed(agent, "nftables/ip") == []


def test_the_old_name_cuts_udp_flows_too(lab: PacketLab, tmp_path: Path) -> None:
    name = OldName(tmp_path / "node")
    name.config.write_text(MASQUERADED)
    with name.started(lab.node) as agent, lab.flow("pod") as udp:
        poll(agent.ready)
        assert udp.seen_by(OUT).address == NODE[4]
        name.config.write_text(KEPT)
        poll(lambda: udp.seen_by(OUT).address == POD[4])
        assert followed(agent, "iptables-nft/ip") == ["1 tracked connection deleted"]
