"""The redirect in iptables: the boot script's own words, taken for its rules and in their place."""

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from podgate.commandline.options import settings_from
from podgate.features.metadata.intent import NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.to_iptables import OWNERS, forged_rules, redirect_rules
from podgate.features.metadata.to_nftables import redirect_table, refusals_table
from podgate.model.machine import Machine
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.fake import FakeIptables
from podgate.targets.iptables.render import render
from podgate.targets.iptables.state import Binary, State
from podgate.targets.nftables.render import render as nft_text
from tests.support.metadata_node import CLOUD, LOCAL, UPLINK, asked, metadata_node, serving
from tests.support.netns import NetNamespace, netns
from tests.support.packet_lab import PacketLab

RULES = node_rules(settings_from(Settings, {"uplink": UPLINK}), Machine())
BINARIES: tuple[Binary, ...] = ("nft", "legacy")

WHY = "metadata-concealment: bridge traffic to metadata server goes to metadata proxy"
MATCHES = "-p tcp ! -i eth0 -d 169.254.169.254 --dport {port} -m comment --comment"
SCRIPT = tuple(
    [
        *("-w", "-t", "nat", "-I", "PREROUTING", *MATCHES.format(port=port).split(), WHY),
        *("-j", "DNAT", "--to-destination", f"169.254.169.252:{to}"),
    ]
    for port, to in ((80, 988), (8080, 987))
)
"""The arguments of the boot script's two commands."""
DROPS = ["-w", "-t", "mangle", "-I", "OUTPUT", "-s", "169.254.169.254", "-j", "DROP"]
"""And of its command against packets in the metadata server's name."""
SECOND = "eth1"
UPLINKS = {
    "none": ((), "-p tcp -d", []),
    "one": ((UPLINK,), "-p tcp ! -i eth0 -d", []),
    "two": ((UPLINK, SECOND), "-p tcp ! -i eth0 -d", [SECOND]),
    "three": ((UPLINK, SECOND, "ens6"), "-p tcp ! -i eth0 -d", [SECOND, "ens6"]),
}
"""Uplinks, how the redirects begin, and which devices have rules of their own."""


def test_the_words_are_the_boot_scripts() -> None:
    lines = [line for line in render(redirect_rules(RULES, "nft")).splitlines() if line.startswith("-I")]
    quoted = [[f'"{word}"' if word == WHY else word for word in words] for words in SCRIPT]
    assert lines == [" ".join(words[3:]) for words in quoted]


@pytest.mark.parametrize(("uplinks", "begins", "own"), UPLINKS.values(), ids=UPLINKS)
def test_what_comes_in_by_an_uplink_is_left_alone(uplinks: tuple[str, ...], begins: str, own: list[str]) -> None:
    state = redirect_rules(replace(RULES, uplinks=uplinks), "nft")
    lines = [line.removeprefix("-I PREROUTING ") for line in render(state).splitlines() if line.startswith("-I")]
    assert [line.split(" 169", 1)[0] for line in lines[:2]] == [begins] * 2
    assert [line.partition(" -m comment")[0] for line in lines[2:]] == [
        f"-p tcp -i {name} -d {CLOUD} --dport {port}" for name in own for port in (80, 8080)
    ]
    assert all(line.endswith(" -j RETURN") for line in lines[2:])


@pytest.mark.parametrize("binary", BINARIES)
def test_the_fake_takes_them_in_front_and_finds_nothing_left_to_do(binary: Binary) -> None:
    for want in (redirect_rules(replace(RULES, uplinks=(UPLINK, SECOND)), binary), forged_rules(RULES, binary)):
        fake = FakeIptables("ip", binary, OWNERS, want.table)
        built_in = "PREROUTING" if want.table == "nat" else "OUTPUT"
        fake.restore(f"*{want.table}\n-A {built_in} -p udp -j ACCEPT\nCOMMIT\n")
        asyncio.run(fake.apply(fake.diff(asyncio.run(fake.read()), want)))
        assert [rule.form for rule in fake.chains[built_in]][:-1] == [each.rule.form for each in want.placed[::-1]]
        assert not fake.diff(asyncio.run(fake.read()), want)


def test_the_rule_against_forged_packets_is_the_boot_scripts() -> None:
    assert render(forged_rules(RULES, "nft")) == f"*mangle\n{' '.join(DROPS[3:])}\nCOMMIT\n"


@pytest.mark.parametrize("phase", ["none", "closed"])
def test_nothing_unless_open(phase: str) -> None:
    assert redirect_rules(replace(RULES, phase=phase), "nft") == State("ip", "nft")


async def bring(target: IptablesTarget, want: State) -> State:
    await target.apply(target.diff(await target.read(), want))
    return await target.read()


@pytest.fixture
def node() -> Iterator[NetNamespace]:
    with netns() as namespace:
        yield namespace


def listed(node: NetNamespace, binary: Binary, table: str = "nat") -> list[str]:
    shown = node.run(f"iptables-{binary}-save", "-t", table).splitlines()
    return [line for line in shown if line.startswith("-A")]


@pytest.mark.kernel
@pytest.mark.parametrize("binary", BINARIES)
def test_the_boot_scripts_rules_are_what_is_wanted(node: NetNamespace, binary: Binary) -> None:
    for words in SCRIPT:
        node.run(f"iptables-{binary}", *words)
    target = IptablesTarget("ip", binary, OWNERS, namespace=node.descriptor)
    try:
        assert not target.diff(asyncio.run(target.read()), redirect_rules(RULES, binary))
    finally:
        target.close()


