"""The kernel's table: what is barred goes. A machine that fails gives an error that is retried, and ends no agent."""

import asyncio
import contextlib
import re
import resource
import socket
from ipaddress import ip_address

import pytest

from podgate.joints import ApplyError
from podgate.linux.conntrack import Entry, entries
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.targets.conntrack.apply import BarredFollower, ConntrackFollower, flow_of
from podgate.targets.conntrack.state import Barred
from tests.support.packet_lab import ECHO_PORT, EXT, NODE, POD, Place, packet_lab

TRACKED = "table inet t { chain c { type filter hook prerouting priority 0; ct state new counter; }; }"
PLACES: tuple[Place, ...] = ("pod", "node")


def test_a_machine_without_descriptors_is_an_error_that_is_retried() -> None:
    follower = ConntrackFollower[str]("ip", lambda _before, _after, _gap: lambda _flow: False)

    async def follow() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            await follower.follow("before", "after", None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with pytest.raises(ApplyError, match="Too many open files"):
        asyncio.run(follow())


@pytest.mark.kernel
def test_what_is_barred_is_deleted_and_the_rest_goes_on() -> None:
    barred = tuple(Barred(ip_address(EXT[version]), frozenset({ECHO_PORT})) for version in (4, 6))
    follower = BarredFollower[tuple[Barred, ...]](lambda barred: barred)

    async def work() -> list[str]:
        told = [(None, ()), (None, barred), ((), barred)]
        return [await follower.follow(before, after, None) for before, after in told]

    def tracked() -> set[str]:
        found: list[Entry] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            with Connection(NETLINK_NETFILTER) as listing:
                found += entries(listing, family)
        return {str(flow_of(entry).source) for entry in found}

    with packet_lab() as lab, contextlib.ExitStack() as stack:
        lab.node.run("nft", "-f", "-", text=TRACKED)
        for place in PLACES:
            for version in (4, 6):
                stack.enter_context(lab.flow(place, protocol="tcp")).seen_by(EXT[version])
        nothing, cut, again = lab.node.run_async(work)
        left = lab.node.call(tracked)
    assert (nothing, again) == ("", "")
    both = (rf"tcp {POD[version]}:\d+ > {EXT[version]}:{ECHO_PORT}" for version in (4, 6))
    assert re.fullmatch("cut " + ", ".join(both), cut), cut
    assert left == {NODE[4], NODE[6]}
