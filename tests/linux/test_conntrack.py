"""ctnetlink against the real kernel: entries are listed as the conntrack program lists them, and one is deleted."""

import socket
from contextlib import suppress

import pytest

from podgate.linux.conntrack import delete, entries, parsed
from podgate.linux.netlink import NETLINK_NETFILTER, Connection, attribute
from tests.support.netns import netns
from tests.support.packet_lab import EXT, OUTSIDE, POD, packet_lab

pytestmark = pytest.mark.kernel
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}

NAT = """
table {family} t {{
    chain c {{
        type nat hook postrouting priority 100;
        oifname "eth0" masquerade
    }}
}}
"""

TRACKED = """
table ip t {
    chain c {
        type filter hook output priority 0;
        ct state new counter
    }
}
"""


@pytest.mark.parametrize("version", [4, 6])
def test_entries_are_listed_and_one_is_deleted(version: int) -> None:
    with packet_lab() as lab, lab.flow("pod") as udp, lab.flow("pod", protocol="tcp") as tcp:
        lab.node.run("nft", "-f", "-", text=NAT.format(family="ip" if version == 4 else "ip6"))
        udp.seen_by(EXT[version])
        tcp.seen_by(EXT[version])

        def work() -> tuple[list[int], list[bool], list[int]]:
            with Connection(NETLINK_NETFILTER) as connection:
                before = list(entries(connection, FAMILIES[version]))
                first = next(entry for entry in before if entry.original.protocol == socket.IPPROTO_UDP)
                assert first.original.source == socket.inet_pton(FAMILIES[version], POD[version])
                assert first.original.destination_port == 7777
                assert first.reply.destination != first.original.source
                deleted = [delete(connection, first), delete(connection, first)]
                after = list(entries(connection, FAMILIES[version]))
            return [entry.original.protocol for entry in before], deleted, [entry.original.protocol for entry in after]

        before, deleted, after = lab.node.call(work)
        assert sorted(before) == [socket.IPPROTO_TCP, socket.IPPROTO_UDP]
        assert deleted == [True, False]
        assert after == [socket.IPPROTO_TCP]


@pytest.mark.parametrize("version", [4, 6])
def test_entries_to_one_address_are_listed_alone(version: int) -> None:
    other = next(address for address in OUTSIDE if (":" in address) == (version == 6))
    with packet_lab() as lab, lab.flow("pod") as one, lab.flow("pod") as two:
        lab.node.run("nft", "-f", "-", text=NAT.format(family="ip" if version == 4 else "ip6"))
        one.seen_by(EXT[version])
        two.seen_by(other)

        def listed(address: str) -> list[str]:
            with Connection(NETLINK_NETFILTER) as connection:
                packed = socket.inet_pton(FAMILIES[version], address)
                found = list(entries(connection, FAMILIES[version], packed))
            return [socket.inet_ntop(FAMILIES[version], entry.original.destination) for entry in found]

        assert lab.node.call(lambda: [listed(EXT[version]), listed(other), listed(POD[version])]) == [
            [EXT[version]],
            [other],
            [],
        ]


def test_a_long_list_comes_as_it_is_read() -> None:
    """Whoever reads it may do something else between two entries, and sees what changed meanwhile."""
    count = 3000

    def work() -> tuple[int, int]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for port in range(10_000, 10_000 + count):
                with suppress(ConnectionRefusedError):
                    sender.sendto(b"", ("127.0.0.1", port))
        with Connection(NETLINK_NETFILTER) as listing, Connection(NETLINK_NETFILTER) as other:
            stream = entries(listing, socket.AF_INET)
            next(stream)
            there = list(entries(other, socket.AF_INET))
            for entry in there:
                delete(other, entry)
            return len(there), len(list(stream))

    with netns() as node:
        node.run("ip", "link", "set", "lo", "up")
        node.run("nft", "-f", "-", text=TRACKED)
        there, rest = node.call(work)
    assert there >= count
    assert rest < there / 2


def test_what_is_no_entry_is_left_out() -> None:
    assert parsed(bytes(4)) is None
    assert parsed(bytes(4) + attribute(1, attribute(1, b""))) is None
