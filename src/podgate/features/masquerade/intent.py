"""intent: what is wanted on this node, free of any back end.

Here: the values. Not here: how they come about (compile.py), what they say about one packet (deciding.py), and what
they become (to_nftables.py).
Invariant: the order of decision is always never-list, own Pods, policies in their order, configured intervals, then
the fallback; a writer and deciding.py read the same value, so what is explained is what is written.
"""

from typing import Final, Literal

from podgate.features.masquerade.config import Config
from podgate.features.masquerade.ports import Ports
from podgate.features.masquerade.prefixes import Action, Entry, Interval, Span
from podgate.features.masquerade.selecting import PodSelection
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import Family, IPAddress, IPNetwork
from podgate.model.table import Table

Spans = Table[Span, Literal[True]]
"""Disjoint spans: the elements of a kernel set. Ranges are as few as there can be; addresses of Pods stay single."""

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


AGENT_NEVER: Final = NeverList(source_types=(), destination_types=("local",))
"""What ip-masq-agent never masquerades: the condition of its jump."""


class NodeFacts(Frozen, frozen=True):
    """What the kernel knows by itself and explain.py must be told: no writer reads it.

    Attributes:
        local: addresses of this node.
        broadcast: broadcast addresses of its subnets.
        routes: the interface behind each destination, longest prefix first; empty when no policy asks for it.
    """

    local: tuple[IPAddress, ...] = ()
    broadcast: tuple[IPAddress, ...] = ()
    routes: tuple[tuple[IPNetwork, str], ...] = ()


class Translation(Frozen, frozen=True):
    """What becomes of the source of a packet.

    Attributes:
        action: ``keep``, ``masquerade`` or ``snat``.
        address: the new source address of ``snat``, else None.
        ports: source ports of TCP, UDP and SCTP to choose from, by their number; empty: any. Other protocols get the
            same action without them.
    """

    action: Action
    address: IPAddress | None = None
    ports: Ports = ()

    @property
    def summary(self) -> str:
        """Say it of a packet, for people who read the rules."""
        if self.action == "snat":
            return f"leaves as {self.address}"
        return "keeps its address" if self.action == "keep" else "leaves with the node's address"


class PolicyIntent(Frozen, frozen=True):
    """One MasqueradePolicy in one family, resolved: it decides if source, destination and interface all match.

    Attributes:
        ref: the policy.
        priority: for people; the policies of a FamilyIntent are in their order already.
        translation: what it decides; a policy whose SNAT address this node lacks says masquerade here.
        sources: source addresses; None: any that the never-list lets through. Empty: nothing here, for now.
        pods: the selection whose Pods' addresses the sources are; None: the sources are written ranges, or any. With it
            each source is a single address.
        destinations: destination addresses, disjoint; None: any. Exceptions are left out already.
        interfaces: outgoing interfaces; a name that ends in ``*`` stands for all that begin so; empty: any.
        cidrs: the written source ranges of both kinds of policy, for explain; empty: none.
        source_intervals: ``sources`` with the entry behind each interval (a Pod's address, or a written CIDR).
        destination_intervals: ``destinations`` with the entry behind each interval.
    """

    ref: ObjectRef
    priority: int
    translation: Translation
    sources: Spans | None = None
    pods: PodSelection | None = None
    destinations: Spans | None = None
    interfaces: tuple[str, ...] = ()
    cidrs: tuple[Entry, ...] = ()
    source_intervals: tuple[Interval, ...] = ()
    destination_intervals: tuple[Interval, ...] = ()


class FamilyIntent(Frozen, frozen=True):
    """What is wanted in one family.

    Attributes:
        own_pods: addresses of this node's own Pods: never masqueraded as destinations.
        policies: in the order in which they are asked; the first that matches decides.
        keep: destinations that keep the Pod's address, unless a policy decided.
        fallback: what happens to everything else; ``keep`` only where masquerading would be unsafe.
        fallback_rule: the words that explain gives for it.
        own_intervals: ``own_pods`` with the entry behind each interval, for explain.
        intervals: the configured list resolved, with the entry behind each interval, for explain and check.
        facts: for explain.
    """

    family: Family
    never: NeverList = NeverList()
    own_pods: Spans = Spans()
    policies: tuple[PolicyIntent, ...] = ()
    keep: Spans = Spans()
    fallback: Translation = Translation("masquerade")
    fallback_rule: str = "everything else"
    own_intervals: tuple[Interval, ...] = ()
    intervals: tuple[Interval, ...] = ()
    facts: NodeFacts = NodeFacts()


class Intent(Frozen, frozen=True):
    """What is wanted on this node.

    Attributes:
        families: the families that are on; one that is off is left to itself.
        node_name: this node.
        random_fully: choose source ports at random, in every translation.
        config: the configuration in force.
        in_force: where it came from.
        stands_in: whether it is the built-in list only because what was written is bad and no earlier one is known.
        digest: twelve hexadecimal digits of it, for metrics and logs.
        ports: source ports of every translation that no policy gives others, as settings say.
    """

    families: tuple[FamilyIntent, ...] = ()
    node_name: str = ""
    random_fully: bool = True
    config: Config = Config()
    in_force: InForce = "default"
    stands_in: bool = False
    digest: str = ""
    ports: Ports = ()

    def of(self, family: Family) -> FamilyIntent | None:
        """Give one family's part; None when it is off."""
        return next((part for part in self.families if part.family == family), None)

    @property
    def resync_seconds(self) -> float:
        """Seconds between two drift checks."""
        return self.config.resync_interval / 1e9


STAND_IN: Final = "the built-in list, since the configuration was bad and no earlier one known"
"""What back ends write where ``Intent.stands_in``, so that no later start takes the list for the last good one."""

NO_IPV6_RANGE: Final = "no IPv6 range of the cluster is known"
"""The rule that explain names while IPv6 is on and nothing tells which IPv6 addresses are the cluster's."""

IPV6_OFF: Final = "IPv6 is off"
"""The rule that explain names for a family that is not on."""
