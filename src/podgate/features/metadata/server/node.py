"""node: the steps that make the node's rules, in their order around the proxy's listening.

Here: which step waits for which. Not here: what the rules say (to_nftables.py, to_iptables.py), the proxy itself.
Invariant: refusing comes first and waits for nothing; redirecting comes last, after the proxy answered itself.

Connections from before the rules: what is forwarded meets the refusals; what another agent's rules translated is
forgotten, once no rule translates it so again. The node's own connections are never touched.
"""

from collections.abc import Callable
from ipaddress import ip_interface
from typing import Any, Final, Generic, TypeVar

from podgate.features.metadata.intent import Backend, NodeRules
from podgate.features.metadata.server.trial import Trial, TrialTarget
from podgate.features.metadata.settings import LOCAL_ADDRESS
from podgate.features.metadata.to_conntrack import barred
from podgate.features.metadata.to_iptables import OWNERS, forged_rules, redirect_rules
from podgate.features.metadata.to_nftables import REDIRECT_TABLE, TABLE, redirect_table, refusals_table
from podgate.joints import Step
from podgate.linux.iptables import hinted_binary
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.targets.addresses.apply import AddressesTarget
from podgate.targets.addresses.state import Assigned, DeviceAddress
from podgate.targets.addresses.state import State as Addresses
from podgate.targets.conntrack.apply import BarredFollower
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.iptables.state import Binary
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.apply import NftablesTarget
from podgate.targets.nftables.state import State as Table

StatesT = TypeVar("StatesT")

PLACE: Final = DeviceAddress("lo", ip_interface(f"{LOCAL_ADDRESS}/32"))
FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
FIRST: Final = ("nftables/ip", "nftables/ip6")
BEFORE_LISTENING: Final = (*FIRST, "addresses")
"""What must be done before a listener opens."""
TRIAL: Final = "self-request"
REDIRECT: Final = "nftables/redirect"
BINARIES: Final[tuple[Binary, ...]] = ("nft", "legacy")
RESYNC: Final = 10.0
"""Seconds between two looks at rules of iptables-legacy."""


class NodeSteps(Frozen, Generic[StatesT], frozen=True):
    """The steps before the listeners', and those after it."""

    before: tuple[Step[StatesT, Any, Any], ...]
    after: tuple[Step[StatesT, Any, Any], ...]


def node_steps(
    rules_of: Callable[[StatesT], NodeRules],
    listeners: tuple[str, ...] = (),
    backend: Backend = "nftables",
) -> NodeSteps[StatesT]:
    """Give the steps.

    Args:
        rules_of: picks the node's rules out of the feature's states.
        listeners: the steps that open the listeners; empty in a process that does not listen, as ``plan`` and
            ``clean``, where no self-request is made.
        backend: what the redirect is written to. The other ones have steps too, which want nothing: the rules of the
            boot script, or of an earlier run, go once ours are in.
    """
    trial: Step[StatesT, Any, Any] = Step(
        TRIAL, TrialTarget(), lambda states: trial_of(rules_of(states)), Trial(), after=listeners, in_process=True
    )
    first = (TRIAL,) if listeners else ()
    binary: Binary = hinted_binary() or "nft"
    chosen = REDIRECT if backend == "nftables" else f"iptables-{binary}"
    names = sorted((REDIRECT, *(f"iptables-{binary}" for binary in BINARIES)), key=lambda name: name != chosen)
    redirects = tuple(
        _redirecting(rules_of, name, first if name == chosen else (chosen,), chosen=name == chosen) for name in names
    )
    before = (*(_refusing(rules_of, family, backend) for family in FAMILIES), _address(rules_of))
    before += (_against_forgery(rules_of, binary),) if backend == "iptables" else ()
    return NodeSteps(before, (trial, *redirects) if listeners else redirects)


def _redirecting(
    rules_of: Callable[[StatesT], NodeRules], name: str, after: tuple[str, ...], *, chosen: bool
) -> Step[StatesT, Any, Any]:
    def wanted(states: StatesT) -> NodeRules:
        return rules_of(states) if chosen else NodeRules()

    # After the redirect, before which another agent's rules do not come. It holds up nobody there either: to walk
    # through the kernel's table takes some 10 ms of processor time.
    forgetting = (BarredFollower[StatesT](lambda states: barred(rules_of(states))),) if chosen else ()
    if name == REDIRECT:
        empty = Table.absent("ip", REDIRECT_TABLE)
        target = NftablesTarget("ip", REDIRECT_TABLE)
        return Step(name, target, lambda states: redirect_table(wanted(states)), empty, after, forgetting)
    binary = next(each for each in BINARIES if name.endswith(each))
    chains = IptablesTarget("ip", binary, OWNERS, clears=not chosen)

    nothing = IptablesState("ip", binary)
    resync = _resync(binary if chosen else "nft")
    return Step(name, chains, lambda states: redirect_rules(wanted(states), binary), nothing, after, forgetting, resync)


def _against_forgery(rules_of: Callable[[StatesT], NodeRules], binary: Binary) -> Step[StatesT, Any, Any]:
    """Give the step that makes the boot script's rule where it is missing. The table of refusals drops the same."""
    target = IptablesTarget("ip", binary, OWNERS, table="mangle")
    nothing = IptablesState("ip", binary, table="mangle")

    def wanted(states: StatesT) -> IptablesState:
        return forged_rules(rules_of(states), binary)

    return Step(f"iptables-{binary}/mangle", target, wanted, nothing, essential=False, resync=_resync(binary))


def _resync(binary: Binary) -> Callable[[Any], float | None]:
    # The kernel tells nobody what iptables-legacy does.
    return lambda _states: RESYNC if binary == "legacy" else None


def _refusing(rules_of: Callable[[StatesT], NodeRules], family: Family, backend: Backend) -> Step[StatesT, Any, Any]:
    empty = Table.absent(family, TABLE)
    target = NftablesTarget(family, TABLE)
    return Step(f"nftables/{family}", target, lambda states: refusals_table(rules_of(states), family, backend), empty)


def _address(rules_of: Callable[[StatesT], NodeRules]) -> Step[StatesT, Any, Any]:
    target = AddressesTarget((PLACE,))
    return Step("addresses", target, lambda states: addresses_of(rules_of(states)), Addresses(), after=FIRST)


def addresses_of(rules: NodeRules) -> Addresses:
    """Give the address that redirected packets go to, where there are rules."""
    return Addresses() if rules.phase == "none" else Addresses(frozenset({Assigned(PLACE, "host")}))


def trial_of(rules: NodeRules) -> Trial:
    """Say where the proxy must answer before packets are redirected there."""
    ports = tuple(sorted({each.to_port for each in rules.redirects}))
    return Trial(rules.local_address, ports) if ports else Trial()
