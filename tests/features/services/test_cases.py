"""The case files: from what users wrote to what a node does for Services, explained and complained about."""

from collections.abc import Mapping
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from podgate.commandline.options import options_of, settings_from
from podgate.features.services.addresses import address_text, endpoint_text, with_port
from podgate.features.services.check import check
from podgate.features.services.compile import Compiler
from podgate.features.services.explain import Asker, answer_line
from podgate.features.services.intent import FAMILIES, FamilyIntent, Guard, HealthCheck, Intent, ServicePort
from podgate.features.services.node import here_of
from podgate.features.services.settings import Settings
from podgate.joints import Compiled, Inputs, QuestionError
from podgate.model.documents import parse
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.nodes import NODE
from podgate.model.machine import Address, Machine
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent
from podgate.sources.objects import raw_ref
from tests.support.cases import Case, read_cases
from tests.support.service_inputs import inputs_of, node_object

CASES = read_cases(*sorted((Path(__file__).parent / "cases").glob("*.case")))
EXPECTED = ("ports", "node", "health", "problems", "unknown", "degraded", "explain", "check")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    expected = {section.name: section.lines for section in case.sections if section.name in EXPECTED}
    assert expected, "the case expects nothing"
    inputs, settings = case_inputs(case)
    compiled = Compiler(settings, lambda intent: intent)(inputs)
    asked = Asked(compiled, inputs, settings, written(case))
    assert {name: actual(asked, name, lines) for name, lines in expected.items()} == expected


class Asked(NamedTuple):
    """What expected sections are about."""

    compiled: Compiled[Intent]
    inputs: Inputs
    settings: Settings
    written: Mapping[ObjectRef, Any]


def actual(asked: Asked, name: str, lines: list[str]) -> list[str]:
    """Give what the product says, in the form of an expected section."""
    compiled, inputs = asked[:2]
    intent = compiled.states
    match name:
        case "ports":
            return [port_line(port) for family in FAMILIES for port in ports_of(intent.of(family))] or ["none"]
        case "node":
            return [node_line(part) for family in FAMILIES if (part := intent.of(family)) is not None]
        case "health":
            checks = sorted(intent.health_checks.items())
            return [f"{port}: {health_text(each)}" for port, each in checks] or ["none"]
        case "problems":
            found = [problem for ref in sorted(compiled.problems) for problem in compiled.problems[ref]]
            return [printed(problem) for problem in found] or ["none"]
        case "unknown":
            assert compiled.holds is bool(intent.unknown)
            return [intent.unknown] if intent.unknown else ["nothing"]
        case "degraded":
            return [compiled.degraded]
        case "check":
            return [printed(problem) for problem in check(intent, *asked[1:])] or ["nothing"]
    return [f"{question} -> {answered(question, compiled, inputs)}" for question in questions(lines)]


def health_text(check: HealthCheck) -> str:
    counts = {"IPv4": check.of("ip"), "IPv6": check.of("ip6")}
    shown = ", ".join(f"{name} {count}" for name, count in counts.items() if count is not None)
    return f"{check.namespace}/{check.name} {shown}"


def ports_of(part: FamilyIntent | None) -> list[ServicePort]:
    return [] if part is None else [port for ref in sorted(part.ports) for port in part.ports[ref]]


def port_line(port: ServicePort) -> str:
    words = [f"{port.name} {with_port(port.cluster_ip, port.port)}/{port.protocol}"]
    if port.external:
        words.append(f"also {', '.join(map(address_text, port.external))}")
    if port.node_port:
        words.append(f"node port {port.node_port}")
    if port.sticky:
        words.append(f"sticky {port.sticky}")
    if port.guard is not None:
        words.append(guard_text(port.guard))
    words += ["internal local"] * port.internal_local + ["external local"] * port.external_local
    none = "elsewhere" if port.anywhere else "nothing"
    words.append(f"-> {shown(port.cluster) or none}")
    if port.internal_local or port.external_local:
        words.append(f"local: {shown(port.local) or none}")
    if port.protocol == "udp" and port.serving != port.cluster:
        words.append(f"serving: {shown(port.serving) or 'nothing'}")
    if port.own:
        words.append(f"own: {', '.join(map(address_text, port.own))}")
    return " ".join(words)


def guard_text(guard: Guard) -> str:
    ranges = [f"{address_text(first)}-{address_text(last)}" for first, last in guard.sources]
    return f"guard {', '.join(map(address_text, guard.addresses))} from {', '.join(ranges) or 'nobody'}"


def shown(endpoints: tuple[bytes, ...]) -> str:
    assert list(endpoints) == sorted(set(endpoints))
    return ", ".join(map(endpoint_text, endpoints))


def node_line(part: FamilyIntent) -> str:
    node = part.node
    opened = "all" if node.node_port_ips is None else ", ".join(map(address_text, node.node_port_ips)) or "none"
    local = node.local.interface or ", ".join(node.local.ranges) or "unknown"
    words = [f"{part.family}: pods {local}; node ports on {opened}", f"mark {node.mark:#x}"]
    words += ["localhost" + " by us" * node.proxied] * node.localhost + ["masquerade all"] * node.masquerade_all
    if node.service_ranges:
        words.append(f"services in {', '.join(node.service_ranges)}")
    return "; ".join(words)


def printed(problem: Problem) -> str:
    field = f" {problem.field}" if problem.field else ""
    return f"{problem.ref}: {problem.severity} {problem.reason}{field}: {problem.message}"


def questions(lines: list[str]) -> list[str]:
    return [line.partition(" -> ")[0] for line in lines]


def answered(question: str, compiled: Compiled[Intent], inputs: Inputs) -> str:
    text, _, who = question.partition(" from ")
    node = inputs.objects.objects(NODE).get(ObjectRef("Node", "node-1"))
    here = here_of("node-1", node, inputs.machine)
    try:
        asker = Asker(compiled.states, inputs, here, who or None, compiled.problems)
        return "; ".join(map(answer_line, asker.answers(text)))
    except QuestionError as error:
        return f"not understood: {error}"


def written(case: Case) -> Mapping[ObjectRef, Any]:
    section = case.one("objects")
    documents = parse(section.data).documents if section else ()
    return {ref: each for each in documents if (ref := raw_ref(each, None)) is not None}


def case_inputs(case: Case) -> tuple[Inputs, Settings]:
    section = case.one("settings")
    types = {spec.name: spec.type for spec in options_of(Settings)}
    given: dict[str, Any] = {}
    for line in section.lines if section else []:
        key, _, value = line.partition(": ")
        given[key] = value == "true" if types[key] is bool else types[key](value)
    settings = settings_from(Settings, {"node_name": "node-1", **given})
    objects = []
    if (section := case.one("objects")) is not None:
        parsed = parse(section.data)
        assert not parsed.faults, parsed.faults
        objects += [each for each in parsed.documents if each is not None]
    if not any(each["kind"] == "Node" for each in objects):
        objects.append(node_object("node-1", "192.168.0.2", "fd00:1::2"))
    absent = {kind: Absent(cast("Any", section.lines[0])) for kind, section in case.starting("absent")}
    section = case.one("machine")
    addresses = [line.split() for line in section.lines] if section else []
    machine = Machine("node-1", (), tuple(Address(device, ip_interface(text)) for device, text in addresses))
    return inputs_of(objects, settings, machine, absent), settings
