"""``podgate metadata run`` with the node's rules: what a Pod reaches at each moment, in the real kernel."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podgate.linux.namespaces import inside_network
from tests.support.agent import Ended, podgate
from tests.support.metadata_node import CLOUD, CLOUD6, LOCAL, Asking, LongPoll, asked, metadata_node, serving
from tests.support.netns import NetNamespace
from tests.support.packet_lab import EXT, NODE, POD, PacketLab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

PODGATE = "HTTP/1.1 400"
"""What the proxy says to a line that is no HTTP; the cloud of these tests says "cloud"."""
OTHER = (EXT[4], 80)
"""A connection of the node's own that has nothing to do with it."""
BOOT = Path(__file__).parents[2] / "deploy" / "metadata" / "boot" / "podgate-metadata-refuse.nft"
RUN = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "podgate.cli", "metadata", "run")


@pytest.fixture
def lab() -> Iterator[PacketLab]:
    with metadata_node() as made:
        yield made


@contextmanager
def proxy(node: NetNamespace, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with inside_network(node.descriptor), log.open("ab") as output:
        process = subprocess.Popen([*RUN, "--node-name", "node-1", *words], stdout=output, stderr=output, cwd="/")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)


def is_served(lab: PacketLab) -> bool:
    return asked_now(lab).startswith(PODGATE)


def asked_now(lab: PacketLab, seconds: float = 1.0) -> str:
    """Ask as a client with a timeout: what was asked when the rules came in gets no answer at all."""
    return asked(lab.pod, CLOUD, 80, seconds=seconds)


def metadata(lab: PacketLab, verb: str, *words: str) -> Ended:
    return podgate("metadata", verb, *words, namespace=lab.node)


def test_a_pod_is_refused_and_then_served_and_never_gets_through(lab: PacketLab, tmp_path: Path) -> None:
    seen = [asked(lab.pod, CLOUD, 80)]

    def served() -> bool:
        answer = asked_now(lab)[: len(PODGATE)]
        if answer not in (seen[-1], "silence"):
            seen.append(answer)
        return seen[-1] == PODGATE

    with proxy(lab.node, tmp_path / "log"):
        poll(served)
        assert seen in (["cloud", "refused", PODGATE], ["cloud", PODGATE])
        assert [asked(lab.pod, CLOUD, 443), asked(lab.pod, CLOUD6, 80)] == ["refused", "refused"]
        assert asked(lab.pod, CLOUD, 8080).startswith("HTTP/1.1 4")
        assert asked(lab.node, CLOUD, 80) == "cloud"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_without_the_proxy_pods_are_refused_also_when_it_starts_again(lab: PacketLab, tmp_path: Path, how: str) -> None:
    with proxy(lab.node, tmp_path / "log") as process:
        poll(lambda: is_served(lab))
        process.kill() if how == "killed" else process.terminate()
        assert process.wait(60) == (-9 if how == "killed" else 0)
        assert asked(lab.pod, CLOUD, 80) == "refused"
        assert asked(lab.node, CLOUD, 80) == "cloud"
    seen = set()

    def again() -> bool:
        seen.add(asked_now(lab, 20.0)[: len(PODGATE)])
        return PODGATE in seen

    with proxy(lab.node, tmp_path / "log"):
        poll(again)
    assert seen <= {"refused", PODGATE}


@pytest.mark.slow
def test_while_the_port_is_taken_pods_are_refused_and_the_program_ends(lab: PacketLab, tmp_path: Path) -> None:
    with serving(lab.node, "0.0.0.0", 988, "somebody else"), proxy(lab.node, tmp_path / "log") as process:
        assert process.wait(60) == 1
        assert "port 988 is in use by" in (tmp_path / "log").read_text()
        assert asked(lab.pod, CLOUD, 80) == "refused"


@pytest.mark.slow
def test_a_connection_from_before_is_cut(lab: PacketLab, tmp_path: Path) -> None:
    with Asking(lab.pod, CLOUD, 80) as pods, Asking(lab.node, CLOUD, 80) as nodes:
        assert [pods.answer(), nodes.answer()] == ["cloud", "cloud"]
        with proxy(lab.node, tmp_path / "log"):
            poll(lambda: is_served(lab))
            assert [pods.answer(), nodes.answer()] == ["refused", "cloud"]


BACKENDS = pytest.mark.parametrize("backend", ["nftables", "iptables"])


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "address"), [("nftables", CLOUD), ("nftables", CLOUD6), ("iptables", CLOUD)])
def test_a_long_poll_from_before_gives_a_pod_nothing_more(tmp_path: Path, backend: str, address: str) -> None:
    """Its answer needs no further packet of the Pod's: what comes from the cloud is refused as well."""
    to = (address, 80)
    with metadata_node(ports=()) as lab, LongPoll(lab.pod, to, lab.ext) as pods, LongPoll(lab.node, to, lab.ext) as own:
        assert [pods.told("a"), own.told("a")] == ["a", "a"]
        with proxy(lab.node, tmp_path / "log", "--backend", backend):
            poll(lambda: is_served(lab))
            assert [pods.told("secret"), own.told("b"), own.asked("c")] == ["cut", "b", "c"]


