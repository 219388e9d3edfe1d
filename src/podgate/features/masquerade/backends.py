"""backends: one intent as the states of all back ends: what the chosen one holds, and that the others hold nothing.

Here: the back ends, the names and the order of their steps, the feature's states. Not here: which one is chosen, which
the machine is asked (feature.py); what a writer writes (to_nftables.py, to_iptables.py).
Invariant: a step of a back end that is not chosen comes after the chosen one's of its family, so that a take-over has
no gap; no step waits for one of the other family.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_iptables import KEPT_CHAINS, record_chains, refusals
from podgate.features.masquerade.to_iptables import Writer as IptablesWriter
from podgate.features.masquerade.to_nftables import TABLE
from podgate.features.masquerade.to_nftables import Writer as NftablesWriter
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.targets.iptables.state import Binary
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.state import State as NftablesState

Backend = Literal["nftables", "iptables-nft", "iptables-legacy"]

BACKENDS: Final[tuple[Backend, ...]] = ("nftables", "iptables-nft", "iptables-legacy")
FAMILIES: Final[tuple[Family, ...]] = ("ip", "ip6")
BINARIES: Final[dict[Backend, Binary]] = {"iptables-nft": "nft", "iptables-legacy": "legacy"}


class Choice(Frozen, frozen=True):
    """The back end of this process, and the version of its iptables (empty: not known, or not needed)."""

    backend: Backend = "nftables"
    version: str = ""


class States(Frozen, frozen=True):
    """What masquerade wants.

    Attributes:
        intent: what all of it is made of.
        ip: our nftables table; absent where iptables is chosen.
        ip6: the same for IPv6.
        iptables: what iptables holds, by the step's name; only of the back end that is chosen.
    """

    intent: Intent
    ip: NftablesState
    ip6: NftablesState
    iptables: Mapping[str, IptablesState] = {}

    def nftables_of(self, family: Family) -> NftablesState:
        """Give one family's table."""
        return self.ip if family == "ip" else self.ip6

    def iptables_of(self, backend: Backend, family: Family) -> IptablesState:
        """Give one family's chains in one of the two programs; none in the one that is not chosen."""
        return self.iptables.get(step_name(backend, family)) or IptablesState(family, BINARIES[backend])


def step_name(backend: Backend, family: Family) -> str:
    """Name a step."""
    return f"{backend}/{family}"


def steps_before(choice: Choice, backend: Backend, family: Family) -> tuple[str, ...]:
    """Name the steps that must be done before a step."""
    return () if backend == choice.backend else (step_name(choice.backend, family),)


def in_order(choice: Choice) -> tuple[Backend, ...]:
    """Give the back ends, the chosen one first."""
    return (choice.backend, *(each for each in BACKENDS if each != choice.backend))


class StatesWriter:
    """Writes the states of all back ends; remembers what its writers do."""

    def __init__(self, choice: Choice, settings: Settings) -> None:
        self._choice = choice
        self._nftables = {family: NftablesWriter(family) for family in FAMILIES}
        binary = BINARIES.get(choice.backend)
        style: Literal["agent", "podgate"] = "agent" if settings.rules == "ip-masq-agent" else "podgate"
        self._iptables = {
            family: IptablesWriter(family, binary, settings.masq_chain, style) for family in FAMILIES if binary
        }

    def __call__(self, intent: Intent) -> States:
        """Give the states."""
        if not self._iptables:
            return States(intent, self._nftables["ip"](intent), self._nftables["ip6"](intent))
        absent = {family: NftablesState.absent(family, TABLE) for family in FAMILIES}
        written = {
            step_name(self._choice.backend, family): writer(intent, version=self._choice.version)
            for family, writer in self._iptables.items()
        }
        return States(intent, absent["ip"], absent["ip6"], written)


class BackendCompiler:
    """Compiles for the chosen back end, and records the iptables chains for the next run."""

    def __init__(self, settings: Settings, choice: Choice) -> None:
        more = () if choice.backend == "nftables" else (refusals,)
        self._compile = Compiler(settings, StatesWriter(choice, settings), *more)

    def __call__(self, inputs: Inputs) -> Compiled[States]:
        """Compile the newest inputs."""
        compiled = self._compile(inputs)
        chains = compiled.states.iptables
        if not chains and KEPT_CHAINS not in inputs.kept:
            return compiled
        keep = {**compiled.keep, KEPT_CHAINS: record_chains(chains.values())}
        return msgspec.structs.replace(compiled, keep=keep)
