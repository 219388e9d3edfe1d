"""Targets and states for tests of one nftables table in the kernel.

Here: a small state with a list, a large one, and the type of the fixture that opens targets. Not here: the fixtures
(tests/kernel/conftest.py), random states (nftables_states.py).
Invariant: every state here is of table TABLE, which only tests use.
"""

from ipaddress import ip_network
from typing import Protocol

from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import MEMBER, SRCNAT, Chain, Hook, Rule, Set, State, address_interval, interval
from tests.support.netns import NetNamespace
from tests.support.nftables_states import TABLE


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
