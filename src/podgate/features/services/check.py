"""check: Services that are valid and probably not what somebody meant.

Here: findings, and fields of files that no kind has. Not here: what else is invalid, which compile complains about by
itself (ports.py, slices.py, claims.py).
Invariant: each finding is about the node that was asked about, and says what to look at.
"""

import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

from podgate.commandline.checked import options_ref
from podgate.features.services.addresses import Span, address_text, family_of, span, within
from podgate.features.services.intent import FAMILIES, FamilyIntent, Intent, ServicePort
from podgate.features.services.lacking import lack_of, what_of
from podgate.features.services.settings import ALL, PRIMARY, Settings
from podgate.features.services.slices import READY, TERMINATING, SliceFacts, read_slice
from podgate.features.services.whose import is_ours
from podgate.joints import Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.discovery import ENDPOINT_SLICE
from podgate.model.kinds.services import SERVICE, Service
from podgate.model.knownfields import unknown_fields
from podgate.model.problems import Problem

_OPTIONS: Final = options_ref("services")

_LONG: Final = 10800
_Found = Iterator[tuple[str, str, str]]
"""Reasons, fields and messages."""


def check(
    intent: Intent, inputs: Inputs, settings: Settings, written: Mapping[ObjectRef, Any] = types.MappingProxyType({})
) -> tuple[Problem, ...]:
    """Give the findings, by Service and then by slice; ``written`` are objects as files have them."""
    everybodys = inputs.objects.objects(SERVICE)
    services = {ref: each for ref, each in everybodys.items() if is_ours(each, intent.proxy_name)}
    slices: dict[ObjectRef, dict[ObjectRef, SliceFacts]] = {}
    for ref, found in inputs.objects.objects(ENDPOINT_SLICE).items():
        facts = read_slice(ref, found)
        if facts is not None:
            slices.setdefault(facts.service, {})[ref] = facts
    knows_machine = bool(inputs.machine.addresses)
    findings = [Problem(_OPTIONS, "warning", *each) for each in _options(intent, settings, knows_machine=knows_machine)]
    for ref in sorted(services):
        own = slices.get(ref, {})
        findings += [Problem(ref, "warning", *each) for each in _service(intent, ref, services[ref], own)]
    for ref in sorted(slices):
        if ref not in everybodys:
            message = f"there is no {ref}, so nobody uses these endpoints: correct the label, or remove the slice"
            findings += [
                Problem(each, "warning", "NoSuchService", "metadata.labels", message) for each in sorted(slices[ref])
            ]
    return (*_unknown_fields(inputs, written), *findings)


def _unknown_fields(inputs: Inputs, written: Mapping[ObjectRef, Any]) -> Iterator[Problem]:
    """Complain about fields that no Service or slice has; what they were to say is lost."""
    for ref in (*sorted(inputs.objects.objects(SERVICE)), *sorted(inputs.objects.objects(ENDPOINT_SLICE))):
        bare = ObjectRef(ref.kind, ref.name) if ref.namespace == "default" else ref
        for field, message in unknown_fields(ref.kind, written.get(ref, written.get(bare))):
            yield Problem(ref, "error", "UnknownField", field, message)


def _options(intent: Intent, settings: Settings, *, knows_machine: bool) -> _Found:
    for family in FAMILIES:
        part = intent.of(family)
        if part is None or not part.ports:
            continue
        name = "IPv4" if family == "ip" else "IPv6"
        if not part.node.local:
            message = (
                f"nothing tells {name} traffic of Pods from other traffic, so externalTrafficPolicy: Local holds for "
                "Pods too, and traffic from outside to cluster IPs is not masqueraded: give the Pods' range"
            )
            yield "PodsUnknown", "--cluster-cidr", message
        words = settings.nodeport_words
        if part.node.node_port_ips is None and not {ALL, PRIMARY} & set(words) and not _names(words, part):
            message = (
                f"no {name} range is given, so {name} node ports are open on all addresses: give one of each family"
            )
            yield "NodePortsOpen", "--nodeport-addresses", message
        # Of another machine than this one only its Node's addresses are known, and a range may hold more.
        closed = part.node.node_port_ips == () and not part.node.localhost
        if closed and knows_machine and PRIMARY not in words and any(map(_has_node_port, part.ports.values())):
            message = f"they hold no {name} address of this node, so {name} node ports are open nowhere: add {PRIMARY}"
            yield "NodePortsClosed", "--nodeport-addresses", message


def _has_node_port(ports: tuple[ServicePort, ...]) -> bool:
    return any(port.node_port for port in ports)


