"""explain: what happens to the source address of a packet to an address, and the rule that says so.

Here: the question, the answer and its JSON form. Not here: printing, and finding the line of a field.
Invariant: walks the intent in the order in which writers write it, so that the answer is what the kernel does.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

from podgate.features.masquerade.config import LINK_LOCAL
from podgate.features.masquerade.intent import IPV6_OFF, FamilyIntent, Intent
from podgate.features.masquerade.prefixes import BUILT_IN, Action, Origin, family_of, find
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.pods import Pod
from podgate.model.machine import IPAddress

Locate = Callable[[ObjectRef, str], int | None]
"""Gives the line of a field in a file, from 1; None if it is not to be found."""

_LOOPBACK: Final = IPv4Network("127.0.0.0/8")
_ALWAYS_BROADCAST: Final = frozenset({IPv4Address("255.255.255.255"), IPv4Address("0.0.0.0")})  # noqa: S104 - no socket
"""What the kernel calls broadcast whatever its subnets are (``__inet_dev_addr_type``)."""


class Answer(Frozen, frozen=True):
    """What happens to a packet.

    Attributes:
        address: the destination.
        action: what happens to the source address.
        rule: the CIDR that decides, or words for a rule without one, as ``multicast``.
        source: where that rule was written.
    """

    address: IPAddress
    action: Action
    rule: str
    source: Origin = BUILT_IN


class Unanswerable(Frozen, frozen=True):
    """Why there is no answer, and what to ask instead."""

    message: str


def explain(intent: Intent, address: IPAddress, from_: IPAddress | Pod | None = None) -> Answer | Unanswerable:
    """Say what happens to a packet to ``address`` on this node.

    Args:
        intent: what is wanted.
        address: the destination, after a Service's address was translated.
        from_: the sender: an address, a Pod, or None for a Pod of this node without labels.
    """
    part = intent.of(family_of(address))
    if part is None:
        return Answer(address, "keep", IPV6_OFF)
    if isinstance(from_, Pod):
        named = f"{from_.metadata.namespace}/{from_.metadata.name}"
        if from_.spec.node_name != intent.node_name:
            where = f'on node "{from_.spec.node_name}"' if from_.spec.node_name else "on no node yet"
            here = f'this is "{intent.node_name}"'
            return Unanswerable(f"Pod {named} is {where}, and {here}: give the Pod's node with --node-name")
        own_socket = from_.spec.host_network
    elif from_ is not None:
        if from_.version != address.version:
            return Unanswerable(f"no packet goes from {from_} to {address}: give two addresses of one family")
        own_socket = _is_local(part, from_)
    else:
        own_socket = False
    if own_socket:
        return Answer(address, "keep", "sent by this node itself")
    return _never(part, address) or _configured(intent, part, address)


def _is_local(part: FamilyIntent, address: IPAddress) -> bool:
    loopback = address in _LOOPBACK if isinstance(address, IPv4Address) else address == IPv6Address("::1")
    return loopback or address in part.facts.local


def _never(part: FamilyIntent, address: IPAddress) -> Answer | None:
    if address.is_multicast:
        return Answer(address, "keep", "multicast")
    if address in _ALWAYS_BROADCAST or address in part.facts.broadcast:
        return Answer(address, "keep", "broadcast")
    if _is_local(part, address):
        return Answer(address, "keep", "an address of this node")
    own = find(part.own_intervals, int(address))
    return None if own is None else Answer(address, "keep", str(own.entry.network), own.entry.origin)


def _configured(intent: Intent, part: FamilyIntent, address: IPAddress) -> Answer:
    found = find(part.intervals, int(address))
    if found is not None:
        return Answer(address, found.entry.action, str(found.entry.network), found.entry.origin)
    key = "masqLinkLocal" if part.family == "ip" else "masqLinkLocalIPv6"
    if address in LINK_LOCAL[part.family] and key in intent.config.given:
        return Answer(address, "masquerade", key, intent.config.given[key])
    return Answer(address, "masquerade", "everything else")


def source_text(origin: Origin, locate: Locate) -> str:
    """Write an origin: ``PATH:LINE``, ``Kind/NAMESPACE/NAME:field`` or ``default``."""
    if origin.ref is None:
        return "default"
    if origin.ref.kind != "File":
        return f"{origin.ref}:{origin.field}" if origin.field else str(origin.ref)
    line = locate(origin.ref, origin.field)
    return str(origin.ref) if line is None else f"{origin.ref}:{line}"


def answer_json(answer: Answer, locate: Locate) -> dict[str, str]:
    """Give the JSON form of an answer."""
    return {
        "address": str(answer.address),
        "action": answer.action,
        "rule": answer.rule,
        "source": source_text(answer.source, locate),
    }
