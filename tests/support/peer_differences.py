"""Where podgate does something else than kube-proxy, and which of that is known.

Here: every packet's answers side by side, what kube-proxy does differently for a reason, a finding as text. Not here:
how answers are got (peer_answers.py, peer_proxies.py).
Invariant: each name is a row of docs/critiques/kube-proxy.md, and stands for as few packets as can be told.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from podgate.lab.kinds import Object
from podgate.model.machine import Family
from tests.support.peer_answers import Answer, by_rules
from tests.support.peer_clusters import NODES, TYPES
from tests.support.peer_proxies import Snapshot
from tests.support.peer_ruleset import Sent

_Place = tuple[str, str]
"""Namespace and name."""

TOLD_TWICE: Final = "an endpoint is told twice"
NO_NODE: Final = "an endpoint of no node reaches itself"
OTHERS_IP: Final = "an address of a load balancer, or an external IP, is another Service's cluster IP"
NODE_PORT_TOO: Final = "an address of this node is a Service's, at a port that is another one's node port"
CLOSED: Final = "iptables: without endpoints a node port is refused at all addresses, also where it is not open"
FROM_NODE: Final = "iptables: what the node sends outside for a Service without endpoints is not refused"
NOT_LET_IN: Final = "iptables: without endpoints also who is not let in is refused, instead of dropped"
UNGUARDED: Final = "iptables: source ranges do not guard a load balancer's address that is an external IP as well"
ITSELF: Final = "iptables: an endpoint of another node that reaches itself is masqueraded"
MORE_PORTS: Final = "a health check counts endpoints of ports that the Service does not have"
"""What is known of differences."""

_LEFT_OUT: Final = ("managedFields", "uid", "resourceVersion", "generation")


class Difference(NamedTuple):
    """One packet, and what becomes of it: by kube-proxy, by podgate's rules, as ``explain`` tells."""

    sent: Sent
    theirs: Answer
    ours: Answer
    explained: Answer

    def __str__(self) -> str:
        origin = "this node" if self.sent.is_own else f"{self.sent.source} ({self.sent.interface})"
        lines = [f"{origin} -> {self.sent.destination}:{self.sent.port}/{self.sent.protocol}"]
        for name, answer in (("kube-proxy", self.theirs), ("podgate", self.ours), ("explain", self.explained)):
            lines.append(f"  {name}: {_words(answer)}")
        return "\n".join(lines)


def _words(answer: Answer) -> str:
    sticky = f", stays {answer.sticky} s" if answer.sticky else ""
    ends = (f"{each}{' masqueraded' if each in answer.masqueraded else ''}" for each in sorted(answer.endpoints))
    return f"{answer.verdict} {', '.join(ends)}{sticky}".strip()


class Compared(NamedTuple):
    """What came of a snapshot.

    Attributes:
        decisions: how many packets were compared.
        verdicts: how many of each of kube-proxy's verdicts there were.
        known: how many differences there were that have a name.
        findings: what nobody has explained, by Service.
        unwell: health check node ports that count other endpoints, each as a line.
    """

    decisions: int
    verdicts: Mapping[str, int]
    known: Mapping[str, int]
    findings: Mapping[_Place, list[Difference]]
    unwell: list[str]


