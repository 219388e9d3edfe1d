"""backends: one intent as the states of the feature: what the chosen back end holds in each family.

Here: the feature's states, the names of its steps. Not here: what a writer writes (to_nftables.py).
Invariant: a family that is off, or a back end that is not chosen, has a state in which nothing is ours.
"""

from typing import Final

from podgate.features.services.intent import FAMILIES, Intent
from podgate.features.services.settings import Settings
from podgate.features.services.to_nftables import Writer
from podgate.model.frozen import Frozen
from podgate.model.machine import Family
from podgate.targets.nftables.state import State as NftablesState

NFTABLES: Final[dict[Family, str]] = {"ip": "nftables/ip", "ip6": "nftables/ip6"}
"""The names of the steps."""


class States(Frozen, frozen=True):
    """What services wants.

    Attributes:
        settings: the options.
        intent: what all of it is made of.
        ip: our nftables table.
        ip6: the same for IPv6.
    """

    settings: Settings
    intent: Intent
    ip: NftablesState
    ip6: NftablesState

    def nftables_of(self, family: Family) -> NftablesState:
        """Give one family's table."""
        return self.ip if family == "ip" else self.ip6


class StatesWriter:
    """Writes the states; remembers what its writers do."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._nftables = {family: Writer(family) for family in FAMILIES}

    def __call__(self, intent: Intent) -> States:
        """Give the states."""
        ip, ip6 = (self._nftables[family](intent.of(family), intent.proxy_name) for family in FAMILIES)
        return States(self._settings, intent, ip, ip6)
