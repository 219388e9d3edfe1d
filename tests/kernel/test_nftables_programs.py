"""Programs of code do to real packets what tests/targets/nftables/test_registers.py sees them do in memory."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address

import pytest

from podgate.linux.conntrack import entries
from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State
from tests.support.nftables_code import balancing, endpoint, service
from tests.support.nftables_programs import ONE, PROGRAMS, SERVICE, TWO, Program, Sent, sent
from tests.support.nftables_states import TABLE
from tests.support.nftables_target import load_state
from tests.support.packet_lab import ECHO_PORT, NODE_SECONDARY, POD, PacketLab, packet_lab

pytestmark = pytest.mark.kernel

ANSWER_SECONDS, SILENCE_SECONDS = 30.0, 0.5
"""How long an answer may take on a busy machine; and where a packet may be dropped, which costs so long."""
MOST_DRAWS = 200
"""After so many packets each of three draws has come, but for one time in 10^35."""


@pytest.fixture(scope="module")
def lab() -> Iterator[PacketLab]:
    with packet_lab() as lab:
        yield lab


def outcome(lab: PacketLab, packet: Sent) -> str:
    """Send one packet from a fresh socket and give what came of it, in words."""
    to = ip_address(packet.destination)
    family = socket.AF_INET if to.version == 4 else socket.AF_INET6
    source = (POD if packet.origin == "pod" else NODE_SECONDARY)[to.version]
    with inside_network(lab.at(packet.origin).descriptor), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(SILENCE_SECONDS if "drop" in packet.outcomes else ANSWER_SECONDS)
        sender.bind((source, 0))
        sender.connect((packet.destination, packet.port))
        try:
            sender.send(b"who\n")
            seen = sender.recv(200).decode().split()[0]
        except TimeoutError:
            return "drop"
        except ConnectionRefusedError:
            return "reject"
        mine = sender.getsockname()[1]
    with inside_network(lab.node.descriptor), Connection(NETLINK_NETFILTER) as connection:
        # Only what was sent there: an earlier packet to somewhere else may have had this source port.
        found = [each for each in entries(connection, family, to.packed) if each.original.source_port == mine]
    words = "accept"
    for each in found:
        answers = (ip_address(each.reply.source), each.reply.source_port)
        if answers != (to, packet.port):
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
        for each in program.sent:
            found = {outcome(lab, each)}
            for _ in range(MOST_DRAWS):
                if found >= each.outcomes or not found <= each.outcomes:
                    break
                found.add(outcome(lab, each))
            assert found == each.outcomes, each
    finally:
        lab.node.run("nft", "delete", "table", program.state.family, TABLE)
        lab.node.run("conntrack", "-F")  # or a source port that comes again is translated as it was


def among(count: int) -> State:
    """Give a table with one service that stays among others."""
    others = {service(f"10.97.{n >> 8}.{n & 255}"): (endpoint("10.0.0.1"), endpoint("10.0.0.2")) for n in range(count)}
    staying = service(SERVICE[4], ECHO_PORT, "udp")
    return balancing({staying: (endpoint(ONE, ECHO_PORT), endpoint(TWO, ECHO_PORT)), **others})


@pytest.mark.slow
def test_a_service_answers_throughout_large_changes_of_others(lab: PacketLab) -> None:
    """Loads and changes of 30,000 elements, in several transactions; each packet is a new connection."""
    small, large = among(10), among(10_000)
    stop = threading.Event()
    seen: Counter[str] = Counter()

    def ask() -> None:
        while not stop.is_set():
            seen[outcome(lab, sent(SERVICE[4]))] += 1

    async def change(target: NftablesTarget) -> None:
        have = small
        for want in (large, small, large, small):
            asked = seen.total()
            await target.apply(target.diff(have, want))
            have = want
            while seen.total() == asked:
                await asyncio.sleep(0)

    with closing(NftablesTarget("ip", TABLE, program="none", namespace=lab.node.descriptor)) as target:
        asyncio.run(load_state(target, small))
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            asyncio.run(asyncio.wait_for(change(target), 200))
        finally:
            stop.set()
            asking.join()
            asyncio.run(load_state(target, State.absent("ip", TABLE)))
    assert set(seen) == {f"to {ONE}:{ECHO_PORT} masqueraded", f"to {TWO}:{ECHO_PORT} masqueraded"}
