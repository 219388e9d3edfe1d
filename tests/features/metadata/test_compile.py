"""Compiling: what is not known makes the rules stricter, and equal inputs make equal states."""

from typing import Any

import msgspec
import pytest

from podgate.features.metadata.assemble import from_json_files
from podgate.features.metadata.clients import PodFacts, clients_of, source_text
from podgate.features.metadata.compile import Compiler, file_watches, intent_of
from podgate.features.metadata.filter import Client, Decider, Filter, NamedPolicy
from podgate.features.metadata.intent import Intent, RefusedPorts, closed
from podgate.features.metadata.policy import METADATA_POLICY, MetadataPolicy
from podgate.features.metadata.request import Request
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.spec import PolicySpec, Rule, Subjects
from podgate.joints import Inputs
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.pods import POD
from podgate.model.machine import Machine
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

TOKEN = Request(
    b"GET",
    b"/computeMetadata/v1/instance/service-accounts/default/token",
    ((b"Host", b"metadata"), (b"Metadata-Flavor", b"Google")),
    "10.64.0.2",
)
DENY = PolicySpec((Rule(("/computeMetadata/v1/instance/tags",), "deny"),))


def inputs(**kinds: Listed[Any] | Absent) -> Inputs:
    return Inputs(Snapshot({"Pod": Listed(Table()), "MetadataPolicy": Listed(Table()), **kinds}), machine=Machine("n"))


def forwards(filter_: Filter, request: Request = TOKEN) -> bool:
    return Decider(filter_).decide(request).action == "forward"


def test_without_a_source_everybody_has_the_profiles_rules() -> None:
    absent = Absent("no source")
    intent, problems = intent_of(Settings(), inputs(Pod=absent, MetadataPolicy=absent))
    assert (intent.filter, problems) == (Filter(), ())
    assert forwards(intent.filter)


@pytest.mark.parametrize("kind", ["Pod", "MetadataPolicy"])
def test_what_must_not_be_read_makes_everybodys_rules_the_strictest(kind: str) -> None:
    intent, _ = intent_of(Settings(), inputs(**{kind: Absent("forbidden")}))
    assert intent.filter.strictest
    assert not forwards(intent.filter)


def test_a_cluster_that_does_not_know_the_kind_has_no_such_policies() -> None:
    intent, _ = intent_of(Settings(), inputs(MetadataPolicy=Absent("not installed")))
    assert forwards(intent.filter)


@pytest.mark.parametrize(("kind", "strictest"), [("File", True), ("MetadataPolicy", True), ("Pod", False)])
def test_an_object_that_could_not_be_read_may_have_been_a_policy(kind: str, strictest: bool) -> None:
    fault = Problem(ObjectRef(kind, "x"), "error", "BadSyntax", "", "is broken")
    snapshot = Snapshot({"Pod": Listed(Table())}, (fault,))
    compiled = Compiler(Settings(), lambda intent: intent)(Inputs(snapshot))
    assert compiled.states.filter.strictest is strictest
    assert bool(compiled.degraded) is strictest
    assert compiled.problems[fault.ref] == (fault,)


def test_a_broken_object_is_complained_about_and_the_others_count() -> None:
    good, bad = ObjectRef("MetadataPolicy", "a"), ObjectRef("MetadataPolicy", "b")
    objects = {good: MetadataPolicy(spec={"rules": []}), bad: MetadataPolicy(spec={"rules": "x"})}
    intent, problems = intent_of(Settings(), inputs(MetadataPolicy=Listed(Table.of(objects))))
    assert [policy.name for policy in intent.filter.policies] == ["MetadataPolicy/a"]
    assert [(problem.ref, problem.field, problem.reason) for problem in problems] == [(bad, "spec.rules", "BadPolicy")]
    assert intent.filter.strictest


def test_equal_intents_make_states_once() -> None:
    made: list[Intent] = []

    def to_states(intent: Intent) -> int:
        made.append(intent)
        return len(made)

    compiler = Compiler(Settings(), to_states)
    assert [compiler(inputs()).states, compiler(inputs()).states] == [1, 1]


def folder(**files: FileContent) -> dict[str, FileContent]:
    names = {name.replace("_", "."): content for name, content in files.items()}
    return {"/p": Directory(tuple(sorted(names))), **{f"/p/{name}": content for name, content in names.items()}}


