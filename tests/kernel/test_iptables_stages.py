"""A plan that is too large for one transaction of iptables-nft, in the kernel: written whole, read back whole."""

import asyncio
from contextlib import closing

import pytest

from podgate.linux.namespaces import inside_network
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.linux.nftables import generation
from podgate.model.table import Table
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.stages import stages
from podgate.targets.iptables.state import BuiltinRule, Names, State
from tests.support.netns import NetNamespace

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NAMES = Names(frozenset(("MAIN",)), ("SVC-", "SEP-"))
JUMP = BuiltinRule("PREROUTING", read_rule('-m comment --comment "all of it" -j MAIN', "ip"), is_first=True)


def wanted(count: int) -> State:
    numbers = range(count)
    named: dict[str, tuple[str, ...]] = {
        "MAIN": tuple(f"-d 10.96.{each >> 8}.{each & 255}/32 -j SVC-{each}" for each in numbers)
    }
    for each in numbers:
        named[f"SVC-{each}"] = (f"-j SEP-{each}",)
        named[f"SEP-{each}"] = (f"-p tcp -m tcp -j DNAT --to-destination 10.0.{each >> 8}.{each & 255}:80",)
    return State("ip", "nft", placed=(JUMP,) if count else (), named=Table.of(named))


def test_what_was_written_in_parts_reads_back_as_it_is_wanted(namespace: NetNamespace) -> None:
    async def run() -> tuple[int, int]:
        with (
            closing(IptablesTarget("ip", "nft", (), names=NAMES, namespace=namespace.descriptor)) as target,
            inside_network(namespace.descriptor),
            Connection(NETLINK_NETFILTER) as kernel,
        ):
            few, many = wanted(3), wanted(1200)
            await target.apply(target.diff(await target.read(), few))
            plan = target.diff(await target.read(), many)
            before = generation(kernel)
            await target.apply(plan)
            taken = generation(kernel) - before
            assert not target.diff(await target.read(), many)
            return taken, len(stages(plan))

    taken, parts = asyncio.run(run())
    assert taken == parts > 2
