"""Packets and rules: what a list of rules does to one packet, whichever tool wrote the rules.

Here: the packet, what may come of it, the node's own addresses, a small form of rules, and the tracer.
Not here: the languages of nft and iptables (targets/*), connection tracking: a trace is of the first packet of a flow.
Invariant: a trace names the rule, or the policy, that decided.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Final, Literal

from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress, IPNetwork

Field = Literal["saddr", "daddr"]
Direction = Literal["iifname", "oifname"]
PortField = Literal["sport", "dport"]
AddressType = Literal["local", "broadcast", "anycast", "multicast", "unicast"]
Fate = Literal["accept", "drop", "reject"]
Ranges = tuple[tuple[int, int], ...]
"""Ranges of integers (addresses, ports), both ends included."""

_JUMPS: Final = 16
"""How deep nf_tables lets chains call each other (NFT_JUMP_STACK_SIZE)."""

_LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


class Packet(Frozen, frozen=True):
    """The first packet of a flow. ``protocol`` is ``tcp``, ``udp``, ``sctp``, ``icmp`` …; interfaces may be unknown."""

    source: IPAddress
    destination: IPAddress
    protocol: str = "tcp"
    sport: int = 0
    dport: int = 0
    in_interface: str = ""
    out_interface: str = ""

    def address(self, field: Field) -> IPAddress:
        """Give its source or destination."""
        return self.source if field == "saddr" else self.destination

    def __str__(self) -> str:
        def end(address: IPAddress, port: int) -> str:
            text = f"[{address}]" if address.version == 6 and port else str(address)
            return f"{text}:{port}" if port else text

        return f"{self.protocol} {end(self.source, self.sport)} -> {end(self.destination, self.dport)}"


class Locality(Frozen, frozen=True):
    """What the node's routing tables say of an address: what rules ask as ``fib`` or ``addrtype``.

    Attributes:
        local: the node's own addresses; the loopback networks always are.
        broadcast: broadcast addresses of the node's networks; 255.255.255.255 always is one.
        anycast: subnet-router anycast addresses, where the node forwards IPv6.
    """

    local: frozenset[IPAddress] = frozenset()
    broadcast: frozenset[IPAddress] = frozenset()
    anycast: frozenset[IPAddress] = frozenset()

    def type_of(self, address: IPAddress) -> AddressType:
        """Give the type that the kernel's lookup gives, ``unicast`` for all other addresses."""
        if address in self.local or any(address in network for network in _LOOPBACK):
            return "local"
        if address in self.broadcast or str(address) == "255.255.255.255":
            return "broadcast"
        if address in self.anycast:
            return "anycast"
        return "multicast" if address.is_multicast else "unicast"


class Outcome(Frozen, frozen=True):
    """What may come of a packet that went to a Service, whichever back end wrote the rules.

    Attributes:
        verdict: ``reject`` drops it and tells its sender.
        endpoint: where it goes instead of its destination; None if that was not translated.
        masqueraded: whether it gets an address of the node.
        mark: the packet's mark at the end.
    """

    verdict: Fate
    endpoint: tuple[IPAddress, int] | None = None
    masqueraded: bool = False
    mark: int = 0


class AddressIn(Frozen, frozen=True, tag=True):
    """The address lies in one of the ranges, or in none when negated. ``version`` is 4 or 6."""

    field: Field
    version: int
    ranges: Ranges
    negated: bool = False


class AddressTypeIn(Frozen, frozen=True, tag=True):
    """The node's routing tables give the address one of these types."""

    field: Field
    types: frozenset[str]
    negated: bool = False


class ProtocolIn(Frozen, frozen=True, tag=True):
    """The transport protocol is one of these."""

    protocols: frozenset[str]
    negated: bool = False


class InterfaceIn(Frozen, frozen=True, tag=True):
    """The interface's name is one of these; a name that ends in ``*`` stands for all that begin so."""

    direction: Direction
    names: frozenset[str]
    negated: bool = False


class PortIn(Frozen, frozen=True, tag=True):
    """The packet is of one of the protocols and its port lies in one of the ranges, or in none when negated."""

    field: PortField
    ranges: Ranges
    negated: bool = False
    protocols: frozenset[str] = frozenset({"tcp", "udp", "sctp"})


class Chance(Frozen, frozen=True, tag=True):
    """A draw of luck: a number from 0 up to 1, drawn for this rule alone, is below the probability."""

    probability: float


Match = AddressIn | AddressTypeIn | ProtocolIn | InterfaceIn | PortIn | Chance


class Accept(Frozen, frozen=True, tag=True):
    """The packet passes this base chain."""


class Drop(Frozen, frozen=True, tag=True):
    """The packet goes nowhere."""


class Return(Frozen, frozen=True, tag=True):
    """Back to the rule after the jump; in a base chain, its policy."""


class Jump(Frozen, frozen=True, tag=True):
    """Go through another chain; with ``comes_back`` False (goto) its end is the end of this one too."""

    chain: str
    comes_back: bool = True


class Masquerade(Frozen, frozen=True, tag=True):
    """The packet leaves with an address of its outgoing interface, and a port of ``ports`` (first, last) if given."""

    ports: tuple[int, int] | None = None
    random: bool = False
    fully_random: bool = False


class Snat(Frozen, frozen=True, tag=True):
    """The packet leaves with this source."""

    address: IPAddress
    ports: tuple[int, int] | None = None
    fully_random: bool = False


class Dnat(Frozen, frozen=True, tag=True):
    """The packet goes to this destination instead."""

    address: IPAddress
    port: int | None = None