@pytest.mark.slow
@BACKENDS
def test_what_another_agents_rules_translated_before_is_cut(lab: PacketLab, tmp_path: Path, backend: str) -> None:
    """Such packets are not forwarded, and no NAT rule sees a connection twice: it must be forgotten."""
    matches = ("-p", "tcp", "-d", CLOUD, "--dport", "80")
    to = ("-j", "DNAT", "--to-destination", f"{NODE[4]}:8181")
    lab.node.run("iptables-nft", "-w", "-t", "nat", "-A", "PREROUTING", *matches, *to)
    with LongPoll(lab.pod, (CLOUD, 80), lab.node, (NODE[4], 8181)) as old, LongPoll(lab.node, OTHER, lab.ext) as own:
        assert [old.told("a"), old.asked("b"), own.told("a")] == ["a", "b", "a"]
        with proxy(lab.node, tmp_path / "log", "--backend", backend):
            poll(lambda: is_served(lab))
            poll(lambda: old.asked("c") == "cut")
            assert own.told("b") == "b"
            assert metadata(lab, "plan", "--backend", backend).code == 0


@pytest.mark.slow
def test_what_came_through_while_the_rules_were_gone_is_cut_once_they_are_healed(
    lab: PacketLab, tmp_path: Path
) -> None:
    other = f"add rule ip other c ip daddr {CLOUD} tcp dport 80 dnat to {NODE[4]}:8181"
    chain = "add chain ip other c { type nat hook prerouting priority dstnat; }"
    with proxy(lab.node, tmp_path / "log") as process:
        poll(lambda: is_served(lab))
        process.send_signal(signal.SIGSTOP)
        lab.node.run("nft", "-f", "-", text=f"flush ruleset\nadd table ip other\n{chain}\n{other}\n")
        with LongPoll(lab.pod, (CLOUD, 80), lab.node, (NODE[4], 8181)) as gap:
            assert gap.asked("a") == "a"
            process.send_signal(signal.SIGCONT)
            poll(lambda: is_served(lab))
            poll(lambda: gap.asked("b") == "cut")


@pytest.mark.slow
def test_what_the_boot_unit_made_is_taken_over_and_nobody_ever_gets_through(lab: PacketLab, tmp_path: Path) -> None:
    lab.node.run("nft", "-f", str(BOOT))
    seen = {asked(lab.pod, CLOUD, 80), asked(lab.pod, CLOUD6, 80)}

    def served() -> bool:
        seen.add(asked_now(lab, 20.0)[: len(PODGATE)])
        return PODGATE in seen

    with proxy(lab.node, tmp_path / "log"):
        poll(served)
        assert seen == {"refused", PODGATE}
        assert metadata(lab, "plan").out == "no difference\n"
    lab.node.run("nft", "-f", str(BOOT))  # the unit started again
    assert asked(lab.pod, CLOUD, 80) == "refused"


