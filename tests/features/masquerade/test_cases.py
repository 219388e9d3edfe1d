"""The case files: from what a user wrote to what is in force, explained and complained about."""

from ipaddress import IPv4Address, ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from podgate.commandline.options import settings_from
from podgate.features.masquerade.check import check
from podgate.features.masquerade.compile import KEPT, Compiler
from podgate.features.masquerade.explain import Unanswerable, explain, source_text
from podgate.features.masquerade.intent import Intent, PolicyIntent, Spans
from podgate.features.masquerade.policy import MASQUERADE_POLICY
from podgate.features.masquerade.ports import Ports, ports_text
from podgate.features.masquerade.prefixes import networks_of
from podgate.features.masquerade.resolving import namespace_labels
from podgate.features.masquerade.senders import namespace_of, sender_of
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.features.masquerade.to_kubernetes import PolicyTelling
from podgate.features.masquerade.to_nftables import Writer
from podgate.joints import Compiled, ForeignRule, Inputs
from podgate.model.documents import locate, parse
from podgate.model.durations import text_of
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP, NAMESPACE
from podgate.model.kinds.meta import ref_of
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.machine import Address, Family, Interface, IPAddress, Machine, Route
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table
from podgate.targets.nftables.render import render
from tests.support.cases import Case, read_cases

OTHERS = ("agent_text",)
"""Case files with sections of their own, which test_to_iptables.py reads."""
CASES = read_cases(
    *sorted(path for path in (Path(__file__).parent / "cases").glob("*.case") if path.stem not in OTHERS)
)
EXPECTED = ("outcome", "own", "rules", "explain", "check", "status")


class Whole(NamedTuple):
    """States that hold an intent, as those of all back ends do."""

    intent: Intent


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    expected = {section.name: section.lines for section in case.sections if section.name in EXPECTED}
    assert expected, "the case expects nothing"
    assert {name: actual(case, name, lines) for name, lines in expected.items()} == expected


def actual(case: Case, name: str, lines: list[str]) -> list[str]:
    """Give what the product says, in the form of an expected section."""
    inputs = inputs_of(case)
    if name == "status":
        return standings(case, inputs)
    compiled = Compiler(settings_of(case), lambda intent: intent)(inputs)
    if name == "outcome":
        return outcome(compiled, inputs)
    if name == "own":
        return [shown(part.own_pods, part.family) for part in compiled.states.families]
    if name == "rules":
        tables = (render(Writer(part.family)(compiled.states)) for part in compiled.states.families)
        return [line for table in tables for line in table.splitlines() if line.strip()]
    if name == "explain":
        return [f"{question.strip()} -> {answered(question, compiled.states, inputs)}" for question in questions(lines)]
    return [printed(problem, inputs) for problem in check(compiled.states, inputs, foreign_of(case))] or ["nothing"]


def standings(case: Case, inputs: Inputs) -> list[str]:
    """Write each policy's conditions, and what this node does instead of what it says."""
    compiled = Compiler(settings_of(case), Whole)(inputs)
    tells = PolicyTelling()
    conditions, instead = tells.conditions(compiled, inputs), tells.instead(compiled, inputs)
    lines = []
    for ref in sorted(conditions):
        lines += [
            f"{ref.name}: {each.type} {each.holds} {each.reason}{f': {each.message}' if each.message else ''}"
            for each in conditions[ref]
        ]
        lines += [f"{ref.name}: here {instead[ref]}"] if ref in instead else []
    return lines


def outcome(compiled: Compiled[Intent], inputs: Inputs) -> list[str]:
    intent = compiled.states
    lines = [f"in force: {intent.in_force}"]
    for part in intent.families:
        lines.append(f"keep: {shown(part.keep, part.family)}")
        lines += [policy_line(policy, part.family) for policy in part.policies]
    if intent.resync_seconds != 60:
        lines.append(f"resync: {text_of(intent.config.resync_interval)}")
    if compiled.degraded:
        lines.append("not ready")
    problems = [problem for ref in sorted(compiled.problems) for problem in compiled.problems[ref]]
    return lines + [printed(problem, inputs) for problem in problems]


def policy_line(policy: PolicyIntent, family: Family) -> str:
    """Write ``policy NAME: from SOURCES to DESTINATIONS through INTERFACES: ACTION``."""
    sources = "all" if policy.sources is None else shown(policy.sources, family)
    destinations = "all" if policy.destinations is None else shown(policy.destinations, family)
    through = f" through {', '.join(policy.interfaces)}" if policy.interfaces else ""
    done = translation_text(policy.translation.action, policy.translation.address, policy.translation.ports)
    return f"policy {policy.ref.name}: from {sources} to {destinations}{through}: {done}"


def translation_text(action: str, address: IPAddress | None, ports: Ports) -> str:
    return action + (f" {address}" if address else "") + (f" ports {ports_text(ports)}" if ports else "")


def shown(spans: Spans, family: Family) -> str:
    return ", ".join(str(network) for span in sorted(spans) for network in networks_of(span, family)) or "nothing"


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
    rest, _, interface = question.strip().partition(" out ")
    address, _, sender = rest.strip().partition(" from ")
    who = sender_of(sender.strip(), inputs) if sender else None
    labels = namespace_labels(inputs.objects.objects(NAMESPACE), namespace_of(who))
    answer = explain(intent, ip_address(address), who, namespace_labels=labels, interface=interface or None)
    if isinstance(answer, Unanswerable):
        return answer.message
    source = source_text(answer.source, lambda ref, field: line_of(inputs, ref, field))
    done = translation_text(answer.action, answer.snat_address, answer.ports)
    return f"{done}, {answer.rule}, {source.replace(DEFAULT_CONFIG, 'config')}"


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
    policies = case.one("kept policies")
    if policies is not None:
        found = objects_in(policies.data)
        return dict(Compiler(Settings(enable_ipv6=True), lambda intent: intent)(Inputs(found)).keep)
    section = case.one("kept")
    if section is None:
        return {}
    if section.text.startswith("raw "):
        return {KEPT: section.data[4:]}
    earlier = Inputs(files={DEFAULT_CONFIG: Present(section.data)})
    return dict(Compiler(Settings(), lambda intent: intent)(earlier).keep)


def objects_of(case: Case) -> Snapshot:
    section = case.one("objects")
    absent = {kind: Absent(cast("Any", section.text.strip())) for kind, section in case.starting("absent")}
    snapshot = objects_in(section.data if section else b"")
    return Snapshot({**snapshot.kinds, **absent})


def objects_in(data: bytes) -> Snapshot:
    kinds = (NODE, POD, CONFIG_MAP, NAMESPACE, MASQUERADE_POLICY)
    found: dict[str, dict[ObjectRef, object]] = {kind.kind: {} for kind in kinds}
    for document in parse(data).documents:
        kind = next(each for each in kinds if each.kind == document["kind"])
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
