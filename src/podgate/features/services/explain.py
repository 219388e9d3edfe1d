"""explain: what happens to a packet to a Service, and why, in a user's words.

Here: who sends, the answer and its JSON form. Not here: the destination as it is written (questions.py), the decision
(deciding.py).
Invariant: a Pod that is named must be there; an answer is about the node that was asked about.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from podgate.features.services.addresses import endpoint_text, family_of, packed
from podgate.features.services.deciding import LEFT_OUT, Decision, Sender, decide, is_pods
from podgate.features.services.endpoints import Here
from podgate.features.services.intent import Intent, ServicePort
from podgate.features.services.lacking import lack_of
from podgate.features.services.node import is_loopback, local_addresses
from podgate.features.services.questions import Destination, NothingDoneError, destinations_of
from podgate.features.services.slices import SliceFacts, read_slice
from podgate.joints import Inputs, QuestionError
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD, Pod, pod_named, pod_names
from podgate.model.kinds.services import PROXY_NAME_LABEL
from podgate.model.problems import Problems
from podgate.model.table import Table

_NO_PROBLEMS: Final[Problems] = Table()


class Answer(Frozen, frozen=True):
    """What happens to a packet; ``service`` is one that has no port of a cluster IP."""

    destination: str
    decision: Decision
    service: str = ""


class WrongFamilyError(QuestionError):
    """Who sends has no address of the destination's family."""


class Asker:
    """Answers questions about one node.

    Args:
        intent: what is wanted.
        inputs: what it was made of.
        here: this node.
        who: who sends, as for ``explain``.
        problems: what is wrong with objects, which may be why a Service has no port.
    """

    def __init__(
        self, intent: Intent, inputs: Inputs, here: Here, who: str | None, problems: Problems = _NO_PROBLEMS
    ) -> None:
        self._intent = intent
        self._inputs = inputs
        self._here = here
        self._who = who
        self._problems = problems

    def answers(self, text: str) -> list[Answer]:
        """Answer about a destination as a user calls it; of several, those that the sender's family can reach.

        Raises:
            QuestionError: as ``destinations_of`` and ``explain`` do.
        """
        own = own_addresses(self._inputs, self._here)
        found: list[Answer] = []
        unreached: WrongFamilyError | None = None
        try:
            destinations = destinations_of(text, self._intent, self._inputs, own, self._problems)
        except NothingDoneError as known:
            if self._who not in {None, "node"} and packed(str(self._who)) is None:
                _sending_pod(str(self._who), self._inputs.objects.objects(POD))
            return [Answer(text, Decision("none", str(known)), known.service)]
        for destination in destinations:
            try:
                found.append(explain(self._intent, self._inputs, self._here, destination, self._who))
            except WrongFamilyError as error:
                unreached = error
        if unreached is not None and not found:
            raise unreached
        return found


def own_addresses(inputs: Inputs, here: Here) -> frozenset[bytes]:
    """Give the addresses of the node that is asked about."""
    node = inputs.objects.objects(NODE).get(ObjectRef(NODE.kind, here.node))
    return local_addresses(node, inputs.machine) | set(here.addresses)


def explain(intent: Intent, inputs: Inputs, here: Here, destination: Destination, who: str | None) -> Answer:
    """Say what happens to a packet on this node.

    Args:
        intent: what is wanted.
        inputs: what it was made of: Pods, this node's Node, the machine.
        here: this node.
        destination: where it goes.
        who: ``[NS/]POD``, ``node`` or an address; None for a Pod of this node.

    Raises:
        QuestionError: nobody knows who that is, or it has no address of the destination's family; or Services are not
            known.
    """
    if intent.unknown:
        raise QuestionError(intent.unknown)
    family = family_of(destination.address)
    part = intent.of(family)
    if part is None:
        return Answer(str(destination), Decision("none", "this family is switched off on this node"))
    own = own_addresses(inputs, here)
    sender = _Senders(inputs, here, own, destination).of(who)
    if sender.kind == "outside" and any(is_pods(each, part.node.local) for each in sender.addresses):
        sender = Sender("pod", sender.addresses)
    elif sender.kind == "pod" and part.node.local.ranges and sender.addresses:
        is_known = any(is_pods(each, part.node.local) for each in sender.addresses)
        sender = sender if is_known else Sender("outside", sender.addresses)
    address, port, protocol = destination
    decision = decide(part, sender, address, protocol, port, own=own)
    if decision.verdict == "drop" and decision.port is None:
        decision = replace(decision, reason=_of_another_proxy(intent, address) or decision.reason)
    if decision.reason == LEFT_OUT and not sender.addresses:
        raise QuestionError(
            f"{destination} asks for the sender's address (loadBalancerSourceRanges): give it with --from"
        )
    if decision.verdict == "reject" and decision.port is not None and not decision.port.cluster:
        decision = replace(decision, reason=lack_of(decision.port, _slices(inputs, decision.port)).message)
    return Answer(str(destination), decision)


