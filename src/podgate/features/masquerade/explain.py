"""explain: what happens to the source address of a packet to an address, and the rule that says so.

Here: the question, the answer and its JSON form. Not here: the decision (deciding.py), printing, finding a line.
Invariant: an answer is a decision about the packet that was asked about; where the question leaves open what a policy
asks for, there is no answer, but what to add to the question.
"""

from collections.abc import Callable, Mapping

from podgate.features.masquerade.deciding import Decision, Sender, decide
from podgate.features.masquerade.intent import IPV6_OFF, Intent
from podgate.features.masquerade.own_pods import from_pod
from podgate.features.masquerade.ports import Ports, ports_text
from podgate.features.masquerade.prefixes import BUILT_IN, Action, RuleOrigin, family_of
from podgate.features.masquerade.selecting import Labelled
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ref_of
from podgate.model.kinds.pods import POD, Pod
from podgate.model.machine import IPAddress

Locate = Callable[[ObjectRef, str], int | None]
"""Gives the line of a field in a file, from 1; None if it is not to be found."""


class Answer(Frozen, frozen=True):
    """What happens to a packet.

    Attributes:
        address: the destination.
        action: what happens to the source address.
        rule: the CIDR that decides, or words for a rule without one, as ``multicast``.
        source: where that rule was written.
        snat_address: the new source address of ``snat``.
        ports: source ports that TCP, UDP and SCTP choose from.
    """

    address: IPAddress
    action: Action
    rule: str
    source: RuleOrigin = BUILT_IN
    snat_address: IPAddress | None = None
    ports: Ports = ()


class Unanswerable(Frozen, frozen=True):
    """Why there is no answer, and what to ask instead."""

    message: str


Who = IPAddress | Pod | Labelled | None
"""Who sends: an address, a Pod of the source, the labels of some Pod of this node, None for one without labels."""


def explain(
    intent: Intent,
    address: IPAddress,
    from_: Who = None,
    *,
    namespace_labels: Mapping[str, str] | None = None,
    interface: str | None = None,
) -> Answer | Unanswerable:
    """Say what happens to a packet to ``address`` on this node.

    Args:
        intent: what is wanted.
        address: the destination, after a Service's address was translated.
        from_: the sender.
        namespace_labels: the labels of the namespace of a Pod that is given.
        interface: the outgoing interface; None to take it from the routes.
    """
    part = intent.of(family_of(address))
    if part is None:
        return Answer(address, "keep", IPV6_OFF)
    sender = _sender(intent, address, from_, namespace_labels or {})
    if isinstance(sender, Unanswerable):
        return sender
    if sender is None:
        return Answer(address, "keep", "sent by this node itself")
    return _answer(address, decide(intent, sender, address, interface=interface), sender)


def _sender(
    intent: Intent, address: IPAddress, who: Who, namespace_labels: Mapping[str, str]
) -> Sender | Unanswerable | None:
    """Give the sender; None for this node itself."""
    if isinstance(who, Pod):
        named = f"{who.metadata.namespace}/{who.metadata.name}"
        if who.spec.node_name != intent.node_name:
            where = f'on node "{who.spec.node_name}"' if who.spec.node_name else "on no node yet"
            here = f'this is "{intent.node_name}"'
            return Unanswerable(f"Pod {named} is {where}, and {here}: give the Pod's node with --node-name")
        if who.spec.host_network:
            return None
        addresses = (entry.network.network_address for entry in from_pod(ref_of(POD, who.metadata), who))
        own = next((each for each in addresses if each.version == address.version), None)
        return Sender(own, Labelled(who.metadata.labels, who.metadata.namespace, namespace_labels))
    if who is None or isinstance(who, Labelled):
        return Sender(None, who or Labelled())
    if who.version != address.version:
        return Unanswerable(f"no packet goes from {who} to {address}: give two addresses of one family")
    return Sender(who)


def _answer(address: IPAddress, found: Decision, sender: Sender) -> Answer | Unanswerable:
    if found.undecided:
        policy = found.undecided[0]
        if policy.cidrs and sender.address is None:
            return Unanswerable(f"{policy.ref} asks for the source address: give one with --from ADDRESS")
        names = ", ".join(policy.interfaces)
        what = f"{policy.ref} asks whether a packet leaves through {names}, and no route to {address} is known"
        return Unanswerable(f"{what}: give the interface with --out")
    given = found.translation
    return Answer(address, given.action, found.rule, found.origin, given.address, given.ports)


def source_text(origin: RuleOrigin, locate: Locate) -> str:
    """Write an origin: ``PATH:LINE``, ``Kind/NAMESPACE/NAME:field`` or ``default``."""
    if origin.ref is None:
        return "default"
    if origin.ref.kind != "File":
        return f"{origin.ref}:{origin.field}" if origin.field else str(origin.ref)
    line = locate(origin.ref, origin.field)
    return str(origin.ref) if line is None else f"{origin.ref}:{line}"


def answer_json(answer: Answer, locate: Locate) -> dict[str, str]:
    """Give the JSON form of an answer; ``snatAddress`` and ``ports`` only where there are any."""
    found = {
        "address": str(answer.address),
        "action": answer.action,
        "rule": answer.rule,
        "source": source_text(answer.source, locate),
    }
    if answer.snat_address is not None:
        found["snatAddress"] = str(answer.snat_address)
    if answer.ports:
        found["ports"] = ports_text(answer.ports)
    return found


def answer_line(answer: Answer, locate: Locate) -> str:
    """Give an answer as a line for people."""
    to = "" if answer.snat_address is None else f" to {answer.snat_address}"
    ports = f" with ports {ports_text(answer.ports)}" if answer.ports else ""
    where = source_text(answer.source, locate)
    return f"{answer.address}: {answer.action}{to}{ports}, by {answer.rule} ({where})"