class Asked:
    """The Services of a snapshot, by what they ask for.

    Attributes:
        unplaced: addresses that some slice tells without a node.
        cluster_ips: of all Services.
    """

    def __init__(self, objects: Iterable[Object]) -> None:
        self.unplaced: set[str] = set()
        self.cluster_ips: set[str] = set()
        self._slices: dict[_Place, list[Object]] = {}
        self._by: dict[tuple[str, str, int], Object] = {}
        for obj in objects:
            labels, namespace = obj["metadata"].get("labels", {}), obj["metadata"].get("namespace", "")
            if obj["kind"] == "EndpointSlice":
                service = labels.get("kubernetes.io/service-name", "")
                self._slices.setdefault((namespace, service), []).append(obj)
                ends = (each for each in obj.get("endpoints") or () if not each.get("nodeName"))
                self.unplaced.update(each["addresses"][0] for each in ends)
            elif obj["kind"] == "Service":
                self.cluster_ips.update(obj["spec"].get("clusterIPs", ()))
                for key in _asked(obj):
                    self._by[key] = obj

    def service(self, sent: Sent) -> Object | None:
        """Give the Service that a packet is for."""
        protocol = sent.protocol.upper()
        return self._by.get((sent.destination, protocol, sent.port)) or self._by.get(("", protocol, sent.port))

    def is_node_port_too(self, sent: Sent) -> bool:
        """Whether one Service has the destination, and another one its port as a node port."""
        protocol = sent.protocol.upper()
        return all(key in self._by for key in ((sent.destination, protocol, sent.port), ("", protocol, sent.port)))

    def has_address(self, sent: Sent) -> bool:
        """Whether a Service has the destination, not as a node port alone."""
        return (sent.destination, sent.protocol.upper(), sent.port) in self._by

    def is_guarded(self, sent: Sent) -> bool:
        """Whether source ranges narrow who may use the Service."""
        service = self.service(sent)
        return service is not None and bool(service["spec"].get("loadBalancerSourceRanges"))

    def is_external_ip(self, sent: Sent) -> bool:
        """Whether the destination is an external IP of its Service."""
        service = self.service(sent)
        return service is not None and sent.destination in service["spec"].get("externalIPs", ())

    def slices(self, service: Object) -> list[Object]:
        """Give its slices."""
        return self._slices.get(place(service), [])

    def endpoints(self, service: Object, sent: Sent) -> list[Object]:
        """Give its endpoints of the packet's family."""
        wanted = TYPES["ip6" if ":" in sent.destination else "ip"]
        own = (each for each in self.slices(service) if each["addressType"] == wanted)
        return [each for found in own for each in found.get("endpoints") or ()]


