"""rules: the steps that write rules, by back end, family and table.

Here: which step waits for which, which of the two iptables programs this node uses. Not here: what is written
(to_nftables.py, to_iptables.py), kube-proxy's nftables tables (predecessor.py).
Invariant: what takes something away comes after what is in force instead, and nothing waits for it. No rule tells what
was in force before a start, so each step reads its own once.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from podgate.features.services.backends import (
    BINARIES,
    NFTABLES,
    Choice,
    States,
    iptables_step,
    last_step,
    steps_before,
)
from podgate.features.services.intent import FAMILIES, PackedDestination
from podgate.features.services.iptables_names import NAMES, TABLES
from podgate.features.services.led_on import led_on_by_chains, led_on_by_table
from podgate.features.services.server.leftovers import NOTHING, OURS_ALONE, Leftovers, LeftoversTarget
from podgate.features.services.server.passes import Passes
from podgate.features.services.settings import Settings
from podgate.features.services.to_conntrack import judge_of
from podgate.features.services.to_nftables import table_name
from podgate.joints import Step
from podgate.linux.iptables import hinted_binary
from podgate.linux.tools import tool_version
from podgate.model.machine import Family
from podgate.targets.conntrack.state import FlowJudge
from podgate.targets.conntrack.sweep import Own, UdpSweep
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.state import Binary, TableName
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State as NftablesState

S = TypeVar("S")

_LedOn = Callable[[S], frozenset[PackedDestination]]
"""Says where UDP flows are sent to that rules which were read back lead on."""

_SECONDS: Final = 600.0
"""How long iptables may take: it needs minutes for tens of thousands of Services."""

_NOTIFICATIONS: Final = 64 << 20
"""Bytes of notifications that the kernel keeps for us: what iptables-nft tells of some 5,000 Services at once. When
some are lost all is read again, which takes iptables-nft as long as a load."""


def choose_backend(wanted: str) -> Choice:
    """Say which back end ``--backend`` means on this node: of the two iptables programs that of its kubelet."""
    if wanted == "nftables":
        return Choice()
    binary = hinted_binary() or "nft"
    return Choice(binary, tool_version(f"iptables-{binary}") or tool_version("iptables") or "")


def rule_steps(
    settings: Settings,
    choice: Choice,
    at_work: Callable[[], Awaitable[str]],
    passes: Passes,
    cleaned: Leftovers = OURS_ALONE,
) -> Iterator[Step[States, Any, Any]]:
    """Give the steps.

    A back end that is not chosen has steps too, which want nothing. A proxy with a name of its own has none of
    iptables, whose chains are the default proxy's.

    Args:
        settings: the options.
        choice: the back end.
        at_work: says why kube-proxy may be at work; empty when it is not.
        passes: told what passes over rules do.
        cleaned: what ``clean`` wants of chains that may be kube-proxy's.
    """
    yield from (_nftables(choice, family, table_name(settings.service_proxy_name), passes) for family in FAMILIES)
    if settings.service_proxy_name:
        return
    for binary in BINARIES:
        for family in FAMILIES:
            if binary == choice.backend:
                yield from (_iptables(choice, binary, family, table, passes) for table in TABLES)
            else:
                # First nothing is translated any more.
                yield from (
                    _leftovers(choice, binary, family, table, at_work, cleaned=cleaned) for table in reversed(TABLES)
                )


def _nftables(choice: Choice, family: Family, table: str, passes: Passes) -> Step[States, Any, Any]:
    chosen = choice.backend == "nftables"
    return Step(
        name=NFTABLES[family],
        target=NftablesTarget(family, table, uncleaned=partial(passes.failed, family, whole=False))
        if chosen
        else NftablesTarget(family, table, buffer_bytes=_NOTIFICATIONS),
        want=lambda states: states.nftables_of(family),
        empty=NftablesState.absent(family, table),
        after=() if chosen else (last_step(choice, family),),
        followers=_followers(family, led_on_by_table, chosen=chosen),
        gap=lambda states: states.settings.min_sync_period if chosen else 0.0,
        essential=chosen,
        recovers=False,
    )


def _iptables(
    choice: Choice, binary: Binary, family: Family, table: TableName, passes: Passes
) -> Step[States, Any, Any]:
    name = iptables_step(binary, family, table)
    return Step(
        name=name,
        # In table mangle there is nothing but the canary.
        target=IptablesTarget(
            family,
            binary,
            (),
            table=table,
            names=NAMES[table],
            tells=table != "mangle",
            seconds=_SECONDS,
            buffer_bytes=_NOTIFICATIONS,
            wrote=partial(passes.wrote, family, table),
        ),
        want=lambda states: states.iptables_of(binary, family, table),
        empty=IptablesState(family, binary, table=table),
        after=steps_before(choice, binary, family, table),
        followers=_followers(family, led_on_by_chains, chosen=True) if name == last_step(choice, family) else (),
        # The kernel tells nobody what iptables-legacy does, and nobody listens for the canary's sake alone.
        resync=lambda states: states.settings.sync_period if binary == "legacy" or table == "mangle" else None,
        gap=lambda states: states.settings.min_sync_period,
        recovers=False,
        committed=lambda _generation, _seconds, _whole: passes.committed(family, table),
        failed=lambda whole: passes.failed(family, whole=whole),
    )


def _leftovers(
    choice: Choice,
    binary: Binary,
    family: Family,
    table: TableName,
    at_work: Callable[[], Awaitable[str]],
    *,
    cleaned: Leftovers,
) -> Step[States, Any, Any]:
    chains = IptablesTarget(
        family, binary, (), table=table, names=NAMES[table], clears=True, tells=False, seconds=_SECONDS
    )
    return Step(
        name=iptables_step(binary, family, table),
        target=LeftoversTarget(chains, at_work),
        want=lambda _states: NOTHING,
        empty=cleaned,
        after=steps_before(choice, binary, family, table),
        followers=_followers(family, _led_on_by_leftovers, chosen=False) if table == "nat" else (),
        resync=lambda states: states.settings.sync_period,
        essential=False,
        recovers=False,
    )


def _led_on_by_leftovers(left: Leftovers) -> frozenset[PackedDestination]:
    return frozenset() if left.held is None else led_on_by_chains(left.held)


def _followers(family: Family, led_on: _LedOn[S], *, chosen: bool) -> tuple[UdpSweep[States, S], ...]:
    """Follow what a step does: of a back end that is not chosen, only what its rules led on until they went."""

    def judge(before: States | None, after: States, found: S | None, own: Own) -> FlowJudge | None:
        intent, destinations = after.intent.of(family), None if found is None else led_on(found)
        if intent is None or not (chosen or destinations):
            return None
        had = None if before is None else before.intent.of(family)
        return judge_of(had, intent, own, after.intent.theirs, destinations)

    return (UdpSweep(family, judge),)
