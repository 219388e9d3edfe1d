"""Reading the case files of metadata: what the sections mean, and what the product says in their form."""

from ipaddress import ip_network

import msgspec

from podgate.commandline.options import settings_from
from podgate.features.metadata.compile import Compiler
from podgate.features.metadata.explain import Question, head_of
from podgate.features.metadata.filter import Decider
from podgate.features.metadata.head import BadRequest, Head, read_head
from podgate.features.metadata.intent import Intent, rule_lines
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.verdict import Verdict
from podgate.joints import Compiled, Inputs
from podgate.model.documents import locate, parse
from podgate.model.files import FileContent, Present
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ref_of
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.machine import Machine, Route
from podgate.model.snapshot import Listed, Snapshot
from podgate.model.table import Table
from tests.support.cases import Case

EXPECTED = ("requests", "answers", "upstream", "bytes", "problems", "rules")
SHORT = {"V1": "/computeMetadata/v1", "BETA": "/computeMetadata/v1beta1", "V0": "/0.1/meta-data"}
FLAVOR = "Metadata-Flavor: Google"
LENGTH = "Content-Length: "
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "FOO", "CONNECT", "get")


def actual(case: Case, name: str, lines: list[str]) -> list[str]:
    """Give what the product says, in the form of an expected section."""
    inputs = inputs_of(case)
    compiled = Compiler(settings_of(case), lambda intent: intent)(inputs)
    if name == "problems":
        return problems(compiled, inputs)
    if name == "rules":
        return rule_lines(compiled.states.rules)
    decider = Decider(compiled.states.filter)
    headers = tuple(section.lines if (section := case.one("headers")) else ())
    questions = [line.rpartition(" -> ")[0].rstrip() for line in lines]
    if name == "bytes":
        return [f"{question} -> {of_bytes(decider, question)}" for question in questions]
    return [f"{question} -> {of_request(decider, question, headers, inputs, name)}" for question in questions]


def of_bytes(decider: Decider, text: str) -> str:
    """Send bytes, escaped as in Python, as a connection would, one request after the other."""
    data = text.encode().decode("unicode_escape").encode("latin-1")
    said = []
    while data:
        head = read_head(data)
        if not isinstance(head, Head):
            said.append(f"{head.status} {head.reason}" if isinstance(head, BadRequest) else "waits for more")
            break
        kept = "" if head.keep_alive else ", then closes"
        said.append(short(decider.decide(head.request(""))) + kept)
        data = data[head.size + head.content_length :]
    return " | ".join(said)


def of_request(decider: Decider, text: str, headers: tuple[str, ...], inputs: Inputs, form: str) -> str:
    """Ask ``[METHOD] TARGET [+ Name: value]… [from NS/POD|ADDRESS]``."""
    asked, _, sender = text.partition(" from ")
    data = question_of(asked, headers)
    head = read_head(data)
    if not isinstance(head, Head):
        return f"{head.status} {head.reason}" if isinstance(head, BadRequest) else "waits for more"
    assert head.size + head.content_length == len(data), f"{text}: more than one request"
    verdict = decider.decide(head.request(source_of(sender, inputs)))
    if form == "answers":
        return f"{short(verdict)}, {verdict.rule}: {verdict.message}" if verdict.message else short(verdict)
    if form == "upstream":
        sent = ", ".join(f"{name.decode()}: {value.decode()}" for name, value in verdict.headers)
        return f"{verdict.target.decode()} [{sent}]" if verdict.action == "forward" else short(verdict)
    if verdict.action == "forward" and verdict.target != asked_target(asked).encode():
        return f"{short(verdict)} as {verdict.target.decode()}"
    return short(verdict)


def question_of(asked: str, headers: tuple[str, ...]) -> bytes:
    """Give the bytes of ``[METHOD] TARGET [+ Name: value]…``, with a body where its length is said."""
    first, *more = asked.split(" + ")
    method = first.partition(" ")[0]
    hidden = () if any(header.startswith("no ") for header in more) else headers
    given = tuple(header for header in more if not header.startswith("no "))
    question = Question(asked_target(asked), method if method in METHODS else "GET", (*hidden, *given))
    length = next((int(each[len(LENGTH) :]) for each in given if each.startswith(LENGTH)), 0)
    return head_of(question, "169.254.169.254") + b"x" * length


def asked_target(asked: str) -> str:
    """Give the target, written out."""
    first = asked.partition(" + ")[0]
    method, _, rest = first.partition(" ")
    target = rest if method in METHODS else first
    for word, path in SHORT.items():
        if target == word or target.startswith((f"{word}/", f"{word}?")):
            return path + target[len(word) :]
    return target


def short(verdict: Verdict) -> str:
    """Give a verdict without its rule and message."""
    if verdict.action == "deny":
        return f"{verdict.status} {verdict.reason}" + (f" (Allow: {verdict.allow})" if verdict.allow else "")
    marks = (
        f"audited {verdict.reason}" if verdict.audited else "",
        "waits" if verdict.waits else "",
        f"token {verdict.token}" if verdict.token != "none" else "",
        f"without {verdict.redact}" if verdict.redact else "",
    )
    noted = ", ".join(mark for mark in marks if mark)
    return f"forward ({noted})" if noted else "forward"


def source_of(text: str, inputs: Inputs) -> str:
    if "/" not in text:
        return text
    namespace, name = text.split("/")
    return inputs.objects.objects(POD)[ObjectRef("Pod", name, namespace)].addresses[0]


def problems(compiled: Compiled[Intent], inputs: Inputs) -> list[str]:
    found = []
    for ref in sorted(compiled.problems):
        for problem in compiled.problems[ref]:
            content = inputs.files.get(ref.name) if ref.kind == "File" else None
            line = locate(content.data, 0, problem.field) if isinstance(content, Present) else None
            where = f"{ref.name.rpartition('/')[2] if content else ref}" + (f":{line}" if line else "")
            field = f" {problem.field}" if problem.field else ""
            found.append(f"{where}: {problem.severity} {problem.reason}{field}: {problem.message}")
    return [*found, *([f"degraded: {compiled.degraded}"] if compiled.degraded else [])] or ["none"]


def settings_of(case: Case) -> Settings:
    section = case.one("settings")
    given = parse(section.data).documents[0] if section else {}
    if case.one("policy") is not None:
        given = {"policy": "/etc/policy.yaml", **given}
    return settings_from(Settings, {"node_name": "node-1", **given})


def inputs_of(case: Case) -> Inputs:
    files: dict[str, FileContent] = {path: Present(section.data) for path, section in case.starting("file")}
    policy = case.one("policy")
    if policy is not None:
        files["/etc/policy.yaml"] = Present(policy.data)
    routes = []
    machine = case.one("machine")
    for line in machine.lines if machine else []:
        destination, device = line.split(" dev ")
        routes.append(Route(ip_network(destination), device))
    return Inputs(objects_of(case), files, Machine("node-1", routes=tuple(routes)))


def objects_of(case: Case) -> Snapshot:
    section = case.one("objects")
    if section is None:
        return Snapshot()
    kinds = (NODE, POD, METADATA_POLICY)
    found: dict[str, dict[ObjectRef, object]] = {kind.kind: {} for kind in kinds}
    for document in parse(section.data).documents:
        kind = next(each for each in kinds if each.kind == document["kind"])
        value = msgspec.convert(document, kind.decodes_to)
        found[kind.kind][ref_of(kind, value.metadata)] = value
    return Snapshot({kind: Listed(Table.of(objects)) for kind, objects in found.items()})