TerminalVerdict = Accept | Drop | Masquerade | Snat | Dnat
Verdict = TerminalVerdict | Return | Jump


class VerdictMap(Frozen, frozen=True, tag=True):
    """The verdict of the range that holds the address; without one, the next rule goes on."""

    field: Field
    version: int
    entries: tuple[tuple[int, int, Verdict], ...]


class PacketRule(Frozen, frozen=True):
    """A rule: all matches must hold; then the verdict, or with None only the next rule.

    ``text`` is as the tool reads it, ``comment`` says why it is there.
    """

    text: str
    matches: tuple[Match, ...] = ()
    verdict: Verdict | VerdictMap | None = None
    comment: str = ""


class PacketChain(Frozen, frozen=True):
    """Rules in order; ``policy`` is the verdict at the end of a base chain, None for a chain that is jumped to."""

    rules: tuple[PacketRule, ...]
    policy: TerminalVerdict | None = None


class TraceStep(Frozen, frozen=True):
    """A rule that matched, or with rule None the policy of a chain."""

    chain: str
    rule: PacketRule | None
    verdict: Verdict | None

    def __str__(self) -> str:
        if self.rule is None:
            return f"{self.chain}: policy"
        return f"{self.chain}: {self.rule.text}" + (f"  # {self.rule.comment}" if self.rule.comment else "")


class Trace(Frozen, frozen=True):
    """What happened to a packet: the verdict, and each rule that matched on the way; the last step decided."""

    verdict: TerminalVerdict
    steps: tuple[TraceStep, ...]

    @property
    def decided(self) -> TraceStep:
        """The rule or policy that decided."""
        return self.steps[-1]


def matches(match: Match, packet: Packet, locality: Locality, draw: float = 1.0) -> bool:
    """Say whether a packet matches; ``draw`` is the number drawn, should the match be one of chance."""
    match match:
        case Chance(probability):
            return draw < probability
        case AddressIn(field, version, ranges, negated):
            address = packet.address(field)
            if address.version != version:
                return False
            return _within(int(address), ranges) != negated
        case AddressTypeIn(field, types, negated):
            return (locality.type_of(packet.address(field)) in types) != negated
        case ProtocolIn(protocols, negated):
            return (packet.protocol in protocols) != negated
        case InterfaceIn(direction, names, negated):
            name = packet.in_interface if direction == "iifname" else packet.out_interface
            found = any(name.startswith(known[:-1]) if known.endswith("*") else name == known for known in names)
            return found != negated
        case PortIn(field, ranges, negated, protocols):
            if packet.protocol not in protocols:
                return False
            return _within(packet.sport if field == "sport" else packet.dport, ranges) != negated


def _within(number: int, ranges: Ranges) -> bool:
    return any(first <= number <= last for first, last in ranges)


def network_range(network: IPNetwork) -> tuple[int, int]:
    """Give a network as a range of integers."""
    return int(network.network_address), int(network.broadcast_address)


def trace(
    chains: Mapping[str, PacketChain], start: str, packet: Packet, locality: Locality, draws: Iterable[float] = ()
) -> Trace:
    """Follow a packet through the base chain ``start`` to the verdict.

    Args:
        chains: by name.
        start: the chain that the packet enters.
        packet: the first packet of a flow.
        locality: what the node's routing tables say of addresses.
        draws: what the rules of chance that it meets draw, in order; when there are no more, no such rule matches.

    Raises:
        ValueError: a rule jumps to a chain that is not there, chains call each other too deep, or ``start`` has no
            policy and no rule decided.
    """
    walk = _Walk(chains, packet, locality, draws)
    verdict = walk.through(start, 0)
    if verdict is None:
        policy = chains[start].policy
        if policy is None:
            raise ValueError(f"chain {start} has no policy, and no rule decided about {packet}")
        walk.steps.append(TraceStep(start, None, policy))
        verdict = policy
    return Trace(verdict, tuple(walk.steps))


class _Walk:
    """One packet on its way through chains."""

    def __init__(
        self, chains: Mapping[str, PacketChain], packet: Packet, locality: Locality, draws: Iterable[float]
    ) -> None:
        self._chains = chains
        self._packet = packet
        self._locality = locality
        self._draws = iter(draws)
        self.steps: list[TraceStep] = []

    def through(self, name: str, depth: int) -> TerminalVerdict | None:
        """Give the verdict of a chain, or None when the packet comes back from it."""
        if name not in self._chains:
            raise ValueError(f"a rule jumps to chain {name}, which is not there")
        if depth > _JUMPS:
            raise ValueError(f"chains call each other more than {_JUMPS} deep, last {name}: is there a loop?")
        for rule in self._chains[name].rules:
            if not all(self._holds(match) for match in rule.matches):
                continue
            verdict = rule.verdict
            if isinstance(verdict, VerdictMap):
                verdict = _looked_up(verdict, self._packet)
                if verdict is None:
                    continue
            self.steps.append(TraceStep(name, rule, verdict))
            match verdict:
                case None:
                    continue
                case Return():
                    return None
                case Jump(chain, comes_back):
                    inner = self.through(chain, depth + 1)
                    if inner is not None or not comes_back:
                        return inner
                case decided:
                    return decided
        return None

    def _holds(self, match: Match) -> bool:
        draw = next(self._draws, 1.0) if isinstance(match, Chance) else 1.0
        return matches(match, self._packet, self._locality, draw)


def _looked_up(found: VerdictMap, packet: Packet) -> Verdict | None:
    address = packet.address(found.field)
    if address.version != found.version:
        return None
    number = int(address)
    return next((verdict for first, last, verdict in found.entries if first <= number <= last), None)
