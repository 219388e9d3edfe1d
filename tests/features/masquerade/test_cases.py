"""The case files: from what a user wrote to what is in force, explained and complained about."""

from ipaddress import IPv4Address, ip_address, ip_interface, ip_network
from pathlib import Path

import msgspec
import pytest

from podgate.features.masquerade.check import check
from podgate.features.masquerade.compile import KEPT, Compiler
from podgate.features.masquerade.durations import text_of
from podgate.features.masquerade.explain import Unanswerable, explain, source_text
from podgate.features.masquerade.intent import Intent, Spans
from podgate.features.masquerade.prefixes import networks_of
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_nftables import Writer
from podgate.joints import Compiled, ForeignRule, Inputs
from podgate.model.documents import locate, parse
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.kinds.meta import ref_of
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD, Pod
from podgate.model.machine import Address, Interface, IPAddress, Machine, Route
from podgate.model.options import settings_from
from podgate.model.problems import Problem
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from podgate.targets.nftables.render import render
from tests.support.cases import Case, read_cases

CASES = read_cases(*sorted((Path(__file__).parent / "cases").glob("*.case")))
EXPECTED = ("outcome", "own", "rules", "explain", "check")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    expected = {section.name: section.lines for section in case.sections if section.name in EXPECTED}
    assert expected, "the case expects nothing"
    assert {name: actual(case, name, lines) for name, lines in expected.items()} == expected


def actual(case: Case, name: str, lines: list[str]) -> list[str]:
    """Give what the product says, in the form of an expected section."""
    inputs = inputs_of(case)
    compiled = Compiler(settings_of(case), lambda intent: intent)(inputs)
    if name == "outcome":
        return outcome(compiled, inputs)
    if name == "own":
        return [shown(part.own_pods) for part in compiled.states.families]
    if name == "rules":
        return [line for line in render(Writer("ip")(compiled.states)).splitlines() if line.strip()]
    if name == "explain":
        return [f"{question.strip()} -> {answered(question, compiled.states, inputs)}" for question in questions(lines)]
    return [printed(problem, inputs) for problem in check(compiled.states, inputs, foreign_of(case))] or ["nothing"]


def outcome(compiled: Compiled[Intent], inputs: Inputs) -> list[str]:
    intent = compiled.states
    lines = [f"in force: {intent.in_force}", f"keep: {' '.join(shown(part.keep) for part in intent.families)}"]
    if intent.resync_seconds != 60:
        lines.append(f"resync: {text_of(intent.config.resync_interval)}")
    if compiled.degraded:
        lines.append("not ready")
    problems = [problem for ref in sorted(compiled.problems) for problem in compiled.problems[ref]]
    return lines + [printed(problem, inputs) for problem in problems]


def shown(spans: Spans) -> str:
    return ", ".join(str(network) for span in sorted(spans) for network in networks_of(span, "ip")) or "nothing"


def printed(problem: Problem, inputs: Inputs) -> str:
    name = problem.ref.name if problem.ref.kind == "File" else str(problem.ref)
    line = line_of(inputs, problem.ref, problem.field)
    where = name.replace(DEFAULT_CONFIG, "config") + (f":{line}" if line else "")
    field = f" {problem.field}" if problem.field else ""
    return f"{where}: {problem.severity} {problem.reason}{field}: {problem.message}"


def line_of(inputs: Inputs, ref: ObjectRef, field: str) -> int | None:
    content = inputs.files.get(ref.name) if ref.kind == "File" else None
    return locate(content.data, 0, field) if isinstance(content, Present) else None


def questions(lines: list[str]) -> list[str]:
    return [line.partition("->")[0] for line in lines]


def answered(question: str, intent: Intent, inputs: Inputs) -> str:
    address, _, sender = question.strip().partition(" from ")
    answer = explain(intent, ip_address(address), sender_of(sender, inputs) if sender else None)
    if isinstance(answer, Unanswerable):
        return answer.message
    source = source_text(answer.source, lambda ref, field: line_of(inputs, ref, field))
    return f"{answer.action}, {answer.rule}, {source.replace(DEFAULT_CONFIG, 'config')}"


def sender_of(text: str, inputs: Inputs) -> IPAddress | Pod:
    if "/" not in text:
        return ip_address(text)
    namespace, name = text.split("/")
    return inputs.objects.objects(POD)[ObjectRef("Pod", name, namespace)]


def settings_of(case: Case) -> Settings:
    section = case.one("settings")
    given = parse(section.data).documents[0] if section else {}
    return settings_from(Settings, {"node_name": "node-1", **given})


def inputs_of(case: Case) -> Inputs:
    files: dict[str, FileContent] = {path: Present(section.data) for path, section in case.starting("file")}
    files |= {path: Missing(dangling=True) for path, _ in case.starting("dangling")}
    files |= {path: Unreadable("Permission denied") for path, _ in case.starting("unreadable")}
    for path, _ in case.starting("directory"):
        names = sorted(known.rpartition("/")[2] for known in files if known.rpartition("/")[0] == path)
        files[path] = Directory(tuple(names))
    config = case.one("config")
    if config is not None:
        files[DEFAULT_CONFIG] = Present(config.data)
    return Inputs(objects=objects_of(case), files=files, machine=machine_of(case), kept=kept_of(case))


def kept_of(case: Case) -> dict[str, bytes]:
    section = case.one("kept")
    if section is None:
        return {}
    if section.text.startswith("raw "):
        return {KEPT: section.data[4:]}
    earlier = Inputs(files={DEFAULT_CONFIG: Present(section.data)})
    return dict(Compiler(Settings(), lambda intent: intent)(earlier).keep)


def objects_of(case: Case) -> Snapshot:
    section = case.one("objects")
    found: dict[str, dict[ObjectRef, object]] = {kind.kind: {} for kind in (NODE, POD, CONFIG_MAP)}
    for document in parse(section.data).documents if section else ():
        kind = next(each for each in (NODE, POD, CONFIG_MAP) if each.kind == document["kind"])
        value = msgspec.convert(document, kind.decodes_to)
        found[kind.kind][ref_of(kind, value.metadata)] = value
    return Snapshot({kind: Listed(Table.of(objects)) for kind, objects in found.items()})


def machine_of(case: Case) -> Machine:
    section = case.one("machine")
    interfaces: list[Interface] = []
    addresses: list[Address] = []
    routes: list[Route] = []
    for line in section.lines if section else []:
        word, *rest = line.split()
        options = {key: rest[rest.index(key) + 1] for key in ("via", "dev", "master") if key in rest}
        if word == "link":
            kind = rest[1] if len(rest) > 1 and rest[1] != "master" else ""
            interfaces.append(Interface(rest[0], len(interfaces) + 1, kind, options.get("master", "")))
        elif word == "addr":
            address = ip_interface(rest[1])
            last = address.network.broadcast_address
            wide = address.version == 4 and address.network.prefixlen < 31
            addresses.append(
                Address(rest[0], address, broadcast=last if wide and isinstance(last, IPv4Address) else None)
            )
        else:
            assert word == "route", line
            gateway = ip_address(options["via"]) if "via" in options else None
            routes.append(Route(ip_network(rest[0]), options["dev"], gateway))
    return Machine("node-1", tuple(interfaces), tuple(addresses), tuple(routes))


def foreign_of(case: Case) -> list[ForeignRule]:
    section = case.one("foreign")
    rules = []
    for line in section.lines if section else []:
        place, _, text = line.partition(": ")
        family, table, chain = place.split()
        rules.append(ForeignRule(f"{family} {table}", chain, text))
    return rules
