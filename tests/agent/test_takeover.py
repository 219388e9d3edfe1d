"""What earlier programs and back ends left is taken away once our rules are in, and Pods never notice.

A probe from a Pod, with a fresh flow each time, watches the whole take-over: it is masqueraded at every moment.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from podgate.linux.namespaces import inside_network
from tests.support.agent import TABLE, podgate, running
from tests.support.netns import NetNamespace
from tests.support.old_agent import OldName, boot_script, jump, old_agent, ours, restore
from tests.support.packet_lab import ECHO_PORT, NODE, POD, PacketLab, packet_lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NFT, LEGACY = "iptables-nft", "iptables-legacy"
OUT, INSIDE = "203.0.113.5", "10.50.0.9"

HISTORIES = {
    "an agent": [old_agent()],
    "an upgrade from 2.12.1: two jumps": [old_agent("IP-MASQ-AGENT", jump(quoted=True), jump())],
    "GKE's boot script": [boot_script()],
    "GKE's boot script and the addon in its chain": [boot_script(), old_agent("IP-MASQ")],
    "boot script and an agent with a chain of its own": [boot_script(), old_agent()],
}
"""What restores of earlier programs left; each kept 10/8 and masqueraded the rest, but for the boot script's list."""


def left_of(node: NetNamespace) -> list[str]:
    """Give what is in table nat of both programs; the old tables are only asked where they exist."""
    names = node.run("cat", "/proc/thread-self/net/ip_tables_names", check=False).split()
    nft = ours(node, NFT) if "table ip nat\n" in node.run("nft", "list", "tables") + "\n" else []
    return [*nft, *(ours(node, LEGACY) if "nat" in names else [])]


def jumps(node: NetNamespace, program: str) -> list[str]:
    return [line.rpartition(" ")[2] for line in ours(node, program) if line.startswith("-A POSTROUTING")]


@pytest.mark.parametrize("program", [NFT, LEGACY])
@pytest.mark.parametrize("history", HISTORIES)
def test_nftables_takes_over(node: NetNamespace, tmp_path: Path, history: str, program: str) -> None:
    for text in HISTORIES[history]:
        restore(node, program, text)
    plan = podgate("masquerade", "plan", namespace=node)
    assert plan.code == 1
    assert plan.out.index("nftables/ip:") < plan.out.index(f"{program}/ip:")
    assert "- POSTROUTING:" in plan.out
    with running(node, tmp_path) as agent:
        poll(lambda: left_of(node) == [])
        assert agent.ready()
        poll(lambda: len(agent.log("applied")) == 2)
        assert [line["step"] for line in agent.log("applied")] == ["nftables/ip", f"{program}/ip"]
        assert podgate("masquerade", "plan", "--state-dir", tmp_path / "state", namespace=node).code == 0


