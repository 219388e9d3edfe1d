"""Targets and states for tests of one nftables table in the kernel.

Here: a small state with a list, a large one, the type of the fixture that opens targets, and watching one. Not here:
the fixtures (tests/kernel/conftest.py), random states (nftables_states.py).
Invariant: every state here is of table TABLE, which only tests use.
"""

from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Protocol

from podgate.joints import Drifted, Signal
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import MEMBER, SRCNAT, Chain, Hook, Rule, Set, State, address_interval, interval
from tests.support.netns import NetNamespace
from tests.support.nftables_states import TABLE
from tests.support.poll import poll_async
from tests.support.signals import signals_of


class OpenTarget(Protocol):
    def __call__(
        self, namespace: NetNamespace, family: Family = "ip", program: str = "nft", buffer_bytes: int = 1 << 20
    ) -> NftablesTarget: ...


def keeping(*networks: str, rules: tuple[Rule, ...] = ()) -> State:
    return State(
        "ip",
        TABLE,
        comment="a legend",
        sets=(Set("keep", ("ipv4_addr",), ("interval",), comment="ranges that see the Pod's address"),),
        chains=(
            Chain(
                "postrouting",
                (
                    Rule("counter fib saddr type local return", "own sockets"),
                    Rule("ip daddr @keep return", "listed"),
                    *rules,
                    Rule("masquerade fully-random", "all others"),
                ),
                Hook("nat", "postrouting", SRCNAT),
            ),
        ),
        elements={"keep": Table.of((interval(ip_network(network)), MEMBER) for network in networks)},
    )


async def load_state(target: NftablesTarget, want: State) -> None:
    await target.apply(target.diff(await target.read(), want))


def many(count: int, start: int = 1 << 24) -> State:
    state = keeping()
    keys = (address_interval("ip", start + 8 * n, start + 8 * n + 3) for n in range(count))
    return State(
        "ip", TABLE, chains=state.chains, sets=state.sets, elements={"keep": Table.of((key, MEMBER) for key in keys)}
    )


async def noticed(
    target: NftablesTarget, start: State, act: Callable[[NftablesTarget, list[Signal]], Awaitable[object]]
) -> list[Signal]:
    """Watch while something happens; gives the signals, which ``act`` sees as they come."""
    await load_state(target, start)
    async with signals_of(target) as seen:
        await act(target, seen)
    return seen


async def settled(namespace: NetNamespace, seen: list[Signal], count: int) -> None:
    """Add a chain by hand and wait for that to be signal number ``count``: all that came before has been looked at."""
    namespace.run("nft", "add", "chain", "ip", TABLE, "the-end")
    await poll_async(lambda: len(seen) >= count)
    assert seen[-1] == Drifted("chain the-end added or changed")
