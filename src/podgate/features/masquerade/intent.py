"""intent: what is wanted on this node, free of any back end.

Here: the values. Not here: how they come about (compile.py) and what they become (to_nftables.py).
Invariant: the order of decision is always never-list, configured intervals, then masquerade; a writer and explain.py
read the same value, so what is explained is what is written.
"""

from typing import Final, Literal

from podgate.features.masquerade.config import Config
from podgate.features.masquerade.prefixes import Action, Interval, Span
from podgate.model.frozen import Frozen
from podgate.model.machine import Family, IPAddress
from podgate.model.table import Table

Spans = Table[Span, Action]
"""Disjoint spans, as few as there can be, each with its action: the elements of a kernel set."""

InForce = Literal["file", "directory", "ConfigMap", "kept", "default"]
"""Where the configuration in force came from; ``kept`` is the last good one, used because the present one is bad."""


class NeverList(Frozen, frozen=True):
    """What is never masqueraded, whatever is configured, by the kernel's types of addresses (``fib … type``).

    Attributes:
        source_types: packets of the node's own sockets, whichever of its addresses they are bound to.
        destination_types: this node itself, and addresses that are nobody's alone.
    """

    source_types: tuple[str, ...] = ("local",)
    destination_types: tuple[str, ...] = ("local", "broadcast", "anycast", "multicast")


class NodeFacts(Frozen, frozen=True):
    """What the kernel knows by itself and explain.py must be told: no writer reads it.

    Attributes:
        local: addresses of this node.
        broadcast: broadcast addresses of its subnets.
    """

    local: tuple[IPAddress, ...] = ()
    broadcast: tuple[IPAddress, ...] = ()


class FamilyIntent(Frozen, frozen=True):
    """What is wanted in one family.

    Attributes:
        own_pods: addresses of this node's own Pods: never masqueraded as destinations.
        keep: destinations that keep the Pod's address.
        own_intervals: ``own_pods`` with the entry behind each interval, for explain.
        intervals: the configured list resolved, with the entry behind each interval, for explain and check.
        facts: for explain.
    """

    family: Family
    never: NeverList = NeverList()
    own_pods: Spans = Spans()
    keep: Spans = Spans()
    own_intervals: tuple[Interval, ...] = ()
    intervals: tuple[Interval, ...] = ()
    facts: NodeFacts = NodeFacts()


class Intent(Frozen, frozen=True):
    """What is wanted on this node.

    Attributes:
        families: the families that are on; one that is off is left to itself.
        node_name: this node.
        random_fully: choose source ports at random.
        config: the configuration in force.
        in_force: where it came from.
        digest: twelve hexadecimal digits of it, for metrics and logs.
    """

    families: tuple[FamilyIntent, ...] = ()
    node_name: str = ""
    random_fully: bool = True
    config: Config = Config()
    in_force: InForce = "default"
    digest: str = ""

    def of(self, family: Family) -> FamilyIntent | None:
        """Give one family's part; None when it is off."""
        return next((part for part in self.families if part.family == family), None)

    @property
    def resync_seconds(self) -> float:
        """Seconds between two drift checks."""
        return self.config.resync_interval / 1e9


IPV6_OFF: Final = "IPv6 is off"
"""The rule that explain names for a family that is not on."""
