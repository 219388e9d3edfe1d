"""Where a Pod's connection ends, in the real kernel, under the rules that nftables gets."""

import socket
import struct
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from podgate.commandline.options import settings_from
from podgate.features.metadata.intent import NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.to_nftables import REDIRECT_TABLE, TABLE, redirect_table, refusals_table
from podgate.linux.namespaces import inside_network
from podgate.model.machine import Machine
from podgate.targets.nftables.render import render
from podgate.targets.nftables.state import State
from tests.support.metadata_node import CLOUD, CLOUD6, LOCAL, UPLINK, Asking, asked, metadata_node, serving
from tests.support.packet_lab import EXT, NODE, POD, PacketLab

pytestmark = pytest.mark.kernel

RULES = node_rules(settings_from(Settings, {"uplink": UPLINK}), Machine())
NONE = NodeRules(why="a test")


@pytest.fixture(scope="module")
def node() -> Iterator[PacketLab]:
    with metadata_node() as lab:
        lab.node.run("ip", "addr", "add", f"{LOCAL}/32", "dev", "lo", "scope", "host")
        yield lab


@pytest.fixture
def lab(node: PacketLab) -> Iterator[PacketLab]:
    try:
        yield node
    finally:
        load(node, *states(NONE))


def states(rules: NodeRules) -> tuple[State, ...]:
    return refusals_table(rules, "ip"), refusals_table(rules, "ip6"), redirect_table(rules)


def load(lab: PacketLab, *wanted: State) -> None:
    lab.node.run("nft", "-f", "-", text="".join(map(render, wanted)))


def refuse(lab: PacketLab) -> None:
    load(lab, refusals_table(RULES, "ip"), refusals_table(RULES, "ip6"))


def test_without_rules_a_pod_reaches_the_cloud(lab: PacketLab) -> None:
    assert [asked(lab.pod, CLOUD, port) for port in (80, 8080, 443, 53)] == ["cloud"] * 4
    assert asked(lab.pod, CLOUD6, 80) == "cloud"


def test_at_first_all_is_refused_and_the_node_itself_is_not(lab: PacketLab) -> None:
    refuse(lab)
    assert [asked(lab.pod, CLOUD, port) for port in (80, 8080, 443)] == ["refused"] * 3
    assert [asked(lab.pod, CLOUD6, port) for port in (80, 8080, 443)] == ["refused"] * 3
    assert [asked(lab.node, CLOUD, port) for port in (80, 8080, 443)] == ["cloud"] * 3
    assert asked(lab.node, CLOUD6, 80) == "cloud"


def test_only_the_listed_ports_are_touched(lab: PacketLab) -> None:
    load(lab, *states(RULES))
    assert asked(lab.pod, CLOUD, 53) == "cloud"
    assert asked(lab.pod, CLOUD6, 53) == "cloud"


def test_redirected_when_open(lab: PacketLab) -> None:
    load(lab, *states(RULES))
    with serving(lab.node, LOCAL, 988, "podgate"), serving(lab.node, LOCAL, 987, "podgate-8080"):
        assert asked(lab.pod, CLOUD, 80) == "podgate"
        assert asked(lab.pod, CLOUD, 8080) == "podgate-8080"
        assert [asked(lab.pod, CLOUD, 443), asked(lab.pod, CLOUD6, 80)] == ["refused"] * 2
        assert asked(lab.node, CLOUD, 80) == "cloud"


def test_refused_when_nobody_listens(lab: PacketLab) -> None:
    load(lab, *states(RULES))
    assert [asked(lab.pod, CLOUD, port) for port in (80, 8080)] == ["refused"] * 2


def test_the_proxys_own_address_is_for_redirected_packets_and_the_node_alone(lab: PacketLab) -> None:
    with serving(lab.node, LOCAL, 988, "podgate"), serving(lab.node, LOCAL, 7, "podgate"):
        assert asked(lab.pod, LOCAL, 988) == "podgate"
        load(lab, *states(RULES))
        assert [asked(lab.pod, LOCAL, port) for port in (988, 7)] == ["refused"] * 2
        assert asked(lab.node, LOCAL, 988) == "podgate"
        assert asked(lab.pod, CLOUD, 80) == "podgate"