def _of_another_proxy(intent: Intent, address: bytes) -> str:
    """Say whose an address is that another proxy serves; empty for one that none does."""
    for ref, found in sorted(intent.theirs.items()):
        if (address, 0) in found:
            return f"{ref} has this address, for another proxy ({PROXY_NAME_LABEL}), whose rules come first"
    return ""


def _slices(inputs: Inputs, port: ServicePort) -> Iterator[SliceFacts]:
    """Give the slices of a port's Service."""
    namespace, _, name = port.name.rpartition(":")[0].partition("/")
    for ref, found in inputs.objects.objects(ENDPOINT_SLICE).items():
        if (ref.namespace, found.metadata.labels.service_name) == (namespace, name):
            facts = read_slice(ref, found)
            if facts is not None:
                yield facts


def _sending_pod(who: str, pods: Mapping[ObjectRef, Pod]) -> Pod:
    pod = pod_named(who, pods)
    if pod is None:
        known = pod_names(who, pods)
        raise QuestionError(f'--from "{who}" is neither node, nor an address, nor a Pod of the source (Pods: {known})')
    return pod


class _Senders:
    """Finds who sends."""

    def __init__(self, inputs: Inputs, here: Here, own: frozenset[bytes], destination: Destination) -> None:
        self._pods = inputs.objects.objects(POD)
        self._here = here
        self._own = own
        self._destination = destination

    def of(self, who: str | None) -> Sender:
        """Give the sender, as far as it can be told without looking at ranges."""
        if who is None:
            return Sender("pod")
        if who == "node":
            return self._node()
        address = packed(who)
        if address is not None:
            return self._at(who, address)
        return self._pod(who, _sending_pod(who, self._pods))

    def _node(self) -> Sender:
        first = [each for each in self._here.addresses if self._is_like(each)]
        rest = sorted(each for each in self._own if self._is_like(each) and each not in first)
        return Sender("node", (*first, *rest))

    def _at(self, who: str, address: bytes) -> Sender:
        if not self._is_like(address):
            raise WrongFamilyError(f"no packet goes from {who} to {self._destination}: give addresses of one family")
        if address in self._own or is_loopback(address):
            return Sender("node", (address, *(each for each in self._node().addresses if each != address)))
        here = any(
            pod.spec.node_name == self._here.node and address in map(packed, pod.addresses)
            for pod in self._pods.values()
            if not pod.spec.host_network
        )
        return Sender("pod" if here else "outside", (address,))

    def _pod(self, who: str, pod: Pod) -> Sender:
        here = pod.spec.node_name == self._here.node
        if pod.spec.host_network and here:
            return self._node()
        if not pod.addresses:
            raise WrongFamilyError(f'--from "{who}": this Pod has no address yet: its status has none')
        addresses = tuple(each for text in pod.addresses if (each := packed(text)) and self._is_like(each))
        if not addresses:
            raise WrongFamilyError(f'--from "{who}": this Pod has no address of the family of {self._destination}')
        return Sender("pod" if here and not pod.spec.host_network else "outside", addresses)

    def _is_like(self, address: bytes) -> bool:
        return len(address) == len(self._destination.address)


def answer_json(answer: Answer) -> dict[str, Any]:
    """Give the JSON form of an answer."""
    decision, port = answer.decision, answer.decision.port
    return {
        "destination": answer.destination,
        "service": answer.service if port is None else port.name,
        "policy": decision.policy,
        "verdict": decision.verdict,
        "endpoints": _endpoints(decision.endpoints),
        "masquerade": decision.masquerade,
        "hairpin": _endpoints(decision.hairpin),
        "sticky": 0 if port is None or decision.verdict != "forward" else port.sticky,
        "reason": decision.reason,
    }


def answer_line(answer: Answer) -> str:
    """Give an answer as a line for people."""
    decision, port = answer.decision, answer.decision.port
    name = answer.service if port is None else port.name
    service = name and f" {name}"
    line = f"{answer.destination}{service}: {decision.verdict}"
    if decision.endpoints:
        line += f" to {', '.join(_endpoints(decision.endpoints))}"
    if decision.masquerade:
        line += " with this node's address"
    elif decision.hairpin:
        line += f" (with this node's address to {', '.join(_endpoints(decision.hairpin))}: the sender itself)"
    if port is not None and port.sticky and decision.endpoints:
        line += f", the same one for {port.sticky} s"
    return f"{line}: {decision.reason}"


def _endpoints(packed_endpoints: tuple[bytes, ...]) -> list[str]:
    return sorted(endpoint_text(each) for each in packed_endpoints)
