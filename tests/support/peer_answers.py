"""What becomes of packets to random clusters: by the rules of kube-proxy, by podgate's, and as ``explain`` says it.

Here: who sends what to whom, the answers in one form. Not here: the objects (peer_clusters.py), programs that run
(peer_proxies.py), what of the differences is known (peer_differences.py).
Invariant: an answer holds sets alone, so that two of them are equal or differ in what happens to somebody.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol

from podgate.commandline.options import settings_from
from podgate.features.services.addresses import endpoint_text, packed, with_port
from podgate.features.services.compile import Compiler
from podgate.features.services.explain import explain
from podgate.features.services.intent import Intent
from podgate.features.services.node import here_of
from podgate.features.services.questions import Destination
from podgate.features.services.settings import Settings
from podgate.features.services.slices import PROTOCOLS
from podgate.features.services.to_nftables import Writer
from podgate.joints import Inputs
from podgate.lab.kinds import Object
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.machine import Family
from podgate.model.packet import Locality
from podgate.targets.nftables.registers import flow
from podgate.targets.nftables.state import State
from tests.support.peer_chains import Chains, InForce, came_of, packet_of
from tests.support.peer_clusters import ADDRESSES, FAMILIES, NODES, SECOND, pod_address
from tests.support.peer_ruleset import Came, Sent
from tests.support.service_inputs import inputs_of, machine_of

OWN: Final[Mapping[Family, tuple[str, ...]]] = {f: (ADDRESSES[f][0], SECOND[f]) for f in FAMILIES}
"""The addresses of node-1."""

LENGTHS: Final[Mapping[Family, int]] = {"ip": 24, "ip6": 64}
POD_INTERFACE: Final = "veth99"
_LOOPBACK: Final[Mapping[Family, str]] = {"ip": "127.0.0.1", "ip6": "::1"}
_OUTSIDE: Final[Mapping[Family, tuple[str, ...]]] = {
    "ip": ("203.0.113.10", "203.0.113.99", "198.51.100.10"),
    "ip6": ("2001:db8:1::10", "2001:db8:1::99", "2001:db8:2::10"),
}
_NOBODY: Final[Mapping[Family, str]] = {"ip": "10.96.99.99", "ip6": "fd00:10:96::9999"}
_CLIENT: Final = 99
_SERVERS: Final = 16
_TIMES: Final = 3
"""How many senders a destination is asked from."""


class Answer(NamedTuple):
    """What becomes of a packet.

    Attributes:
        verdict: ``forward``, ``drop``, ``reject``, or ``none`` where nobody touches it.
        endpoints: where it may be led to.
        masqueraded: those of them that see an address of the node as the sender.
        sticky: for how many seconds its client stays.
    """

    verdict: str
    endpoints: frozenset[str] = frozenset()
    masqueraded: frozenset[str] = frozenset()
    sticky: int = 0


def packets(objects: Iterable[Object], chance: random.Random) -> list[Sent]:
    """Draw packets to all that the Services of some objects ask for, and to a little beside it."""
    found: dict[Sent, None] = {}
    for family in FAMILIES:
        for destination in sorted({each for obj in objects for each in _destinations(obj, family, chance)}):
            for sender in chance.sample(_senders(family), _TIMES):
                found[_sent(family, destination, *sender)] = None
    return list(found)


def _destinations(obj: Object, family: Family, chance: random.Random) -> Iterator[tuple[str, str, int]]:
    if obj["kind"] != "Service":
        return
    spec, status = obj["spec"], obj.get("status", {})
    given = [each.get("ip", "") for each in status.get("loadBalancer", {}).get("ingress", ())]
    addresses = {*spec.get("clusterIPs", ()), *spec.get("externalIPs", ()), *given} - {"", "None"}
    for port in spec.get("ports", ()):
        protocol, number = PROTOCOLS[port["protocol"]], port["port"]
        for address in sorted(addresses):
            if (":" in address) is (family == "ip6"):
                yield address, protocol, number
                yield chance.choice(
                    ((address, protocol, number + 1), (address, "udp", number), (address, "tcp", 30001))
                )
        if node_port := port.get("nodePort", 0):
            yield ADDRESSES[family][0], protocol, node_port
            others = (SECOND[family], ADDRESSES[family][1], _LOOPBACK[family], _NOBODY[family])
            yield chance.choice(others), protocol, node_port


def _senders(family: Family) -> list[tuple[str, str]]:
    """Give addresses of senders with the interfaces that they come by; none for this node."""
    local = [(pod_address(family, 0, number), f"veth{number}") for number in (*range(1, 7), _CLIENT, _CLIENT)]
    others = [(pod_address(family, 1, number), "eth0") for number in (1, 2, _CLIENT)]
    return [
        *local,
        *others,
        *((each, "eth0") for each in (*_OUTSIDE[family], ADDRESSES[family][1])),
        ("", ""),
        ("", ""),
    ]


def _sent(family: Family, destination: tuple[str, str, int], source: str, interface: str) -> Sent:
    address, protocol, port = destination
    if interface:
        return Sent(source, address, protocol, port, interface)
    is_own = address in OWN[family] or ip_address(address).is_loopback
    return Sent(address if is_own else ADDRESSES[family][0], address, protocol, port, is_own=True)


class Rules(Protocol):
    """Rules of either back end."""

    def came(self, sent: Sent) -> frozenset[Came]:
        """Give all that may come of a packet."""
        ...


def by_rules(rules: Rules, sent: Sent) -> Answer:
    """Say what rules do."""
    found = rules.came(sent)
    (verdict,) = {each.verdict for each in found}
    if verdict != "accept":
        return Answer(verdict)
    led = [(with_port(ip_address(each.endpoint[0]).packed, each.endpoint[1]), each) for each in found if each.endpoint]
    if not led:
        return Answer("none")
    endpoints = frozenset(endpoint for endpoint, _ in led)
    masqueraded = frozenset(endpoint for endpoint, each in led if each.is_masqueraded)
    return Answer("forward", endpoints, masqueraded, max(each.sticky for each in found))


class Table:
    """podgate's table of one family, as its code says it; who stays is not told."""

    def __init__(self, state: State, family: Family) -> None:
        self._state = state
        self._locality = Locality(frozenset(map(ip_address, OWN[family])))

    def came(self, sent: Sent) -> frozenset[Came]:
        """Give all that may come of a packet."""
        found = flow(self._state, packet_of(sent), self._locality, "output" if sent.is_own else "prerouting")
        return frozenset(map(came_of, found))


