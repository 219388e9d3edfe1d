"""Programs of code do to real packets what tests/targets/nftables/test_registers.py sees them do in memory."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address

import pytest

from podgate.linux.conntrack import entries
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import Connection
from podgate.linux.nftables import NETLINK_NETFILTER
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State
from tests.support.nftables_programs import PROGRAMS, Program, Sent
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import load_state
from tests.support.packet_lab import NODE_SECONDARY, POD, PacketLab, packet_lab

pytestmark = pytest.mark.kernel

ANSWER_SECONDS = 0.5
"""How long an answer may take; a packet that was dropped costs so long."""
MOST_DRAWS = 200
"""After so many packets each of three draws has come, but for one time in 10^35."""


@pytest.fixture(scope="module")
def lab() -> Iterator[PacketLab]:
    with packet_lab() as lab:
        yield lab


def outcome(lab: PacketLab, sent: Sent) -> str:
    """Send one packet from a fresh socket and give what came of it, in words."""
    to = ip_address(sent.destination)
    family = socket.AF_INET if to.version == 4 else socket.AF_INET6
    source = (POD if sent.origin == "pod" else NODE_SECONDARY)[to.version]
    with inside_network(lab.at(sent.origin).descriptor), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(ANSWER_SECONDS)
        sender.bind((source, 0))
        sender.connect((sent.destination, sent.port))
        try:
            sender.send(b"who\n")
            seen = sender.recv(200).decode().split()[0]
        except TimeoutError:
            return "drop"
        except ConnectionRefusedError:
            return "reject"
        mine = sender.getsockname()[1]
    with inside_network(lab.node.descriptor), Connection(NETLINK_NETFILTER) as connection:
        found = [each for each in entries(connection, family) if each.original.source_port == mine]
    words = "accept"
    for each in found:
        answers = (ip_address(each.reply.source), each.reply.source_port)
        if answers != (to, sent.port):
            words = f"to {answers[0]}:{answers[1]}"
    return words if seen == source else f"{words} masqueraded"


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_kernel_does_what_the_machine_in_memory_does(program: Program, lab: PacketLab) -> None:
    async def load(state: State) -> None:
        with closing(NftablesTarget(state.family, TABLE, program="none", namespace=lab.node.descriptor)) as target:
            await load_state(target, state)
            lab.node.run("nft", "list", "table", state.family, TABLE)

    asyncio.run(load(program.state))
    try:
        for sent in program.sent:
            found = {outcome(lab, sent)}
            for _ in range(MOST_DRAWS):
                if found >= sent.outcomes or not found <= sent.outcomes:
                    break
                found.add(outcome(lab, sent))
            assert found == sent.outcomes, sent
    finally:
        lab.node.run("nft", "delete", "table", program.state.family, TABLE)
