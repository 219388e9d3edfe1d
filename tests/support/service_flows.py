"""The flows of services (tests/features/services/flows) as real packets: a world for them, and what comes of each.

Here: the network that the names of the flows mean, sending, judging. Not here: the flows, the program that makes rules
(any that keeps to ``Proxy``), servers and probes (service_lab.py).
Invariant: each verdict looks different: whatever nobody touches is answered by a server of its own, so that no silence
and no refusal can be mistaken.

    pod, local-1, local-2 -- node-1 (the rules) ─┐
    other-pod, remote-1, remote-2 -- node-2 ─────┼─ router -- outside, blocked
    whatever node-1 did not translate -- node-3 ─┘

Everything for the Services' addresses comes to node-1. Answers of remote Pods go back through it, too, as if its
clients were behind it: otherwise nobody could see untranslated senders of other nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Final, Literal, NamedTuple, Protocol

from podgate.lab.kinds import Object
from podgate.lab.network import UPLINK, HostNet, NodeNet, PodNet, Topology, device_name, pod_namespace
from podgate.lab.servicevalidity import NODE_PORTS
from podgate.model.machine import Family, IPAddress
from tests.features.services.flows import FAKE, FAMILIES, Flow, Scenario, World, in_world
from tests.support.poll import poll
from tests.support.service_lab import Probe, Seen, ServiceLab, endpoint, service_lab
from tests.support.slices import endpoint_slice

_INTERFACES: Final = {"pod-interface": device_name("veth", pod_namespace("default", "pod")), "pod-interfaces": "veth"}
WORLDS: Final[Mapping[Family, World]] = {
    "ip": {
        **FAKE["ip"], **_INTERFACES, "node": "10.140.0.1", "other-node": "10.140.0.2", "node-second": "10.141.0.1",
        "nowhere": "10.140.0.3", "cluster-ip-1": "10.96.0.41", "cluster-ip-2": "10.96.0.42",
        "cluster-ip-3": "10.96.0.43", "cluster-ip-4": "10.96.0.44", "unallocated": "10.96.9.9",
        "service-cidr": "10.96.0.0/16", "node-range": "10.140.0.0/24", "marker": "10.96.200.",
        "beyond": "192.0.2.0/24",
    },
    "ip6": {
        **FAKE["ip6"], **_INTERFACES, "node": "fd00:140::1", "other-node": "fd00:140::2", "node-second": "fd00:141::1",
        "nowhere": "fd00:140::3", "cluster-ip-1": "fd00:10:96::41", "cluster-ip-2": "fd00:10:96::42",
        "cluster-ip-3": "fd00:10:96::43", "cluster-ip-4": "fd00:10:96::44", "unallocated": "fd00:10:96::999",
        "service-cidr": "fd00:10:96::/112", "node-range": "fd00:140::/64", "marker": "fd00:10:96::c0",
        "beyond": "2001:db8:9::/64",
    },
}  # fmt: skip
"""The addresses of the real network: those of the fake world but for what an API server and a router have a say in."""

NODES: Final = ("node-1", "node-2")
THIS: Final = "node/node-1"
NOWHERE: Final = "node/node-3"
_LOCAL: Final = ("pod", "local-1", "local-2")
_REMOTE: Final = ("other-pod", "remote-1", "remote-2")
_OUTSIDE: Final = ("outside", "blocked")
_BALANCERS: Final = ("balancer-1", "balancer-2")
_NODE_OF: Final = {"node": THIS, "other-node": "node/node-2", **dict.fromkeys(_BALANCERS, THIS)}
_PROTOCOLS: Final[Mapping[str, Literal["tcp", "udp", "sctp"]]] = {"tcp": "tcp", "udp": "udp", "sctp": "sctp"}
_SERVED: Final = (("tcp", 8080), ("udp", 8080), ("tcp", 9090))

_ANSWER_SECONDS: Final = 30.0
"""How long a probe may take that shall be answered: as long as it takes on a busy machine."""

_SILENCE_SECONDS: Final = 0.7
"""How long silence is listened to."""

_MARKER_SECONDS: Final = 0.1
"""How long one probe of a marker may take: most of them are dropped."""

_ROUNDS: Final = 150
"""How often is asked until each of several endpoints has answered: of six, one is missed once in a hundred thousand
million times. A few rounds show all of them nearly always."""

_FEWEST: Final = 8
"""How often is asked at least: an endpoint that should not answer is missed once in two hundred times."""

_TABLE: Final = "100"
_APART: Final = 1000
"""How far the node ports of the two families are apart."""


def _all(name: str) -> tuple[IPAddress, ...]:
    return tuple(ip_address(WORLDS[family][name]) for family in FAMILIES)


def place(name: str) -> str:
    """Give the namespace of a sender or server by its name in the flows."""
    if name in _OUTSIDE:
        return f"host/{name}"
    return _NODE_OF.get(name) or pod_namespace("default", name)


def topology() -> Topology:
    """Give the network."""
    lengths = {4: 24, 6: 64}
    nodes = (("node-1", ("node", "node-second"), 0), ("node-2", ("other-node",), 1), ("node-3", ("nowhere",), None))
    through = _all("node")
    routes = tuple(
        (ip_network(WORLDS[family][name]), via)
        for family, via in zip(FAMILIES, through, strict=True)
        for name in ("service-cidr", "beyond")
    )
    return Topology(
        tuple(
            NodeNet(
                name,
                tuple(ip_interface(f"{one}/{lengths[one.version]}") for each in addresses for one in _all(each)),
                () if number is None else (ip_network(f"10.180.{number}.0/24"), ip_network(f"fd00:180:{number}::/48")),
            )
            for name, addresses, number in nodes
        ),
        tuple(
            PodNet("default", name, node, _all(name))
            for node, names in (("node-1", _LOCAL), ("node-2", _REMOTE))
            for name in names
        ),
        tuple(HostNet(name, _all(name), routes=routes if name == "outside" else ()) for name in _OUTSIDE),
    )


def _detours() -> Mapping[tuple[str, int], list[str]]:
    """Give the routes that make every verdict visible."""
    lines: dict[tuple[str, int], list[str]] = {}
    for family, version in zip(FAMILIES, (4, 6), strict=True):
        world = WORLDS[family]
        ranges = [world[name] for name in ("service-cidr", "beyond")]
        out = f"via {world['nowhere']} dev {UPLINK} src {world['node']}"
        lines[THIS, version] = [f"route add {one} {out}" for one in ranges]
        lines[NOWHERE, version] = [f"route add local {one} dev lo" for one in ranges]
        devices = [device_name("veth", pod_namespace("default", name)) for name in _REMOTE[1:]]
        lines["node/node-2", version] = [
            f"route add default via {world['node']} dev {UPLINK} table {_TABLE}",
            *(f"rule add iif {device} lookup {_TABLE}" for device in devices),
        ]
    return lines


@contextmanager
def flow_lab() -> Iterator[ServiceLab]:
    """Make the network with its servers for the body."""
    endpoints = [
        (place(name), WORLDS[family][name], protocol, port)
        for name in (*_LOCAL[1:], *_REMOTE[1:])
        for family in FAMILIES
        for protocol, port in _SERVED
    ]
    with service_lab(topology(), endpoints, _detours()) as lab:  # type: ignore[arg-type]  # the protocols are literals
        for name in lab.descriptors:
            for key in ("ipv4.icmp_ratelimit", "ipv6.icmp.ratelimit"):
                lab.namespace(name).sysctl(key, "0")  # many probes are refused at once, and each shall hear of it
        yield lab


class NotTakenError(Exception):
    """Objects that an API server refuses, so that they never get to a proxy behind it."""


class Proxy(Protocol):
    """A program that makes rules on node-1."""

    def running(self, settings: Mapping[str, Any], zone: str) -> AbstractContextManager[None]:
        """Run it for the body: options by the name of their field, and the node's zone."""
        ...

    def replace(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Make these the only Services and EndpointSlices, in this order.

        Raises:
            NotTakenError: whoever holds the objects refuses one.
        """
        ...


def node_objects(zone: str) -> list[Object]:
    """Give the Nodes as the flows describe them."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone} if zone and not number else {}},
            "spec": {
                "podCIDR": f"10.180.{number}.0/24",
                "podCIDRs": [f"10.180.{number}.0/24", f"fd00:180:{number}::/48"],
            },
            "status": {"addresses": [{"type": "InternalIP", "address": str(one)} for one in _all(address)]},
        }
        for number, (name, address) in enumerate(zip(NODES, ("node", "other-node"), strict=True))
    ]


