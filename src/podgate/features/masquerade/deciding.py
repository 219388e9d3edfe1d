"""deciding: what the intent says about one packet.

Here: ``decide``, the one reading of the intent that explain.py and conntrack share. Not here: words for people.
Invariant: walks the intent in the order in which writers write it, so that the answer is what the kernel does.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

from podgate.features.masquerade.config import LINK_LOCAL
from podgate.features.masquerade.intent import IPV6_OFF, FamilyIntent, Intent, NodeFacts, PolicyIntent, Translation
from podgate.features.masquerade.prefixes import BUILT_IN, Origin, Span, family_of, find
from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")
_ALWAYS_BROADCAST: Final = frozenset({IPv4Address("255.255.255.255"), IPv4Address("0.0.0.0")})  # noqa: S104 - no socket
"""What the kernel calls broadcast whatever its subnets are (``__inet_dev_addr_type``)."""

_KEEP: Final = Translation("keep")
_WITH_PORTS: Final = frozenset({"tcp", "udp", "sctp"})


class Decision(Frozen, frozen=True):
    """What happens to the source of a packet, and why.

    Attributes:
        translation: what happens; its ports are left out for a protocol that has none.
        rule: the CIDR that decides, or words for a rule without one, as ``multicast``.
        origin: where that rule was written.
        undecided: policies that decide only for some outgoing interfaces, when it is not known which one the packet
            takes; the decision is then that of the packets for which none of them matches.
    """

    translation: Translation
    rule: str
    origin: Origin = BUILT_IN
    undecided: tuple[PolicyIntent, ...] = ()


def decide(
    intent: Intent,
    source: IPAddress | None,
    destination: IPAddress,
    protocol: str = "tcp",
    interface: str | None = None,
) -> Decision:
    """Say what happens to the source of a packet that this node forwards or sends.

    Args:
        intent: what is wanted.
        source: the sender, of the destination's family; None for a Pod of this node that no policy names.
        destination: after a Service's address was translated.
        protocol: ``tcp``, ``udp``, ``sctp``, ``icmp`` …: only the first three have ports.
        interface: the outgoing interface; None to take it from this node's main routes.
    """
    part = intent.of(family_of(destination))
    if part is None:
        return Decision(_KEEP, IPV6_OFF)
    if source is not None and is_local(part.facts, source):
        return Decision(_KEEP, "sent by this node itself")
    found = _never(part, destination)
    if found is not None:
        return found
    if interface is None:
        interface = route_to(part.facts, destination)
    undecided: list[PolicyIntent] = []
    for policy in part.policies:
        rule = _matches(policy, source, destination)
        if rule is None:
            continue
        if policy.interfaces and interface is None:
            undecided.append(policy)
        elif leaves_through(policy.interfaces, interface):
            return _decision(policy.translation, *rule, protocol, undecided)
    return _decision(*_configured(intent, part, destination), protocol, undecided)


def _decision(
    translation: Translation, rule: str, origin: Origin, protocol: str, undecided: list[PolicyIntent]
) -> Decision:
    if translation.ports and protocol not in _WITH_PORTS:
        translation = Translation(translation.action, translation.address)
    return Decision(translation, rule, origin, tuple(undecided))


def is_local(facts: NodeFacts, address: IPAddress) -> bool:
    """Whether an address is this node's own."""
    loopback = address in _LOOPBACK if isinstance(address, IPv4Address) else address == IPv6Address("::1")
    return loopback or address in facts.local


def _never(part: FamilyIntent, address: IPAddress) -> Decision | None:
    if address.is_multicast:
        return Decision(_KEEP, "multicast")
    if address in _ALWAYS_BROADCAST or address in part.facts.broadcast:
        return Decision(_KEEP, "broadcast")
    if is_local(part.facts, address):
        return Decision(_KEEP, "an address of this node")
    own = find(part.own_intervals, int(address))
    return None if own is None else Decision(_KEEP, str(own.entry.network), own.entry.origin)


def _matches(policy: PolicyIntent, source: IPAddress | None, destination: IPAddress) -> tuple[str, Origin] | None:
    """Give the rule by which a policy matches addresses: its destination, else its source, else itself."""
    by_source = None
    if policy.sources is not None:
        by_source = find(policy.source_intervals, int(source)) if source is not None else None
        if by_source is None:
            return None
    if policy.destinations is not None:
        found = find(policy.destination_intervals, int(destination))
        return None if found is None else (str(found.entry.network), found.entry.origin)
    if by_source is not None and not policy.from_pods:
        return f"from {by_source.entry.network}", by_source.entry.origin
    return "every destination", Origin(policy.ref)


def leaves_through(interfaces: tuple[str, ...], interface: str | None) -> bool:
    """Whether an outgoing interface is one of a policy's; a policy without any takes all."""
    return not interfaces or any(
        interface is not None and (interface.startswith(name[:-1]) if name.endswith("*") else interface == name)
        for name in interfaces
    )


def route_to(facts: NodeFacts, destination: IPAddress) -> str | None:
    """Give the interface behind a destination, by the main routes; None when they do not tell."""
    number = int(destination)
    return next((name for span, name in facts.routes if _holds(span, number)), None)


def _holds(span: Span, number: int) -> bool:
    return span.first <= number <= span.last


def _configured(intent: Intent, part: FamilyIntent, address: IPAddress) -> tuple[Translation, str, Origin]:
    found = find(part.intervals, int(address))
    if found is not None and found.entry.action == "keep":
        return _KEEP, str(found.entry.network), found.entry.origin
    if found is not None:
        return part.fallback, str(found.entry.network), found.entry.origin
    key = "masqLinkLocal" if part.family == "ip" else "masqLinkLocalIPv6"
    if address in LINK_LOCAL[part.family] and key in intent.config.given and part.fallback.action != "keep":
        return part.fallback, key, intent.config.given[key]
    return part.fallback, part.fallback_rule, BUILT_IN