def test_a_folder_of_policies() -> None:
    files = folder(
        a_yaml=Present(b"rules: []"), b_json=Present(b'{"rules": []}'), c_txt=Present(b"x"), d_yml=Unreadable("denied")
    )
    settings = Settings(policy="/p/")
    intent, problems = intent_of(settings, Inputs(files=files))
    assert [watch.path for watch in file_watches(settings.policy_path)] == ["/p"]
    assert [policy.name for policy in intent.filter.policies] == ["/p/a.yaml", "/p/b.json"]
    assert [(problem.ref.name, problem.reason) for problem in problems] == [("/p/d.yml", "Unreadable")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (Missing(), "Missing"),
        (Present(b""), "BadSyntax"),
        (Present(b"a: 1\n---\nb: 2"), "BadSyntax"),
        (Present(b"[]"), "BadPolicy"),
        (Present(b"spec:"), "BadPolicy"),
    ],
)
def test_files_that_hold_no_policy(content: FileContent, reason: str) -> None:
    intent, problems = intent_of(Settings(policy="/p"), Inputs(files={"/p": content}))
    assert [problem.reason for problem in problems] == [reason]
    assert intent.filter.strictest


def test_the_proxys_own_process_reads_json_and_gives_the_same_filter() -> None:
    settings = Settings(policy="/p")
    data = msgspec.json.encode(DENY)
    intent, _ = intent_of(settings, Inputs(files={"/p": Present(data)}))
    assert from_json_files(settings, [("/p", data)]) == (intent.filter, ())


@pytest.mark.parametrize(
    "data", [b"rules: []", b"{", b'{"rules": 1}', b'{"rules": [], "x": 1}', b'{"spec": {}}', b"\xff", b""]
)
def test_json_that_is_no_policy(data: bytes) -> None:
    filter_, problems = from_json_files(Settings(), [("/p", data)])
    assert filter_.strictest
    assert len(problems) == 1


def test_a_filter_travels_as_json() -> None:
    policies = (NamedPolicy("p", msgspec.structs.replace(DENY, subjects=Subjects(namespaces=("a",)))),)
    filter_ = Filter(policies=policies, clients={"10.64.0.2": Client("a/b", (0,))}, audit=True)
    assert msgspec.json.decode(msgspec.json.encode(filter_), type=Filter) == filter_


def pod(name: str, *addresses: str, namespace: str = "a", account: str = "default", **labels: str) -> PodFacts:
    return PodFacts(namespace, name, account, labels, addresses)


def test_an_address_of_two_pods_is_nobodys() -> None:
    pods = [pod("x", "10.0.0.1", "fd00::0:1"), pod("y", "10.0.0.2"), pod("z", "::ffff:10.0.0.2")]
    assert clients_of(pods, ()) == {"10.0.0.1": Client("a/x"), "fd00::1": Client("a/x")}


@pytest.mark.parametrize(
    ("subjects", "matches"),
    [
        ({}, [True, True]),
        ({"namespaces": ["a"]}, [True, False]),
        ({"namespaces": []}, [False, False]),
        ({"serviceAccounts": ["robot"]}, [False, True]),
        ({"serviceAccounts": ["a/robot"]}, [False, False]),
        ({"serviceAccounts": ["b/robot"], "namespaces": ["b"]}, [False, True]),
        ({"podSelector": {}}, [True, True]),
        ({"podSelector": {"matchLabels": {"app": "web"}}}, [True, False]),
        (
            {"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}},
            [False, True],
        ),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}}, [True, False]),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, [True, False]),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, [False, True]),
    ],
)
def test_subjects(subjects: dict[str, object], matches: list[bool]) -> None:
    spec = msgspec.convert({"subjects": subjects, "rules": []}, PolicySpec)
    pods = [pod("x", "10.0.0.1", app="web"), pod("y", "10.0.0.2", namespace="b", account="robot")]
    found = clients_of(pods, [NamedPolicy("p", spec)])
    assert [client.policies == (0,) for client in found.values()] == matches


@pytest.mark.parametrize(
    ("peer", "text"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("FD00:0::1", "fd00::1"),
        ("x", ""),
    ],
)
def test_addresses_have_one_form(peer: str, text: str) -> None:
    assert source_text(peer) == text


def test_while_nobody_listens_what_would_be_redirected_is_refused() -> None:
    rules = intent_of(Settings(), inputs())[0].rules
    shut = closed(rules)
    assert (shut.phase, shut.redirects) == ("closed", ())
    assert shut.refusals[0] == RefusedPorts("169.254.169.254", (80, 8080))
    assert set(rules.refusals) < set(shut.refusals)
    assert closed(intent_of(Settings(firewall=False), inputs())[0].rules).phase == "none"


def test_kinds() -> None:
    assert METADATA_POLICY.api_version == "podgate.dev/v1alpha1"
    assert (POD.kind, METADATA_POLICY.kind) == ("Pod", "MetadataPolicy")
