"""UDP flows that a judge names are deleted from the kernel's table; TCP and the rest go on."""

import contextlib
import socket
from ipaddress import ip_address

import pytest

from podgate.targets.conntrack.state import FlowJudge
from podgate.targets.conntrack.sweep import Own, UdpSweep
from tests.support.packet_lab import ECHO_PORT, EXT, NODE, POD, packet_lab

TRACKED = "table inet t { chain c { type filter hook prerouting priority 0; ct state new counter; }; }"


@pytest.mark.kernel
def test_what_is_named_goes_from_the_first_commit_on() -> None:
    asked: list[tuple[str | None, str, str | None]] = []
    owns: list[frozenset[bytes]] = []

    def judge(before: str | None, after: str, found: str | None, own: Own) -> FlowJudge | None:
        asked.append((before, after, found))
        if after == "nothing changed":
            return None
        owns.append(own())
        return lambda destination, port, answerer, _port: (
            (destination, port) == (ip_address(EXT[4]).packed, ECHO_PORT) and answerer == destination
        )

    told: list[int] = []
    quiet: UdpSweep[str, str] = UdpSweep("ip", judge)
    sweep = quiet.telling(lambda _seconds, count: told.append(count))
    assert sweep.from_start

    def protocols() -> list[str]:
        listed = lab.node.run("cat", "/proc/net/nf_conntrack", check=False) or lab.node.run("conntrack", "-L")
        return sorted(word for line in listed.splitlines() for word in line.split()[:3] if word in ("udp", "tcp"))

    with packet_lab() as lab, contextlib.ExitStack() as stack:
        lab.node.run("nft", "-f", "-", text=TRACKED)
        for protocol in ("udp", "tcp"):
            stack.enter_context(lab.flow("pod", protocol=protocol)).seen_by(EXT[4])
        assert lab.node.run_async(lambda: sweep.follow("a", "nothing changed", None)) == ""
        assert protocols() == ["tcp", "udp"]
        assert lab.node.run_async(lambda: sweep.follow(None, "first", "rules")) == "1 stale UDP flow deleted"
        assert protocols() == ["tcp"]
    assert told == [1], "where nothing is concerned nothing is swept"
    assert asked == [("a", "nothing changed", None), (None, "first", "rules")]
    assert socket.inet_aton(NODE[4]) in owns[0]
    assert socket.inet_aton(POD[4]) not in owns[0]
