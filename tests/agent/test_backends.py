"""Which back end the agent writes, what it leaves alone, and what the old name writes: byte for byte what it wrote."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent import TABLE, podgate, running, started
from tests.support.netns import NetNamespace, netns
from tests.support.old_agent import OldName, agents_rules, jump, listed, old_agent, ours, restore
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NFT, LEGACY = "iptables-nft", "iptables-legacy"


def hint(node: NetNamespace, program: str) -> None:
    """Leave a kubelet's hint."""
    node.run(program, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")


def legacy_tables(node: NetNamespace, family: str = "ip") -> str:
    """Give the tables of iptables-legacy that are in use."""
    return node.run("cat", f"/proc/thread-self/net/{family}_tables_names", check=False)


@pytest.fixture
def other() -> Iterator[NetNamespace]:
    with netns() as namespace:
        yield namespace


WRITTEN = [
    # flags, hint of the kubelet, program that is written; empty: nftables
    ((), "", ""),
    ((), LEGACY, ""),
    (("--backend", "auto"), "", ""),
    (("--backend", "auto"), LEGACY, LEGACY),
    (("--backend", "auto"), NFT, NFT),
    (("--backend", "iptables"), "", NFT),
    (("--backend", "iptables"), LEGACY, LEGACY),
    (("--backend", "iptables"), "ip6tables-nft", NFT),
    (("--backend", "iptables-legacy"), NFT, LEGACY),
]


@pytest.mark.parametrize(("flags", "hinted", "written"), WRITTEN)
def test_what_is_written(node: NetNamespace, tmp_path: Path, flags: tuple[str, ...], hinted: str, written: str) -> None:
    if hinted:
        hint(node, hinted)
    done = podgate(*("masquerade", "run", "--once", "--state-dir", tmp_path / "state"), *flags, namespace=node)
    assert done.code == 0, done.err
    tables = node.run("nft", "list", "tables")
    assert (f"table ip {TABLE}" in tables) is (written == "")
    found = {program for program in (NFT, LEGACY) if program == written and ours(node, program)}
    assert found == ({written} if written else set())
    if written != LEGACY:
        assert "nat" not in legacy_tables(node).split(), "listing an old table makes it"
    if written != NFT:
        assert "table ip nat" not in tables
    plan = podgate("masquerade", "plan", "--state-dir", tmp_path / "state", *flags, namespace=node)
    assert plan == (0, "no difference\n", "")


def test_iptables_legacy_is_not_run_where_nobody_uses_it(node: NetNamespace, tmp_path: Path) -> None:
    for program in (NFT, "ip6tables-nft"):
        restore(node, program, old_agent(ipv6=program == "ip6tables-nft"))
    with running(node, tmp_path, "--backend", "iptables", "--enable-ipv6"):
        pass
    assert podgate("masquerade", "clean", "--state-dir", tmp_path / "state", namespace=node).code == 0
    assert (legacy_tables(node), legacy_tables(node, "ip6")) == ("", "")


def test_a_second_pass_writes_nothing_and_counters_stay(node: NetNamespace, tmp_path: Path) -> None:
    """T38."""
    flags = ("--backend", "iptables", "--state-dir", tmp_path / "state")
    assert podgate("masquerade", "run", "--once", *flags, namespace=node).code == 0
    restore(node, NFT, "*nat\n[7:77] -I POSTROUTING -j ACCEPT\nCOMMIT\n")
    before = node.run(f"{NFT}-save", "-c", "-t", "nat").splitlines()[1:-1]
    assert podgate("masquerade", "run", "--once", *flags, namespace=node).code == 0
    assert node.run(f"{NFT}-save", "-c", "-t", "nat").splitlines()[1:-1] == before


FOREIGN = "*nat\n:KUBE-POSTROUTING - [0:0]\n-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\nCOMMIT\n"


@pytest.mark.parametrize("program", [NFT, LEGACY])
def test_a_chain_of_others_is_refused_by_name_and_nothing_is_touched(
    node: NetNamespace, tmp_path: Path, program: str
) -> None:
    """T24: the old agent would have emptied it."""
    restore(node, program, FOREIGN)
    restore(node, program, old_agent())
    before = listed(node, program)
    flags = ("--backend", program, "--masq-chain", "KUBE-POSTROUTING")
    with started(node, tmp_path, *flags) as agent:
        poll(lambda: "KUBE-POSTROUTING" in agent.get("/readyz")[1])
        assert "holds a rule that is not ours" in agent.get("/readyz")[1]
        assert listed(node, program) == before
    plan = podgate("masquerade", "plan", *flags, namespace=node)
    assert (plan.code, "KUBE-POSTROUTING holds a rule that is not ours" in plan.out) == (1, True)
    assert listed(node, program) == before


def test_one_family_that_cannot_be_written_does_not_hold_up_the_other(node: NetNamespace, tmp_path: Path) -> None:
    restore(node, "ip6tables-nft", FOREIGN.replace("KUBE-POSTROUTING", "IP-MASQ-AGENT"))
    flags = ("--backend", "iptables", "--enable-ipv6")
    with started(node, tmp_path, *flags) as agent:
        poll(lambda: "iptables-nft/ip6 failed" in agent.get("/readyz")[1])
        assert len(ours(node, NFT)) > 5
        assert agent.get("/readyz")[0] == 503
    once = podgate("masquerade", "run", "--once", *flags, "--state-dir", tmp_path / "state", namespace=node)
    assert once.code == 1


def test_without_ip6tables_ipv4_works_all_the_same(node: NetNamespace, tmp_path: Path) -> None:
    programs = tmp_path / "sbin"
    programs.mkdir()
    shutil.copy("/usr/sbin/nft", programs)
    for name in ("xtables-nft-multi", NFT, f"{NFT}-save", f"{NFT}-restore"):
        shutil.copy("/usr/sbin/xtables-nft-multi", programs / name)
    under = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /usr/sbin && exec "$@"', str(programs))
    with started(node, tmp_path, "--backend", "iptables", "--enable-ipv6", under=under) as agent:
        poll(lambda: "ip6tables-nft is not installed" in agent.get("/readyz")[1])
        assert len(ours(node, NFT)) > 5


def test_rules_that_cannot_be_taken_away_are_said_and_hold_up_nothing(node: NetNamespace, tmp_path: Path) -> None:
    """The old tables are in use, and the image has no iptables-legacy: ours are written and kept all the same."""
    restore(node, LEGACY, old_agent())
    programs = tmp_path / "sbin"
    programs.mkdir()
    shutil.copy("/usr/sbin/nft", programs)
    under = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /usr/sbin && exec "$@"', str(programs))
    with started(node, tmp_path, under=under) as agent:
        poll(agent.ready)
        poll(lambda: "iptables-legacy is not installed" in agent.get("/healthz")[1])
        poll((tmp_path / "state" / "config.json").exists)
        assert agent.ready()
    state = ("--state-dir", tmp_path / "other")
    once = podgate("masquerade", "run", "--once", *state, namespace=node, under=under)
    assert (once.code, "iptables-legacy is not installed" in once.err) == (1, True)


# The old name.

NAMES = [
    # flags, program, chain
    ((), NFT, "IP-MASQ-AGENT"),
    (("-enable-ipv6",), NFT, "IP-MASQ-AGENT"),
    (("--masq-chain=IP-MASQ", "--enable-ipv6"), LEGACY, "IP-MASQ"),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_old_name_writes_what_the_old_agent_wrote(
    node: NetNamespace, other: NetNamespace, tmp_path: Path, name: tuple[tuple[str, ...], str, str]
) -> None:
    """T21: the kernel shows the same as after the old agent's own texts."""
    flags, program, chain = name
    if program == LEGACY:
        hint(node, LEGACY)
    ipv6 = program.replace("iptables", "ip6tables")
    programs = (program, ipv6) if "enable-ipv6" in "".join(flags) else (program,)
    for each in programs:
        restore(other, each, agents_rules(chain, ipv6=each == ipv6))
        restore(other, each, f"*nat\n{jump(chain)}\nCOMMIT\n")
    with OldName(tmp_path / "node").started(node, *flags) as agent:
        poll(agent.ready)
        assert [listed(node, each) for each in programs] == [listed(other, each) for each in programs]
        assert TABLE not in node.run("nft", "list", "tables")
        assert ipv6 in programs or "table ip6 nat" not in node.run("nft", "list", "tables")
        assert agent.stop(signal.SIGTERM) == 0
    assert listed(node, program) == listed(other, program), "rules stay"


def test_the_old_name_reads_its_file_and_follows_it(node: NetNamespace, tmp_path: Path) -> None:
    name = OldName(tmp_path / "node")
    name.config.write_text("nonMasqueradeCIDRs: [10.1.0.0/16]\nmasqLinkLocal: true\nresyncInterval: 1s\n")

    def kept() -> list[str]:
        return [line.split()[3] for line in ours(node, NFT) if "-j RETURN" in line]

    with name.started(node, "--v=2") as agent:
        poll(agent.ready)
        assert kept() == ["10.1.0.0/16"]
        name.config.write_text("nonMasqueradeCIDRs: [10.2.0.0/16]\n")
        poll(lambda: kept() == ["169.254.0.0/16", "10.2.0.0/16"])
        name.config.write_text("nonMasqueradeCIDRs: [10.2.0.1/16]\n")
        poll(lambda: agent.log("10.2.0.1/16"))
        node.run(NFT, "-t", "nat", "-F")
        poll(lambda: kept() == ["169.254.0.0/16", "10.2.0.0/16"])
        name.config.unlink()
        poll(lambda: "172.16.0.0/12" in kept())
        assert [line["message"].partition(":")[0] for line in agent.log("without effect")] == ["-v"]


def test_a_bad_file_at_the_first_start_keeps_what_the_old_agent_kept(node: NetNamespace, tmp_path: Path) -> None:
    """T32: nothing was kept on disk, but the rules are there."""
    restore(node, NFT, agents_rules(kept=("10.7.0.0/16",)))
    restore(node, NFT, f"*nat\n{jump()}\nCOMMIT\n")
    before = listed(node, NFT)
    name = OldName(tmp_path / "node")
    name.config.write_text("nonMasqueradeCIDRs: [abc]\n")
    with name.started(node) as agent:
        poll(agent.ready)
        assert listed(node, NFT) == before
