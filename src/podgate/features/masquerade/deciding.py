"""deciding: what the intent says about one packet.

Here: ``decide``, the one reading of the intent that explain.py and conntrack share. Not here: words for people.
Invariant: walks the intent in the order in which writers write it, so that the answer is what the kernel does.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

from podgate.features.masquerade.config import LINK_LOCAL
from podgate.features.masquerade.intent import IPV6_OFF, FamilyIntent, Intent, NodeFacts, PolicyIntent, Translation
from podgate.features.masquerade.prefixes import BUILT_IN, RuleOrigin, family_of, find
from podgate.features.masquerade.selecting import Labelled
from podgate.model.frozen import Frozen
from podgate.model.machine import IPAddress

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")
_ALWAYS_BROADCAST: Final = frozenset({IPv4Address("255.255.255.255"), IPv4Address("0.0.0.0")})  # noqa: S104 - no socket
"""What the kernel calls broadcast whatever its subnets are (``__inet_dev_addr_type``)."""

_KEEP: Final = Translation("keep")
EVERY_DESTINATION: Final = "every destination"
_PERHAPS: Final = ("perhaps", BUILT_IN)
"""A sender without an address may be in a policy's ranges or not."""
_WITH_PORTS: Final = frozenset({"tcp", "udp", "sctp"})


class Sender(Frozen, frozen=True):
    """Who sends, as far as it is known.

    Attributes:
        address: the source address; None for a Pod of this node of which only the labels are known.
        pod: how selectors see the Pod when the address is not known.
    """

    address: IPAddress | None = None
    pod: Labelled = Labelled()


class Decision(Frozen, frozen=True):
    """What happens to the source of a packet, and why.

    Attributes:
        translation: what happens; its ports are left out for a protocol that has none.
        rule: the CIDR that decides, or words for a rule without one, as ``multicast``.
        origin: where that rule was written.
        undecided: policies before this rule that match as far as is known, and would need to know the outgoing
            interface or the source address; the decision is that for packets which none of them matches.
    """

    translation: Translation
    rule: str
    origin: RuleOrigin = BUILT_IN
    undecided: tuple[PolicyIntent, ...] = ()


def decide(
    intent: Intent,
    source: IPAddress | Sender,
    destination: IPAddress,
    protocol: str = "tcp",
    interface: str | None = None,
) -> Decision:
    """Say what happens to the source of a packet that this node forwards or sends.

    Args:
        intent: what is wanted.
        source: the sender's address, of the destination's family, or what else is known of it.
        destination: after a Service's address was translated.
        protocol: ``tcp``, ``udp``, ``sctp``, ``icmp`` …: only the first three have ports.
        interface: the outgoing interface; None to take it from this node's main routes.
    """
    part = intent.of(family_of(destination))
    if part is None:
        return Decision(_KEEP, IPV6_OFF)
    sender = source if isinstance(source, Sender) else Sender(source)
    if "local" in part.never.source_types and sender.address is not None and is_local(part.facts, sender.address):
        return Decision(_KEEP, "sent by this node itself")
    found = _never(part, destination)
    if found is not None:
        return found
    if interface is None:
        interface = route_to(part.facts, destination)
    undecided: list[PolicyIntent] = []
    for policy in part.policies:
        by_source, by_destination = _source(policy, sender), _destination(policy, destination)
        if by_source is None or by_destination is None:
            continue
        if by_source == _PERHAPS or (policy.interfaces and interface is None):
            undecided.append(policy)
        elif leaves_through(policy.interfaces, interface):
            rule, origin = by_destination if policy.destinations is not None else by_source
            return _decision(policy.translation, rule, origin, protocol, undecided)
    return _decision(*_configured(intent, part, destination), protocol, undecided)


def _decision(
    translation: Translation, rule: str, origin: RuleOrigin, protocol: str, undecided: list[PolicyIntent]
) -> Decision:
    if translation.ports and protocol not in _WITH_PORTS:
        translation = Translation(translation.action, translation.address)
    return Decision(translation, rule, origin, tuple(undecided))


def is_local(facts: NodeFacts, address: IPAddress) -> bool:
    """Whether an address is this node's own."""
    loopback = address in _LOOPBACK if isinstance(address, IPv4Address) else address == IPv6Address("::1")
    return loopback or address in facts.local


def _never(part: FamilyIntent, address: IPAddress) -> Decision | None:
    types = part.never.destination_types
    if "multicast" in types and address.is_multicast:
        return Decision(_KEEP, "multicast")
    if "broadcast" in types and (address in _ALWAYS_BROADCAST or address in part.facts.broadcast):
        return Decision(_KEEP, "broadcast")
    if "local" in types and is_local(part.facts, address):
        return Decision(_KEEP, "an address of this node")
    own = find(part.own_intervals, int(address))
    return None if own is None else Decision(_KEEP, str(own.entry.network), own.entry.origin)


def _source(policy: PolicyIntent, sender: Sender) -> tuple[str, RuleOrigin] | None:
    """Give the rule by which a policy matches a sender; None when it does not."""
    everyone = (EVERY_DESTINATION, RuleOrigin(policy.ref))
    if policy.sources is None:
        return everyone
    if sender.address is not None:
        found = find(policy.source_intervals, int(sender.address))
        if found is None or policy.pods is not None:
            return None if found is None else everyone
        return f"from {found.entry.network}", found.entry.origin
    if policy.pods is not None and not policy.pods.selects(sender.pod):
        return None
    return _PERHAPS if policy.cidrs else everyone


def _destination(policy: PolicyIntent, destination: IPAddress) -> tuple[str, RuleOrigin] | None:
    """Give the rule by which a policy matches a destination; None when it does not."""
    if policy.destinations is None:
        return EVERY_DESTINATION, RuleOrigin(policy.ref)
    found = find(policy.destination_intervals, int(destination))
    return None if found is None else (str(found.entry.network), found.entry.origin)


def leaves_through(interfaces: tuple[str, ...], interface: str | None) -> bool:
    """Whether an outgoing interface is one of a policy's; a policy without any takes all."""
    return not interfaces or any(
        interface is not None and (interface.startswith(name[:-1]) if name.endswith("*") else interface == name)
        for name in interfaces
    )


def route_to(facts: NodeFacts, destination: IPAddress) -> str | None:
    """Give the interface behind a destination, by the main routes; None when they do not tell."""
    return next((name for network, name in facts.routes if destination in network), None)


def _configured(intent: Intent, part: FamilyIntent, address: IPAddress) -> tuple[Translation, str, RuleOrigin]:
    found = find(part.intervals, int(address))
    if found is not None and found.entry.action == "keep":
        return _KEEP, str(found.entry.network), found.entry.origin
    if found is not None:
        return part.fallback, str(found.entry.network), found.entry.origin
    key = "masqLinkLocal" if part.family == "ip" else "masqLinkLocalIPv6"
    if address in LINK_LOCAL[part.family] and key in intent.config.given and part.fallback.action != "keep":
        return part.fallback, key, intent.config.given[key]
    return part.fallback, part.fallback_rule, BUILT_IN