@pytest.mark.parametrize(
    "damage",
    [
        ("nft", "delete", "table", "ip", "podgate-metadata"),
        ("nft", "flush", "chain", "ip", "podgate-metadata-redirect", "prerouting"),
        ("nft", "flush", "ruleset"),
        ("ip", "addr", "del", f"{LOCAL}/32", "dev", "lo"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_rules_that_others_change_are_healed(lab: PacketLab, tmp_path: Path, damage: tuple[str, ...]) -> None:
    with proxy(lab.node, tmp_path / "log"):
        poll(lambda: is_served(lab))
        lab.node.run(*damage)
        poll(lambda: is_served(lab) and metadata(lab, "plan").code == 0)
        assert asked(lab.pod, CLOUD, 443) == "refused"


@pytest.mark.slow
def test_plan_and_clean(lab: PacketLab, tmp_path: Path) -> None:
    assert metadata(lab, "plan").code == 1
    with proxy(lab.node, tmp_path / "log"):
        poll(lambda: is_served(lab))
        assert metadata(lab, "plan").out == "no difference\n"
        assert metadata(lab, "clean").code == 1
    cleaned = metadata(lab, "clean")
    assert cleaned.code == 0, cleaned.err
    assert "table ip podgate-metadata" in cleaned.out
    assert lab.node.run("nft", "list", "ruleset") == ""
    assert LOCAL not in lab.node.run("ip", "addr", "show", "dev", "lo")
    assert asked(lab.pod, CLOUD, 80) == "cloud"
    assert metadata(lab, "clean").out == "nothing of ours was there\n"


@pytest.mark.slow
def test_no_firewall_makes_no_rule_and_needs_no_privilege(lab: PacketLab, tmp_path: Path) -> None:
    words = ("--no-firewall", "--addr", "127.0.0.1:988")
    with proxy(lab.node, tmp_path / "log", *words):
        poll(lambda: asked(lab.node, "127.0.0.1", 988).startswith(PODGATE))
        assert lab.node.run("nft", "list", "ruleset") == ""
        assert asked(lab.pod, CLOUD, 80) == "cloud"


@pytest.mark.slow
def test_the_uplink_may_be_named(lab: PacketLab, tmp_path: Path) -> None:
    with proxy(lab.node, tmp_path / "log", "--uplink", "pod0"):
        poll(lambda: "podgate-metadata-redirect" in lab.node.run("nft", "list", "tables"))
        assert asked(lab.pod, CLOUD, 80) == "cloud"


@pytest.mark.slow
def test_a_pod_that_advertised_itself_as_an_ipv6_router_is_still_a_pod(lab: PacketLab, tmp_path: Path) -> None:
    # What the kernel makes of a Pod's router advertisement, where it takes them.
    lab.node.run("ip", "-6", "route", "add", "default", "via", POD[6], "dev", "pod0", "proto", "ra", "metric", "1")
    with proxy(lab.node, tmp_path / "log"):
        poll(lambda: is_served(lab))


WHY = "metadata-concealment: bridge traffic to metadata server goes to metadata proxy"


def boot_script(node: NetNamespace, binary: str) -> None:
    """Make the rules of GCE's boot script."""
    for port, to in ((80, 988), (8080, 987)):
        matches = ["-p", "tcp", "!", "-i", "eth0", "-d", CLOUD, "--dport", str(port)]
        rule = [*matches, "-m", "comment", "--comment", WHY, "-j", "DNAT", "--to-destination", f"{LOCAL}:{to}"]
        node.run(f"iptables-{binary}", "-w", "-t", "nat", "-I", "PREROUTING", *rule)


def dnat_rules(node: NetNamespace, binary: str) -> list[str]:
    return [line for line in node.run(f"iptables-{binary}-save", "-t", "nat").splitlines() if "DNAT" in line]


@pytest.mark.slow
@pytest.mark.parametrize("binary", ["nft", "legacy"])
def test_the_boot_scripts_rules_go_once_ours_are_in(lab: PacketLab, tmp_path: Path, binary: str) -> None:
    boot_script(lab.node, binary)
    with proxy(lab.node, tmp_path / "log"):
        poll(lambda: is_served(lab) and not dnat_rules(lab.node, binary))
        assert metadata(lab, "plan").out == "no difference\n"


@pytest.mark.slow
def test_with_iptables_the_boot_scripts_rules_stay_as_they_are_and_outlive_the_proxy(
    lab: PacketLab, tmp_path: Path
) -> None:
    boot_script(lab.node, "nft")
    rules = dnat_rules(lab.node, "nft")
    with proxy(lab.node, tmp_path / "log", "--backend", "iptables"):
        poll(lambda: is_served(lab))
        assert asked(lab.pod, CLOUD, 443) == "refused"
    assert dnat_rules(lab.node, "nft") == rules
    assert asked(lab.pod, CLOUD, 80) == "refused"
    assert podgate("metadata", "clean", "--backend", "iptables", namespace=lab.node).code == 0
    assert dnat_rules(lab.node, "nft") == []


@pytest.mark.slow
def test_with_iptables_the_rule_against_forged_packets_is_there_once_too_and_stays(
    lab: PacketLab, tmp_path: Path
) -> None:
    def dropping() -> list[str]:
        return [line for line in lab.node.run("iptables-nft-save", "-t", "mangle").splitlines() if "-j DROP" in line]

    rule = [f"-A OUTPUT -s {CLOUD}/32 -j DROP"]
    with proxy(lab.node, tmp_path / "log", "--backend", "iptables"):
        poll(lambda: is_served(lab) and dropping() == rule)
        lab.node.run("iptables-nft", "-w", "-t", "mangle", "-F", "OUTPUT")
        poll(lambda: dropping() == rule)
        lab.node.run(
            "iptables-nft", "-w", "-t", "mangle", "-I", "OUTPUT", "-s", CLOUD, "-j", "DROP"
        )  # the script again
        poll(lambda: dropping() == rule)
        assert metadata(lab, "plan", "--backend", "iptables").code == 0
    assert podgate("metadata", "clean", "--backend", "iptables", namespace=lab.node).code == 0
    assert dropping() == rule


@pytest.mark.slow
@pytest.mark.parametrize("backends", [("nftables", "iptables"), ("iptables", "nftables")], ids=" to ".join)
def test_from_one_back_end_to_the_other(lab: PacketLab, tmp_path: Path, backends: tuple[str, str]) -> None:
    first, second = (("--backend", backend) for backend in backends)
    with proxy(lab.node, tmp_path / "log", *first):
        poll(lambda: is_served(lab))
    with proxy(lab.node, tmp_path / "log", *second):
        poll(lambda: podgate("metadata", "plan", *second, namespace=lab.node).code == 0)
        poll(lambda: is_served(lab))
        assert len(dnat_rules(lab.node, "nft")) == (2 if second[1] == "iptables" else 0)
