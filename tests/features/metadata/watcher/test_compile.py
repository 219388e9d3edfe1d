"""What the proxy is told, step by step: bad input never takes away what was good, and nothing is weaker than known."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from podgate.features.metadata.filter import Client
from podgate.features.metadata.policy import METADATA_POLICY, MetadataPolicy
from podgate.features.metadata.watched import MOST_TOLD, Watched
from podgate.features.metadata.watcher.compile import FORBIDDEN, KEPT, LAST_GOOD, NO_SOURCE, UNREAD, compile_watched
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.joints import Inputs
from podgate.model.files import Directory, FileContent, Missing, Present
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE, Node, NodeSpec
from podgate.model.kinds.pods import POD, Pod, PodIP, PodSpec, PodStatus
from podgate.model.machine import Machine
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

FILES = "/etc/policies"
GOOD: Any = {"rules": [{"paths": ["/a"], "verdict": "deny"}]}
OTHER: Any = {"rules": [{"paths": ["/b"], "verdict": "deny"}]}
BAD: Any = {"rules": [{"paths": ["no slash"], "verdict": "deny"}]}
UNREAD_FILE = Problem(file_ref("/objects/x.yaml"), "error", "Unreadable", "", "cannot be read")


class Moment(NamedTuple):
    """What there is at one moment, and what is in force then."""

    policies: Mapping[str, Any]
    in_force: list[str]
    why: str = ""
    faults: tuple[Problem, ...] = ()
    files: Mapping[str, FileContent] = {}


def yaml(spec: str) -> Present:
    return Present(f"rules: [{{paths: [{spec}], verdict: deny}}]".encode())


def folder(**files: FileContent) -> dict[str, FileContent]:
    named = {f"{FILES}/{name}.yaml": content for name, content in files.items()}
    return {FILES: Directory(tuple(f"{name}.yaml" for name in files)), **named}


HISTORIES = {
    "a policy is added, changed and removed": [
        Moment({}, []),
        Moment({"x": GOOD}, ["MetadataPolicy/x /a"]),
        Moment({"x": OTHER}, ["MetadataPolicy/x /b"]),
        Moment({}, []),
    ],
    "one that was good stays as it was while it is broken": [
        Moment({"x": GOOD}, ["MetadataPolicy/x /a"]),
        Moment({"x": BAD}, ["MetadataPolicy/x /a"], LAST_GOOD),
        Moment({"x": BAD, "y": OTHER}, ["MetadataPolicy/y /b", "MetadataPolicy/x /a"], LAST_GOOD),
        Moment({"x": OTHER, "y": OTHER}, ["MetadataPolicy/x /b", "MetadataPolicy/y /b"]),
    ],
    "one that was never good is in force for nobody, and takes nothing away": [
        Moment({"x": GOOD}, ["MetadataPolicy/x /a"]),
        Moment({"x": GOOD, "y": BAD}, ["MetadataPolicy/x /a"], LAST_GOOD),
    ],
    "one that is deleted goes, whatever is wrong with another: what it allowed was taken back": [
        Moment({"x": GOOD, "y": GOOD}, ["MetadataPolicy/x /a", "MetadataPolicy/y /a"]),
        Moment({"x": BAD, "y": GOOD}, ["MetadataPolicy/y /a", "MetadataPolicy/x /a"], LAST_GOOD),
        Moment({"x": BAD}, ["MetadataPolicy/x /a"], LAST_GOOD),
    ],
    "none goes away while something cannot be read, as it may be in there": [
        Moment({"x": GOOD}, ["MetadataPolicy/x /a"]),
        Moment({}, ["MetadataPolicy/x /a"], LAST_GOOD, (UNREAD_FILE,)),
        Moment({}, []),
    ],
    "broken from the start: the strictest rules until it is right": [
        Moment({"x": BAD, "y": GOOD}, ["MetadataPolicy/y /a"], UNREAD),
        Moment({"x": GOOD}, ["MetadataPolicy/x /a"]),
    ],
    "unreadable from the start": [Moment({}, [], UNREAD, (UNREAD_FILE,))],
    "policy files in YAML": [
        Moment({}, [f"{FILES}/a.yaml /a"], files=folder(a=yaml("/a"))),
        Moment({}, [f"{FILES}/a.yaml /a"], LAST_GOOD, files=folder(a=Present(b"rules: ["))),
        Moment({}, [f"{FILES}/a.yaml /a"], LAST_GOOD, files={FILES: Missing()}),
        Moment({}, [f"{FILES}/a.yaml /b"], files=folder(a=yaml("/b"))),
    ],
}


def inputs(moment: Moment, kept: Mapping[str, bytes]) -> Inputs:
    policies = {ObjectRef("MetadataPolicy", name): MetadataPolicy(spec=spec) for name, spec in moment.policies.items()}
    kinds: dict[str, Any] = {POD.kind: Listed(Table()), METADATA_POLICY.kind: Listed(Table.of(policies))}
    return Inputs(Snapshot(kinds, moment.faults), moment.files, Machine("node-1"), kept)


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_is_in_force(history: list[Moment]) -> None:
    kept: Mapping[str, bytes] = {}
    for moment in history:
        settings = WatchSettings(policy=FILES if moment.files else None)
        compiled = compile_watched(settings, inputs(moment, kept))
        kept = {**kept, **compiled.keep}
        watched: Watched = compiled.states.told.value
        found = [f"{policy.name} {policy.spec.rules[0].paths[0]}" for policy in watched.policies]
        assert (found, watched.why.partition("; ")[0], watched.strictest) == (
            moment.in_force, moment.why, moment.why == UNREAD
        )  # fmt: skip
        assert compiled.degraded == watched.why
        assert bool(compiled.problems) is bool(moment.why)


@pytest.mark.parametrize("kept", [b"", b'[{"na', b'[{"name": "x", "spec": {"colour": "red"}}]'])
def test_what_was_kept_and_cannot_be_read_counts_for_nothing(kept: bytes) -> None:
    compiled = compile_watched(WatchSettings(), inputs(Moment({"x": BAD}, []), {KEPT: kept}))
    assert (compiled.states.told.value.strictest, compiled.keep) == (True, {})
    assert compiled.degraded.startswith(UNREAD)


def test_the_proxy_is_told_which_policy_is_broken_where_and_why() -> None:
    bad = {f"x{number:02}": BAD for number in range(MOST_TOLD + 10)}
    compiled = compile_watched(WatchSettings(), inputs(Moment(bad, []), {}))
    watched: Watched = compiled.states.told.value
    (first,) = compiled.problems[ObjectRef("MetadataPolicy", "x00")]
    assert first.field == "spec.rules[0].paths[0]"
    where = f"MetadataPolicy/x00: spec.rules[0].paths[0]: {first.message}"
    assert compiled.degraded == watched.why == f"{UNREAD}; {where} (and {len(bad) - 1} more)"
    assert (watched.problems[0], len(watched.problems)) == (first, MOST_TOLD)


def absent(pods: Absent, policies: Absent | Listed[Any]) -> Watched:
    kinds: dict[str, Any] = {POD.kind: pods, METADATA_POLICY.kind: policies}
    watched: Watched = compile_watched(WatchSettings(), Inputs(Snapshot(kinds))).states.told.value
    return watched


@pytest.mark.parametrize("why", ["forbidden", "no source"])
def test_what_must_not_be_read_any_more_denies_what_it_denied(why: Any) -> None:
    known = inputs(Moment({"x": GOOD}, []), {})
    kept = compile_watched(WatchSettings(), known).keep
    gone: dict[str, Any] = {POD.kind: Absent(why), METADATA_POLICY.kind: Absent(why)}
    watched: Watched = compile_watched(WatchSettings(), Inputs(Snapshot(gone), kept=kept)).states.told.value
    assert ([policy.name for policy in watched.policies], watched.strictest) == (["MetadataPolicy/x"], True)


def test_what_must_not_or_cannot_be_read_makes_the_rules_the_strictest() -> None:
    nowhere, forbidden, unknown = Absent("no source"), Absent("forbidden"), Absent("not installed")
    nothing: Listed[Any] = Listed(Table())
    found = [absent(nowhere, nowhere), absent(forbidden, nothing), absent(unknown, forbidden)]
    assert [(each.strictest, each.why) for each in found] == [(True, NO_SOURCE), (True, FORBIDDEN), (True, FORBIDDEN)]
    assert not compile_watched(WatchSettings(objects=False), Inputs()).states.told.value.strictest


def pod(node: str, *addresses: str, **labels: str) -> Pod:
    return Pod(
        ObjectMeta(labels=labels), PodSpec(node), PodStatus("Running", pod_ips=tuple(PodIP(each) for each in addresses))
    )


@pytest.mark.parametrize(
    ("addresses", "ranges"),
    [
        ([], ()),
        (["10.64.0.2"], ("10.64.0.0/24", "fd00:64::/64")),
        (["10.64.0.2", "fd00:64::2"], ("10.64.0.0/24", "fd00:64::/64")),
        (["10.64.0.2", "192.0.2.7"], ()),
    ],
)
def test_pod_ranges_count_where_pods_show_that_they_are_in_use(addresses: list[str], ranges: tuple[str, ...]) -> None:
    node = Node(spec=NodeSpec(pod_cidrs=("10.64.0.0/24", "fd00:64::/64")))
    pods = {ObjectRef("Pod", f"p{index}", "a"): pod("node-1", each) for index, each in enumerate(addresses)}
    nodes = {ObjectRef("Node", "node-1"): node}
    kinds: dict[str, Any] = {POD.kind: Listed(Table.of(pods)), NODE.kind: Listed(Table.of(nodes))}
    told: Watched = compile_watched(WatchSettings(node_name="node-1"), Inputs(Snapshot(kinds))).states.told.value
    assert told.pod_ranges == ranges


def test_clients_are_this_nodes_pods_with_the_policies_that_select_them() -> None:
    spec: Any = {"subjects": {"podSelector": {"matchLabels": {"app": "web"}}}, "rules": []}
    pods = {
        ObjectRef("Pod", "web", "a"): pod("node-1", "10.64.0.2", app="web"),
        ObjectRef("Pod", "db", "a"): pod("node-1", "10.64.0.3"),
        ObjectRef("Pod", "elsewhere", "a"): pod("node-2", "10.64.1.2", app="web"),
    }
    policies = {ObjectRef("MetadataPolicy", "x"): MetadataPolicy(spec=spec)}
    kinds: dict[str, Any] = {POD.kind: Listed(Table.of(pods)), METADATA_POLICY.kind: Listed(Table.of(policies))}
    told: Watched = compile_watched(WatchSettings(node_name="node-1"), Inputs(Snapshot(kinds))).states.told.value
    assert told.clients == {"10.64.0.2": Client("a/web", (0,)), "10.64.0.3": Client("a/db")}


def test_how_long_pods_are_unheard_of_is_passed_on() -> None:
    snapshot = Snapshot({POD.kind: Listed(Table())}, unheard={POD.kind: 7.0})
    told = compile_watched(WatchSettings(), Inputs(objects=snapshot)).states.told.value
    assert (told.unheard, told.clients) == (7.0, {})