def test_what_comes_in_by_the_uplink_is_not_redirected(lab: PacketLab) -> None:
    load(lab, redirect_table(RULES))  # without the rule against answers in the metadata server's name
    lab.ext.run("ip", "addr", "del", f"{CLOUD}/32", "dev", "lo")
    lab.node.run("ip", "addr", "add", f"{CLOUD}/32", "dev", "lo")
    lab.ext.run("ip", "route", "add", CLOUD, "via", NODE[4])
    try:
        with serving(lab.node, CLOUD, 80, "the node"), serving(lab.node, LOCAL, 988, "podgate"):
            assert asked(lab.ext, CLOUD, 80) == "the node"
    finally:
        lab.ext.run("ip", "route", "del", CLOUD, "via", NODE[4])
        lab.node.run("ip", "addr", "del", f"{CLOUD}/32", "dev", "lo")
        lab.ext.run("ip", "addr", "add", f"{CLOUD}/32", "dev", "lo")


def test_a_connection_from_before_is_cut_when_the_rules_come(lab: PacketLab) -> None:
    with serving(lab.node, LOCAL, 988, "podgate"), serving(lab.ext, CLOUD, 81, "cloud"):
        with Asking(lab.pod, CLOUD, 80) as pods, Asking(lab.node, CLOUD, 80) as nodes:
            assert [pods.answer(), nodes.answer()] == ["cloud", "cloud"]
            load(lab, *states(RULES))
            assert [pods.answer(), nodes.answer()] == ["refused", "cloud"]
        assert asked(lab.pod, CLOUD, 80) == "podgate"


def test_from_refused_to_redirected_nobody_ever_gets_through(lab: PacketLab) -> None:
    refuse(lab)
    with serving(lab.node, LOCAL, 988, "podgate"):
        for _ in range(3):
            assert asked(lab.pod, CLOUD, 80) == "refused"
            load(lab, redirect_table(RULES))
            assert asked(lab.pod, CLOUD, 80) == "podgate"
            load(lab, redirect_table(replace(RULES, phase="closed")))


def test_another_programs_redirect_does_not_come_first(lab: PacketLab) -> None:
    rule = f"add rule ip other prerouting ip daddr {CLOUD} tcp dport 80 dnat to {NODE[4]}:8775"
    chain = "add chain ip other prerouting { type nat hook prerouting priority dstnat; }"
    lab.node.run("nft", "-f", "-", text=f"add table ip other\n{chain}\n{rule}\n")
    try:
        with serving(lab.node, LOCAL, 988, "podgate"), serving(lab.node, NODE[4], 8775, "other"):
            assert asked(lab.pod, CLOUD, 80) == "other"
            load(lab, *states(RULES))
            assert asked(lab.pod, CLOUD, 80) == "podgate"
    finally:
        lab.node.run("nft", "delete", "table", "ip", "other")


@pytest.mark.parametrize("kind", ["a datagram", "a reset", "an answer"])
def test_nobody_on_the_node_sends_in_the_metadata_servers_name(lab: PacketLab, kind: str) -> None:
    with inside_network(lab.node.descriptor):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with raw:
        raw.sendto(forged(kind), (POD[4], 0))
        load(lab, *states(RULES))
        with pytest.raises(PermissionError):
            raw.sendto(forged(kind), (POD[4], 0))


def forged(kind: str) -> bytes:
    """Give a packet from the metadata server's address, as a hostNetwork Pod with NET_RAW can send it."""
    ports = struct.pack("!HH", 80, 5555)
    flags = {"a reset": 0x04, "an answer": 0x18}.get(kind)
    udp, tcp = struct.pack("!HH", 8, 0), struct.pack("!IIBBHHH", 1, 1, 0x50, flags or 0, 100, 0, 0)
    body = ports + (udp if flags is None else tcp)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 17 if flags is None else 6, 0)
    return head + socket.inet_aton(CLOUD) + socket.inet_aton(POD[4]) + body


