"""The kernel's table: what is barred goes. A machine that fails gives an error that is retried, and ends no agent."""

import asyncio
import contextlib
import resource
from ipaddress import ip_address

import pytest

from podgate.joints import ApplyError
from podgate.targets.conntrack.apply import ConntrackFollower, ConntrackTarget
from podgate.targets.conntrack.state import Barred, State
from tests.support.packet_lab import ECHO_PORT, EXT, NODE, POD, Place, packet_lab

TRACKED = "table inet t { chain c { type filter hook prerouting priority 0; ct state new counter; }; }"
PLACES: tuple[Place, ...] = ("pod", "node")


def test_a_machine_without_descriptors_is_an_error_that_is_retried() -> None:
    follower = ConntrackFollower[str]("ip", lambda _before, _after: lambda _flow: False)

    async def follow() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            await follower.follow("before", "after")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with pytest.raises(ApplyError, match="Too many open files"):
        asyncio.run(follow())


@pytest.mark.kernel
def test_what_is_barred_is_deleted_and_the_rest_goes_on() -> None:
    target = ConntrackTarget((ip_address(EXT[4]), ip_address(EXT[6])))
    want = State(barred=tuple(Barred(ip_address(EXT[version]), frozenset({ECHO_PORT})) for version in (4, 6)))

    async def work() -> tuple[list[str], State]:
        plan = target.diff(await target.read(), want)
        await target.apply(plan)
        return [str(flow.source) for flow in plan.cut], await target.read()

    with packet_lab() as lab, contextlib.ExitStack() as stack:
        lab.node.run("nft", "-f", "-", text=TRACKED)
        for place in PLACES:
            for version in (4, 6):
                stack.enter_context(lab.flow(place, protocol="tcp")).seen_by(EXT[version])
        cut, left = lab.node.run_async(work)
    assert set(cut) == {POD[4], POD[6]}
    assert {flow.source for flow in left.flows} == set(map(ip_address, (NODE[4], NODE[6])))
    assert ip_address(NODE[4]) in left.own