def place(obj: Object) -> _Place:
    """Give an object's namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _asked(service: Object) -> Iterator[tuple[str, str, int]]:
    spec = service["spec"]
    given = [each.get("ip") for each in service.get("status", {}).get("loadBalancer", {}).get("ingress", ())]
    for port in spec.get("ports", ()):
        for address in (*spec.get("clusterIPs", ()), *spec.get("externalIPs", ()), *given):
            yield address, port["protocol"], port["port"]
        if "nodePort" in port:
            yield "", port["protocol"], port["nodePort"]


def _is_told_twice(endpoints: Iterable[Object]) -> bool:
    """Whether an address is told twice, and not the same."""
    seen: dict[str, Any] = {}
    for endpoint in endpoints:
        hints, conditions = endpoint.get("hints") or {}, endpoint.get("conditions") or {}
        told = (
            endpoint.get("nodeName") == NODES[0],
            *(conditions.get(key) for key in ("ready", "serving", "terminating")),
            *(tuple(sorted(each["name"] for each in hints.get(key) or ())) for key in ("forZones", "forNodes")),
        )
        if seen.setdefault(endpoint["addresses"][0], told) != told:
            return True
    return False


def _is_itself(difference: Difference) -> bool:
    """Whether all that differs is that podgate masquerades an endpoint that reaches itself."""
    theirs, ours, source = difference.theirs, difference.ours, difference.sent.source
    itself = {each for each in ours.endpoints if each.startswith((f"{source}:", f"[{source}]:"))}
    return ours == theirs._replace(sticky=0, masqueraded=theirs.masqueraded | itself)


def _known(asked: Asked, endpoints: list[Object], difference: Difference) -> str:
    """Name what is known of a difference; empty where nothing is."""
    if _is_told_twice(endpoints):
        return TOLD_TWICE
    if difference.sent.source in asked.unplaced and _is_itself(difference):
        return NO_NODE
    if asked.is_node_port_too(difference.sent) and "forward" not in (
        difference.ours.verdict,
        difference.explained.verdict,
    ):
        return NODE_PORT_TOO
    is_anothers = difference.sent.destination in asked.cluster_ips and _is_at_other_ips(asked, difference.sent)
    return OTHERS_IP if is_anothers and _is_masqueraded_more(difference) else ""


def _known_of_chains(asked: Asked, difference: Difference) -> str:
    """Name what is known in iptables mode; docs/design/services.md has the reasons."""
    sent, theirs, ours, _ = difference
    refused = ("reject", "drop")
    if theirs.verdict in refused and ours.verdict == "none" and not asked.has_address(sent):
        return CLOSED
    if sent.is_own and theirs.verdict == "none" and ours.verdict in refused:
        return FROM_NODE
    if (theirs.verdict, ours.verdict) == ("reject", "drop") and asked.is_guarded(sent):
        return NOT_LET_IN
    if (theirs.verdict, ours.verdict) == ("forward", "drop") and asked.is_guarded(sent) and asked.is_external_ip(sent):
        return UNGUARDED
    itself = {each for each in ours.endpoints if each.startswith((f"{sent.source}:", f"[{sent.source}]:"))}
    return ITSELF if theirs == ours._replace(masqueraded=ours.masqueraded | itself) else ""


def _is_at_other_ips(asked: Asked, sent: Sent) -> bool:
    service = asked.service(sent)
    return service is not None and sent.destination not in service["spec"]["clusterIPs"]


def _is_masqueraded_more(difference: Difference) -> bool:
    """Whether all that differs is that kube-proxy masquerades endpoints."""
    theirs, ours = difference.theirs, difference.ours
    plain = theirs._replace(sticky=0, masqueraded=ours.masqueraded)
    return plain == ours == difference.explained._replace(sticky=0) and theirs.masqueraded > ours.masqueraded


def compare(snapshot: Snapshot, sent: Iterable[Sent]) -> Compared:
    """Compare what becomes of packets."""
    asked = Asked(snapshot.objects)
    verdicts, known = Counter[str](), Counter[str]()
    findings: dict[_Place, list[Difference]] = {}
    for each in sent:
        family: Family = "ip6" if ":" in each.destination else "ip"
        theirs, ours = (by_rules(rules[family], each) for rules in (snapshot.rules, snapshot.told.rules))
        explained = snapshot.told.explained(each)
        if snapshot.mode == "iptables":  # its rules do not show of a first packet how long its client stays
            explained = explained._replace(sticky=0)
        verdicts[theirs.verdict] += 1
        if theirs._replace(sticky=0) == ours and theirs == explained:
            continue
        found = Difference(each, theirs, ours, explained)
        service = asked.service(each)
        endpoints = [] if service is None else asked.endpoints(service, each)
        if name := _known(asked, endpoints, found) or (
            _known_of_chains(asked, found) if snapshot.mode == "iptables" else ""
        ):
            known[name] += 1
        else:
            findings.setdefault(place(service) if service else ("", ""), []).append(found)
    unwell = list(_unwell(asked, snapshot, known))
    return Compared(verdicts.total(), verdicts, known, findings, unwell)


def _unwell(asked: Asked, snapshot: Snapshot, known: Counter[str]) -> Iterator[str]:
    """Give health check node ports that differ; count what is known of them."""
    for (port, family), theirs in snapshot.health.items():
        check = snapshot.told.intent.health_checks.get(port)
        ours = None if check is None else check.of(family)
        if ours == theirs:
            continue
        service = next(each for each in snapshot.objects if each.get("spec", {}).get("healthCheckNodePort") == port)
        slices = [each for each in asked.slices(service) if each["addressType"] == TYPES[family]]
        own = {(each.get("name", ""), each["protocol"]) for each in service["spec"]["ports"]}
        others = {(each.get("name", ""), each["protocol"]) for found in slices for each in found.get("ports") or ()}
        if not others <= own and (theirs or 0) > (ours or 0):
            known[MORE_PORTS] += 1
        elif _is_told_twice([each for found in slices for each in found.get("endpoints") or ()]):
            known[TOLD_TWICE] += 1
        else:
            yield f"{'/'.join(place(service))}: health check node port, {family}: kube-proxy {theirs}, podgate {ours}"
            yield from _shown(service, *slices)


def _shown(*objects: Object) -> Iterator[str]:
    for obj in objects:
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _LEFT_OUT}
        yield json.dumps({**obj, "metadata": metadata})


def told(snapshot: Snapshot, compared: Compared, most: int = 3) -> Iterator[str]:
    """Give findings as text: some packets of some Services, with the objects that they are about."""
    asked = Asked(snapshot.objects)
    yield from compared.unwell
    for where, differences in list(compared.findings.items())[:most]:
        yield f"{'/'.join(where)}: {len(differences)} packets"
        yield from map(str, differences[:most])
        service = asked.service(differences[0].sent)
        yield from () if service is None else _shown(service, *asked.slices(service))
    if len(compared.findings) > most:
        yield f"and {len(compared.findings) - most} more Services"