class Markers:
    """Services that come after the others: once the newest one works, all before it do."""

    def __init__(self, lab: ServiceLab) -> None:
        self._lab, self._number = lab, 0

    def next(self, labels: Mapping[str, str]) -> list[Object]:
        """Give the objects of the next one, in each family; ``labels`` are what the proxy asks for."""
        self._number += 1
        return [obj for family in FAMILIES for obj in self._objects(family, labels)]

    def _objects(self, family: Family, labels: Mapping[str, str]) -> Iterator[Object]:
        world, name = WORLDS[family], f"marker-{family}-{self._number}"
        metadata = {"name": name, "namespace": "marker", "labels": dict(labels)}
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": self._address(family), "ports": [{"port": 8080}]},
        }
        ends = [(world["local-1"], world["this"])]
        where = {"name": name, "namespace": "marker"}
        yield endpoint_slice(name, world["address-type"], ends, ("", 8080, "TCP"), metadata=where, labels=labels)

    def _address(self, family: Family) -> str:
        return f"{WORLDS[family]['marker']}{self._number}"

    def wait(self) -> None:
        """Wait until the newest one works in both families."""
        probes = [Probe(place("pod"), self._address(family), "tcp", 8080) for family in FAMILIES]
        poll(lambda: {one.verdict for one in self._lab.ask(probes, _MARKER_SECONDS)} == {"answered"})