def test_azures_wire_server_is_closed_but_for_its_other_ports(lab: PacketLab) -> None:
    rules = node_rules(settings_from(Settings, {"uplink": UPLINK, "profile": "azure"}), Machine())
    lab.ext.run("ip", "addr", "add", "168.63.129.16/32", "dev", "lo")
    try:
        with (
            serving(lab.ext, "168.63.129.16", 80, "wire"),
            serving(lab.ext, "168.63.129.16", 32526, "wire"),
            serving(lab.ext, "168.63.129.16", 53, "wire"),
        ):
            load(lab, *states(rules))
            assert [asked(lab.pod, "168.63.129.16", port) for port in (80, 32526, 53)] == ["refused", "refused", "wire"]
            assert asked(lab.node, "168.63.129.16", 80) == "wire"
    finally:
        lab.ext.run("ip", "addr", "del", "168.63.129.16/32", "dev", "lo")


def test_refused_at_once_also_beside_the_boot_scripts_rule_against_forged_packets(lab: PacketLab) -> None:
    lab.node.run("iptables", "-t", "mangle", "-I", "OUTPUT", "-s", CLOUD, "-j", "DROP")
    try:
        refuse(lab)
        assert [asked(lab.pod, CLOUD, port) for port in (80, 8080, 443)] == ["refused"] * 3
        load(lab, *states(RULES))
        with serving(lab.node, LOCAL, 988, "podgate"):
            assert [asked(lab.pod, CLOUD, port) for port in (80, 8080, 443)] == ["podgate", "refused", "refused"]
    finally:
        lab.node.run("iptables", "-t", "mangle", "-F", "OUTPUT")


@pytest.mark.parametrize("there", [True, False], ids=["the address is there", "the address is not there yet"])
def test_what_is_refused_reaches_no_other_program_of_the_node(lab: PacketLab, there: bool) -> None:
    if not there:
        lab.node.run("ip", "addr", "del", f"{LOCAL}/32", "dev", "lo")
    try:
        refuse(lab)
        with serving(lab.node, "0.0.0.0", 443, "an ingress"), serving(lab.node, "0.0.0.0", 80, "an ingress"):
            assert [asked(lab.pod, CLOUD, port) for port in (443, 80)] == ["refused"] * 2
            assert asked(lab.pod, NODE[4], 443) == "an ingress"
    finally:
        if not there:
            lab.node.run("ip", "addr", "add", f"{LOCAL}/32", "dev", "lo", "scope", "host")


def test_of_the_nodes_own_processes_those_of_some_users_alone_get_through(lab: PacketLab) -> None:
    load(lab, *states(replace(RULES, node_users=(0, 2999))))
    script = f"exec 3<>/dev/tcp/{CLOUD}/80 && echo who >&3 && head -c5 <&3"

    def asked_by(uid: str) -> str:
        words = ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "timeout", "20", "bash", "-c", script)
        return lab.node.run(*words, check=False)

    with serving(lab.node, LOCAL, 988, "podgate"):
        assert [asked_by(uid) for uid in ("0", "2999", "3000", "65534")] == ["cloud", "cloud", "", ""]
        assert asked(lab.pod, CLOUD, 80) == "podgate"


def test_no_firewall_is_no_table(lab: PacketLab) -> None:
    load(lab, *states(RULES))
    load(lab, *states(node_rules(settings_from(Settings, {"firewall": False}), Machine())))
    listed = lab.node.run("nft", "list", "tables")
    assert TABLE not in listed
    assert REDIRECT_TABLE not in listed
    assert asked(lab.pod, CLOUD, 80, POD[4]) == "cloud"
    assert asked(lab.ext, EXT[4], 7777) != "silence"