@pytest.mark.parametrize("program", [NFT, LEGACY])
@pytest.mark.parametrize("chain", ["IP-MASQ-AGENT", "IP-MASQ"])
@pytest.mark.parametrize("history", HISTORIES)
def test_the_old_name_takes_over(node: NetNamespace, tmp_path: Path, history: str, chain: str, program: str) -> None:
    """T26: one effective jump, and nothing of the boot script."""
    node.run(program, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
    for text in HISTORIES[history]:
        restore(node, program, text)
    with OldName(tmp_path / "node").started(node, f"--masq-chain={chain}") as agent:
        poll(agent.ready)
        assert jumps(node, program) == [chain]
        assert [line for line in ours(node, program) if line.startswith(":")] == [f":{chain}"]
        assert not [line for line in ours(node, program) if '"ip-masq: ' in line]


@pytest.mark.parametrize("chosen", [NFT, LEGACY])
def test_rules_in_both_programs_at_once(node: NetNamespace, tmp_path: Path, chosen: str) -> None:
    """As a node has them whose image was changed to one with the other iptables."""
    for program in (NFT, LEGACY):
        restore(node, program, old_agent("IP-MASQ-AGENT", jump(quoted=True), jump()))
    node.run(chosen, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
    with OldName(tmp_path / "node").started(node) as agent:
        poll(agent.ready)
        other = LEGACY if chosen == NFT else NFT
        poll(lambda: len(agent.log("applied")) == 2)
        assert (jumps(node, chosen), ours(node, other)) == (["IP-MASQ-AGENT"], [])
        assert [line["step"] for line in agent.log("applied")] == [f"{chosen}/ip", f"{other}/ip"]


def test_a_chain_whose_name_changed_goes_by_the_record(node: NetNamespace, tmp_path: Path) -> None:
    """T28: whatever it holds by then."""
    state = ("--state-dir", tmp_path / "state")
    flags = ("--backend", "iptables", *state)
    assert podgate("masquerade", "run", "--once", "--masq-chain", "OLD", *flags, namespace=node).code == 0
    restore(node, NFT, "*nat\n-A OLD -d 10.9.9.9/32 -j ACCEPT\nCOMMIT\n")
    plan = podgate("masquerade", "plan", "--masq-chain", "NEW", *flags, namespace=node)
    assert "- chain OLD" in plan.out
    assert podgate("masquerade", "run", "--once", "--masq-chain", "NEW", *flags, namespace=node).code == 0
    assert jumps(node, NFT) == ["NEW"]
    assert not [line for line in ours(node, NFT) if "OLD" in line]
    # The record is that of the last run: a chain of the earlier name is somebody else's from now on.
    restore(node, NFT, "*nat\n:OLD - [0:0]\n-A OLD -j ACCEPT\nCOMMIT\n")
    assert podgate("masquerade", "clean", *state, namespace=node).code == 0
    assert ours(node, NFT) == [":OLD", "-A OLD -j ACCEPT"]


def test_clean_takes_everything_away_and_succeeds_twice(node: NetNamespace, tmp_path: Path) -> None:
    """T36: both families and all back ends, whoever wrote them, and what was saved."""
    state = ("--state-dir", tmp_path / "state")
    for backend in ("nftables", NFT):
        flags = ("--backend", backend, "--enable-ipv6", *state)
        assert podgate("masquerade", "run", "--once", *flags, namespace=node).code == 0
    for program, ipv6 in ((LEGACY, False), ("ip6tables-legacy", True)):
        restore(node, program, old_agent(ipv6=ipv6))
    restore(node, NFT, "*nat\n:OTHERS - [0:0]\n-A OTHERS -j ACCEPT\nCOMMIT\n")
    first = podgate("masquerade", "clean", *state, namespace=node)
    assert (first.code, first.err) == (0, "")
    steps = ("iptables-nft/ip:", "iptables-nft/ip6:", "iptables-legacy/ip:", "iptables-legacy/ip6:")
    assert [step for step in steps if step not in first.out] == []
    assert TABLE not in node.run("nft", "list", "ruleset")
    found = [line for program in (NFT, "ip6tables-nft", LEGACY, "ip6tables-legacy") for line in ours(node, program)]
    assert found == [":OTHERS", "-A OTHERS -j ACCEPT"]
    assert not (tmp_path / "state").exists()
    assert podgate("masquerade", "clean", *state, namespace=node) == (0, "nothing of ours was there\n", "")


def test_clean_on_exit_takes_everything_away(node: NetNamespace, tmp_path: Path) -> None:
    restore(node, LEGACY, old_agent())
    with running(node, tmp_path, "--backend", "iptables", "--clean-on-exit") as agent:
        assert agent.stop(signal.SIGTERM) == 0
    assert left_of(node) == []


class Probe:
    """Sends from a Pod, with a fresh flow each time, and keeps the sources that the far end saw."""

    def __init__(self, lab: PacketLab) -> None:
        self._lab = lab
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with inside_network(self._lab.pod.descriptor):
            while not self._stop.is_set():
                with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
                    asking.settimeout(30)
                    asking.sendto(b"who\n", (OUT, ECHO_PORT))
                    try:
                        self.seen.append(asking.recv(200).decode().split()[0])
                    except TimeoutError:
                        self.seen.append("no answer")

    def more(self, count: int) -> None:
        """Wait for some more answers."""
        wanted = len(self.seen) + count
        poll(lambda: len(self.seen) >= wanted)


@pytest.fixture
def lab() -> Iterator[PacketLab]:
    with packet_lab() as made:
        yield made


TAKE_OVERS = [
    # what was there, flags of one agent after the other
    (NFT, old_agent("IP-MASQ-AGENT", jump(quoted=True), jump()), [(), ("--backend", NFT), ("--backend", LEGACY), ()]),
    (LEGACY, old_agent(), [(), ("--backend", LEGACY), ()]),
    (NFT, old_agent("IP-MASQ"), [("--backend", NFT), ("--backend", NFT, "--masq-chain", "NEW")]),
]


@pytest.mark.parametrize(("program", "text", "runs"), TAKE_OVERS)
def test_traffic_is_masqueraded_at_every_moment(
    lab: PacketLab, tmp_path: Path, program: str, text: str, runs: list[tuple[str, ...]]
) -> None:
    restore(lab.node, program, text)
    with Probe(lab) as probe:
        probe.more(20)
        for flags in runs:
            with running(lab.node, tmp_path, *flags):
                _alone(lab.node, flags)
                probe.more(50)
    assert set(probe.seen) == {NODE[4]}, [place for place, seen in enumerate(probe.seen) if seen != NODE[4]]
    assert len(probe.seen) >= 20 + 50 * len(runs)
    assert lab.seen("pod", INSIDE).address == POD[4]


def _alone(node: NetNamespace, flags: tuple[str, ...]) -> None:
    """Wait until nothing is left of any back end but the chosen one."""
    chosen = flags[1] if flags else ""

    def alone() -> bool:
        left = [ours(node, program) for program in (NFT, LEGACY) if program != chosen]
        return not any(left) and (TABLE in node.run("nft", "list", "tables")) is (chosen == "")

    poll(alone)


def test_the_probe_notices_a_gap(lab: PacketLab) -> None:
    restore(lab.node, NFT, old_agent())
    with Probe(lab) as probe:
        probe.more(5)
        lab.node.run(NFT, "-t", "nat", "-F")
        probe.more(20)
        restore(lab.node, NFT, old_agent())
        probe.more(20)
    assert set(probe.seen) == {NODE[4], POD[4]}