class Sent(NamedTuple):
    """A flow in a family, and where it is from and to by name; ``sticky``: a client stays with one endpoint."""

    family: Family
    flow: Flow
    sender: str
    to: str
    sticky: bool

    def __str__(self) -> str:
        return f"{self.sender} -> {self.flow.to}:{self.flow.port}/{self.flow.protocol}"

    @property
    def probe(self) -> Probe:
        """What is sent."""
        protocol = _PROTOCOLS[self.flow.protocol]
        source = self.flow.sender if self.sender in _BALANCERS else ""
        return Probe(place(self.sender), self.flow.to, protocol, self.flow.port, source)

    def goes_on(self, seen: AbstractSet[Seen], rounds: int) -> bool:
        """Whether there is more to see: all is as it should be, and another endpoint may answer yet."""
        if {one.verdict for one in seen} != {"answered"}:
            return False
        if self.sticky:
            return rounds < _FEWEST
        return rounds < _FEWEST or {one.endpoint for one in seen} < set(self.flow.endpoints)

    def wrong(self, seen: AbstractSet[Seen]) -> str:
        """Say what is wrong with what came of it; empty when nothing is."""
        flow = self.flow
        verdict = {"drop": "silent", "reject": "refused"}.get(flow.verdict, "answered")
        answered = {one.endpoint for one in seen if one.endpoint}
        wanted = {endpoint(flow.to, flow.port)} if flow.verdict == "none" else set(flow.endpoints)
        right = len(answered) == 1 and answered <= wanted if self.sticky and flow.endpoints else answered == wanted
        if {one.verdict for one in seen} != {verdict} or not right:
            verdicts = "/".join(sorted({one.verdict for one in seen}))
            return f"{self}: {verdicts} {sorted(answered)} instead of {flow.verdict} {sorted(wanted)}"
        if flow.verdict != "forward" or place(self.sender) == THIS:
            return ""  # what a node sends has its address anyway
        nodes = {WORLDS[self.family][name] for name in ("node", "node-second")}
        for one in seen:
            masqueraded = flow.masquerade or one.endpoint in flow.hairpin
            if (one.source in nodes) is not masqueraded or (not masqueraded and one.source != flow.sender):
                return f"{self}: {one.endpoint} saw {one.source}, masquerade should be {masqueraded}"
        return ""


def send(lab: ServiceLab, flows: Sequence[Sent]) -> list[str]:
    """Send flows until every endpoint that may answer has answered, or did not in many rounds; give what is wrong."""
    seen: list[set[Seen]] = [set() for _ in flows]
    going = list(range(len(flows)))
    for number in range(1, _ROUNDS + 1):
        for silent, seconds in ((False, _ANSWER_SECONDS), (True, _SILENCE_SECONDS)):
            asked = [index for index in going if (flows[index].flow.verdict == "drop") is silent]
            for index, answer in zip(asked, lab.ask([flows[index].probe for index in asked], seconds), strict=True):
                seen[index].add(answer)
        going = [index for index in going if flows[index].goes_on(seen[index], number)]
        if not going:
            break
    return [fault for one, came in zip(flows, seen, strict=True) if (fault := one.wrong(came))]