@pytest.mark.kernel
@pytest.mark.parametrize("binary", BINARIES)
def test_what_is_written_is_what_the_script_writes_and_goes_in_front(node: NetNamespace, binary: Binary) -> None:
    foreign = ["-t", "nat", "-A", "PREROUTING", "-p", "udp", "--dport", "9", "-j", "ACCEPT"]
    node.run(f"iptables-{binary}", *foreign)
    for words in SCRIPT:
        node.run(f"iptables-{binary}", *words)
    by_script = listed(node, binary)
    for words in SCRIPT:
        node.run(f"iptables-{binary}", *("-D" if word == "-I" else word for word in words))
    target = IptablesTarget("ip", binary, OWNERS, namespace=node.descriptor)
    try:
        asyncio.run(bring(target, redirect_rules(RULES, binary)))
        assert listed(node, binary) == by_script
        asyncio.run(bring(target, State("ip", binary)))
        assert listed(node, binary) == ["-A PREROUTING -p udp -m udp --dport 9 -j ACCEPT"]
    finally:
        target.close()


@pytest.mark.kernel
@pytest.mark.parametrize("binary", BINARIES)
def test_a_rule_that_was_written_twice_or_for_another_port_is_mended(node: NetNamespace, binary: Binary) -> None:
    for words in (*SCRIPT, SCRIPT[0], [*SCRIPT[1][:-1], "169.254.169.252:1987"]):
        node.run(f"iptables-{binary}", *words)
    target = IptablesTarget("ip", binary, OWNERS, namespace=node.descriptor)
    try:
        asyncio.run(bring(target, redirect_rules(RULES, binary)))
        assert len(listed(node, binary)) == 2
    finally:
        target.close()


@pytest.mark.kernel
@pytest.mark.parametrize("binary", BINARIES)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_rule_against_forged_packets_is_there_once_and_stays(
    node: NetNamespace, binary: Binary, count: int
) -> None:
    for _ in range(count):
        node.run(f"iptables-{binary}", *DROPS)
    target = IptablesTarget("ip", binary, OWNERS, table="mangle", namespace=node.descriptor)
    try:
        assert bool(target.diff(asyncio.run(target.read()), forged_rules(RULES, binary))) is (count != 1)
        asyncio.run(bring(target, forged_rules(RULES, binary)))
        assert listed(node, binary, "mangle") == ["-A OUTPUT -s 169.254.169.254/32 -j DROP"]
        asyncio.run(bring(target, State("ip", binary, table="mangle")))
        assert listed(node, binary, "mangle") == ["-A OUTPUT -s 169.254.169.254/32 -j DROP"]
    finally:
        target.close()


@pytest.fixture(scope="module")
def lab() -> Iterator[PacketLab]:
    with metadata_node() as made:
        made.node.run("ip", "addr", "add", f"{LOCAL}/32", "dev", "lo", "scope", "host")
        yield made


@pytest.mark.kernel
@pytest.mark.parametrize("binary", BINARIES)
def test_refused_and_redirected_and_refused_again(lab: PacketLab, binary: Binary) -> None:
    def load(rules: NodeRules) -> None:
        lab.node.run("nft", "-f", "-", text=nft_text(refusals_table(rules, "ip", "iptables")))

    target = IptablesTarget("ip", binary, OWNERS, namespace=lab.node.descriptor)
    try:
        load(RULES)
        with serving(lab.node, LOCAL, 988, "podgate"):
            assert asked(lab.pod, CLOUD, 80) == "refused"
            asyncio.run(bring(target, redirect_rules(RULES, binary)))
            assert [asked(lab.pod, CLOUD, port) for port in (80, 8080, 443)] == ["podgate", "refused", "refused"]
            assert asked(lab.node, CLOUD, 80) == "cloud"
        assert asked(lab.pod, CLOUD, 80) == "refused"
        asyncio.run(bring(target, State("ip", binary)))
        assert asked(lab.pod, CLOUD, 80) == "refused"
    finally:
        asyncio.run(bring(target, State("ip", binary)))
        target.close()
        load(NodeRules())


@pytest.mark.kernel
@pytest.mark.parametrize("backend", ["nftables", *BINARIES])
def test_what_comes_in_by_a_second_uplink_is_not_redirected_either(lab: PacketLab, backend: str) -> None:
    rules = replace(RULES, uplinks=(UPLINK, SECOND))
    lab.node.run("ip", "addr", "add", f"{CLOUD}/32", "dev", "lo")
    target = IptablesTarget("ip", "legacy" if backend == "legacy" else "nft", OWNERS, namespace=lab.node.descriptor)
    with netns() as other, serving(lab.node, CLOUD, 80, "the node"), serving(lab.node, LOCAL, 988, "podgate"):
        lab.node.connect(SECOND, other, "eth0")
        lab.node.run("ip", "addr", "add", "198.18.0.1/24", "dev", SECOND)
        other.run("ip", "addr", "add", "198.18.0.2/24", "dev", "eth0")
        other.run("ip", "route", "add", CLOUD, "via", "198.18.0.1")

        def redirect(rules: NodeRules) -> None:
            if backend == "nftables":
                lab.node.run("nft", "-f", "-", text=nft_text(redirect_table(rules)))
            else:
                asyncio.run(bring(target, redirect_rules(rules, target.binary)))

        try:
            redirect(rules)
            assert [asked(each, CLOUD, 80) for each in (other, lab.pod)] == ["the node", "podgate"]
            redirect(RULES)
            assert asked(other, CLOUD, 80) == "podgate"
        finally:
            redirect(NodeRules())
            target.close()
            lab.node.run("ip", "link", "del", SECOND)
            lab.node.run("ip", "addr", "del", f"{CLOUD}/32", "dev", "lo")