class Podgate:
    """podgate on node-1, which remembers what it was told before, as an agent does."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.settings: Settings = settings_from(Settings, {"node_name": NODES[0], **options})
        self._compile: Compiler[Intent] = Compiler(self.settings, lambda intent: intent)
        self._writers = {family: Writer(family) for family in FAMILIES}
        self._chains = {family: InForce(family) for family in FAMILIES}

    def told(self, objects: Iterable[Object]) -> "Told":
        """Tell it all objects; Pods are added."""
        machine = machine_of(*(f"{each}/{LENGTHS[family]}" for family in FAMILIES for each in OWN[family]))
        inputs = inputs_of([*objects, *_pods()], self.settings, machine)
        intent = self._compile(inputs).states
        return Told(intent, inputs, {family: self._rules(intent, family) for family in FAMILIES})

    def _rules(self, intent: Intent, family: Family) -> Rules:
        if self.settings.backend == "iptables":
            return Chains(self._chains[family].after(intent), OWN[family])
        return Table(self._writers[family](intent.of(family), ""), family)


def _pods() -> Iterator[Object]:
    """Give the Pods of node-1: where interfaces tell Pods apart, only objects say whose an address is."""
    for number in (*range(1, _SERVERS), _CLIENT):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": "shop"},
            "spec": {"nodeName": NODES[0]},
            "status": {"podIPs": [{"ip": pod_address(family, 0, number)} for family in FAMILIES]},
        }


class Told:
    """What podgate makes of some objects."""

    def __init__(self, intent: Intent, inputs: Inputs, rules: Mapping[Family, Rules]) -> None:
        self.intent, self._inputs, self.rules = intent, inputs, rules

    @cached_property
    def _here(self) -> Any:
        node = self._inputs.objects.objects(NODE).get(ObjectRef(NODE.kind, NODES[0]))
        return here_of(NODES[0], node, self._inputs.machine)

    def explained(self, sent: Sent) -> Answer:
        """Say what ``explain`` tells."""
        destination = Destination(packed(sent.destination) or b"", sent.port, PROTOCOLS[sent.protocol.upper()])
        who = "node" if sent.is_own else sent.source
        found = explain(self.intent, self._inputs, self._here, destination, who).decision
        if found.verdict != "forward" or found.port is None:
            return Answer(found.verdict)
        masqueraded = found.endpoints if found.masquerade else found.hairpin
        # What arrives for this node itself passes no chain that could give it another source.
        own = () if sent.is_own else {packed(each) for each in OWN["ip6" if ":" in sent.destination else "ip"]}
        return Answer(
            found.verdict,
            frozenset(map(endpoint_text, found.endpoints)),
            frozenset(endpoint_text(each) for each in masqueraded if each[:-2] not in own),
            found.port.sticky,
        )