def _names(words: tuple[str, ...], part: FamilyIntent) -> bool:
    return any((given := span(word)) is not None and family_of(given[0]) == part.family for word in words)


def _service(intent: Intent, ref: ObjectRef, service: Service, slices: Mapping[ObjectRef, SliceFacts]) -> _Found:
    spec = service.spec
    ports = [(part, port) for family in FAMILIES if (part := intent.of(family)) for port in part.ports.get(ref, ())]
    if not ports:
        if not spec.ports and spec.type != "ExternalName" and spec.cluster_ip not in ("", "None"):
            yield "NoPorts", "spec.ports", "it has no port, so nothing is done for it: add one"
        return
    yield from _cluster_ips(ports)
    if spec.external_ips and any(port.external for _, port in ports):
        message = "whoever may write a Service can take over any address so (CVE-2020-8554): use a load balancer"
        yield "ExternalIPs", "spec.externalIPs", message
    sticky = ports[0][1].sticky
    if sticky > _LONG:
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        message = f"clients stay with an endpoint for {sticky} s after their last connection: give less to spread load"
        yield "LongAffinity", field, message
    yield from _guards(service, ports)
    seen: set[tuple[str, str]] = set()
    for _, port in ports:
        for reason, field, message in _endpoints(port, slices):
            if (reason, message) not in seen:
                seen.add((reason, message))
                yield reason, field, message
    yield from _hints(slices)


def _cluster_ips(ports: list[tuple[FamilyIntent, ServicePort]]) -> _Found:
    for address, part in {port.cluster_ip: part for part, port in ports}.items():
        spans: list[Span] = [given for text in part.node.service_ranges if (given := span(text)) is not None]
        if spans and not within(address, tuple(spans)):
            message = f"{address_text(address)} is in no ServiceCIDR: another Service may not keep clear of it"
            yield "OutsideRanges", "spec.clusterIPs", message


def _guards(service: Service, ports: list[tuple[FamilyIntent, ServicePort]]) -> _Found:
    if not service.spec.load_balancer_source_ranges:
        return
    field = "spec.loadBalancerSourceRanges"
    guarded = {part.family for part, port in ports if port.guard is not None}
    for part, port in ports:
        open_to_all = [span(text.strip()) for text in service.spec.load_balancer_source_ranges]
        named = any(given is not None and family_of(given[0]) == part.family for given in open_to_all)
        if port.external and not named and part.family not in guarded and service.status.load_balancer.ingress:
            name = "IPv4" if part.family == "ip" else "IPv6"
            yield "RangesOfOneFamily", field, f"no range is {name}, so {name} addresses are open to all: give one"
            break
    opened = sorted({port.node_port for _, port in ports if port.node_port})
    if opened and guarded:
        numbers = ", ".join(map(str, opened))
        message = (
            f"they do not hold for node ports ({numbers}): set allocateLoadBalancerNodePorts: false, or filter there"
        )
        yield "NodePortsUnguarded", field, message


def _endpoints(port: ServicePort, slices: Mapping[ObjectRef, SliceFacts]) -> _Found:
    family = family_of(port.cluster_ip)
    own = [facts for facts in slices.values() if facts.family == family]
    if not port.anywhere:
        lack = lack_of(port, own)
        yield lack.reason, "spec.ports", lack.message
        return
    if port.internal_local and not port.local:
        message = "no endpoint is on this node, so connections to the cluster IP are dropped here"
        yield "NoneHere", "spec.internalTrafficPolicy", message
    if port.external_local and not port.local:
        message = "no endpoint is on this node, so connections from outside are dropped here"
        yield "NoneHere", "spec.externalTrafficPolicy", message
    used = {key[:-2] for key in (*port.cluster, *port.local)}
    states = [endpoint.state for facts in own for endpoint in facts.endpoints if endpoint.address in used]
    if states and all(state & TERMINATING and not state & READY for state in states):
        yield (
            "OnlyTerminating",
            "spec.ports",
            f"{what_of(port)}: all endpoints terminate: nothing is left when they have",
        )


def _hints(slices: Mapping[ObjectRef, SliceFacts]) -> _Found:
    for family in FAMILIES:
        ready = [
            endpoint
            for facts in slices.values()
            if facts.family == family
            for endpoint in facts.endpoints
            if endpoint.state & READY
        ]
        with_hints = sum(1 for endpoint in ready if endpoint.zones or endpoint.nodes)
        if 0 < with_hints < len(ready):
            message = f"only {with_hints} of {len(ready)} ready endpoints have hints, so that none counts"
            yield "HintsIncomplete", "", message