def _sent(family: Family, scenario: Scenario) -> Iterator[Sent]:
    """Give the flows of a scenario."""
    ranges = ("node-range", "outside-range", "cluster-cidr", "service-cidr", "pod-range")
    names = {address: name for name, address in WORLDS[family].items() if name not in ranges}
    sticky = any(one.get("spec", {}).get("sessionAffinity") == "ClientIP" for one in scenario.objects)
    for flow in scenario.flows:
        sender = "node" if flow.sender == "node" else names[flow.sender]
        yield Sent(family, flow, sender, names[flow.to], sticky)


def _serve_untouched(lab: ServiceLab, flows: Iterable[Sent]) -> None:
    """Have somebody answer who is reached when nothing is done."""
    where = {**_NODE_OF, "node-second": THIS, "loopback": THIS, **dict.fromkeys(_BALANCERS, NOWHERE)}
    for one in flows:
        if one.flow.verdict == "none":
            lab.serve_once(where.get(one.to, NOWHERE), one.flow.to, one.probe.protocol, one.flow.port)


@contextmanager
def _owning(lab: ServiceLab, addresses: Iterable[str]) -> Iterator[None]:
    """Give node-1 addresses of load balancers for the body, as programs do that announce them from a node."""
    for address in addresses:
        lab.run(THIS, "ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
    try:
        yield
    finally:
        for address in addresses:
            lab.run(THIS, "ip", "addr", "del", address, "dev", "lo")


def placed(scenario: Scenario, family: Family) -> Scenario:
    """Put a scenario into the world of a family, in which both may be served at once.

    The IPv6 one has namespaces and node ports of its own: in a cluster no two Services share either.
    """
    found = in_world(scenario, WORLDS[family])
    if family == "ip":
        return found
    return found._replace(
        objects=tuple(_apart(one) for one in found.objects),
        flows=tuple(one._replace(port=_port(one.port)) for one in found.flows),
    )


def _apart(obj: Mapping[str, Any]) -> Object:
    moved = {**obj, "metadata": {**obj["metadata"], "namespace": f"{obj['metadata'].get('namespace', 'default')}-6"}}
    spec = dict(obj.get("spec") or {})
    if "ports" in spec:
        numbers = ("port", "nodePort")
        spec["ports"] = [
            {key: _port(value) if key in numbers else value for key, value in one.items()} for one in spec["ports"]
        ]
    if "healthCheckNodePort" in spec:
        spec["healthCheckNodePort"] = _port(spec["healthCheckNodePort"])
    return {**moved, **({"spec": spec} if spec else {})}


def _port(number: int) -> int:
    return number + _APART if number in NODE_PORTS else number


def _settings(scenario: Scenario) -> Mapping[str, Any]:
    """Give the settings of both families at once: addresses and ranges are lists of one for each."""
    four, six = (placed(scenario, family).settings for family in FAMILIES)
    return {name: four[name] if four[name] == six[name] else f"{four[name]},{six[name]}" for name in four}


def differences(lab: ServiceLab, proxy: Proxy, scenarios: Iterable[Scenario]) -> dict[str, list[str]]:
    """Send the flows of scenarios in both families, and give what is wrong, by scenario."""
    markers = Markers(lab)
    found: dict[str, list[str]] = {}
    groups: dict[Any, list[Scenario]] = {}
    for scenario in scenarios:
        settings = _settings(scenario)
        groups.setdefault((tuple(sorted(settings.items())), scenario.zone), []).append(scenario)
    for (settings, zone), these in groups.items():
        name = str(dict(settings).get("service_proxy_name", ""))
        labels = {"service.kubernetes.io/service-proxy-name": name} if name else {}
        try:
            proxy.replace(markers.next(labels))
            with proxy.running(dict(settings), zone):
                for scenario in these:
                    if faults := _of_one(lab, proxy, markers, labels, scenario):
                        found[scenario.name] = faults
        except NotTakenError as error:
            found |= {scenario.name: [str(error)] for scenario in these}
    return found


def _of_one(
    lab: ServiceLab, proxy: Proxy, markers: Markers, labels: Mapping[str, str], scenario: Scenario
) -> list[str]:
    both = {family: placed(scenario, family) for family in scenario.families}
    flows = [one for family, here in both.items() for one in _sent(family, here)]
    _serve_untouched(lab, flows)
    try:
        proxy.replace([*(obj for here in both.values() for obj in here.objects), *markers.next(labels)])
    except NotTakenError as error:
        return [str(error)]
    markers.wait()
    faults = send(lab, [one for one in flows if one.sender not in _BALANCERS])
    owned = [one for one in flows if one.sender in _BALANCERS]
    with _owning(lab, {one.flow.sender for one in owned}):
        return faults + send(lab, owned)
