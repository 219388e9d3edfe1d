"""backends: one intent as the states of all back ends: what the chosen one holds, and that the others hold nothing.

Here: the back ends, the names and the order of their steps, the feature's states. Not here: which of the two iptables
programs a node uses (feature.py), what a writer writes (to_nftables.py, to_iptables.py).
Invariant: a step of a back end that is not chosen comes after the chosen one's last of its family, so that a take-over
has no gap; no step waits for one of the other family. A family that is off has states in which nothing is ours.
"""

from collections.abc import Mapping
from typing import Final, Literal

from podgate.features.services.intent import FAMILIES, Intent
from podgate.features.services.iptables_names import TABLES
from podgate.features.services.settings import Settings
from podgate.features.services.to_iptables import Writer as IptablesWriter
from podgate.features.services.to_nftables import Writer, table_name
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.model.remembering import Remembered
from podgate.targets.iptables.state import Binary, TableName
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.iptables.words import knows_random_fully
from podgate.targets.nftables.state import State as NftablesState

NFTABLES: Final[dict[Family, str]] = {"ip": "nftables/ip", "ip6": "nftables/ip6"}
"""The names of the steps."""

BINARIES: Final[tuple[Binary, ...]] = ("nft", "legacy")


class Choice(Frozen, frozen=True):
    """The back end of this process: nftables, or one of the two iptables programs and its version (empty: unknown)."""

    backend: Literal["nftables", "nft", "legacy"] = "nftables"
    version: str = ""


NFTABLES_CHOICE: Final = Choice()


class States(Frozen, frozen=True):
    """What services wants.

    Attributes:
        settings: the options.
        intent: what all of it is made of.
        ip: our nftables table; absent where iptables is chosen.
        ip6: the same for IPv6.
        iptables: what iptables holds, by the step's name; only of the program that is chosen.
    """

    settings: Settings
    intent: Intent
    ip: NftablesState
    ip6: NftablesState
    iptables: Mapping[str, IptablesState] = {}

    def nftables_of(self, family: Family) -> NftablesState:
        """Give one family's table."""
        return self.ip if family == "ip" else self.ip6

    def iptables_of(self, binary: Binary, family: Family, table: TableName) -> IptablesState:
        """Give one table of one of the two programs; nothing in the one that is not chosen."""
        return self.iptables.get(iptables_step(binary, family, table)) or IptablesState(family, binary, table=table)


def iptables_step(binary: Binary, family: Family, table: TableName) -> str:
    """Name a step of iptables."""
    return f"iptables-{binary}/{family}/{table}"


def last_step(choice: Choice, family: Family) -> str:
    """Name the step after which all of a family is in force."""
    return NFTABLES[family] if choice.backend == "nftables" else iptables_step(choice.backend, family, TABLES[-1])


def steps_before(choice: Choice, binary: Binary, family: Family, table: TableName) -> tuple[str, ...]:
    """Name the steps that must be done before one of iptables."""
    if binary != choice.backend:
        return (last_step(choice, family),)
    number = TABLES.index(table)
    return (iptables_step(binary, family, TABLES[number - 1]),) if number else ()


class StatesWriter:
    """Writes the states; remembers what its writers do."""

    def __init__(self, settings: Settings, choice: Choice = NFTABLES_CHOICE) -> None:
        self._settings = settings
        self._choice = choice
        # A change of one family leaves the other's state the same value, which then costs nothing.
        self._nftables = {family: Remembered(Writer(family).__call__) for family in FAMILIES}
        random_fully = knows_random_fully(choice.version)
        liberal = settings.conntrack_tcp_be_liberal
        self._iptables = {
            (family, binary): IptablesWriter(family, binary, random_fully=random_fully, liberal=liberal)
            for family in FAMILIES
            for binary in BINARIES
            if binary == choice.backend
        }

    def __call__(self, intent: Intent) -> States:
        """Give the states."""
        if self._choice.backend == "nftables":
            ip, ip6 = (self._nftables[family](intent.of(family), intent.proxy_name) for family in FAMILIES)
            return States(self._settings, intent, ip, ip6)
        ip, ip6 = (NftablesState.absent(family, table_name(intent.proxy_name)) for family in FAMILIES)
        written = {
            iptables_step(binary, family, table): state
            for (family, binary), writer in self._iptables.items()
            for table, state in writer(intent).items()
        }
        return States(self._settings, intent, ip, ip6, written)
