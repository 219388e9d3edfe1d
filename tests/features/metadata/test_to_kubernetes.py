"""How MetadataPolicies stand: what is accepted, what contradicts what, and what this node does instead."""

from collections.abc import Mapping
from typing import Any

import pytest

from podgate.features.metadata.policy import METADATA_POLICY, MetadataPolicy
from podgate.features.metadata.to_kubernetes import PolicyTelling
from podgate.features.metadata.watcher.compile import compile_watched
from podgate.features.metadata.watcher.settings import WatchSettings
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import NODE
from podgate.model.kinds.pods import POD
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

PATH = "/computeMetadata/v1/instance/zone"
ALLOW: Any = {"rules": [{"paths": [PATH], "verdict": "allow"}]}
DENY: Any = {"rules": [{"paths": ["/computeMetadata/v1/instance"], "verdict": "deny"}]}
BAD: Any = {"rules": [{"paths": ["no slash"], "verdict": "allow"}]}


def for_namespaces(spec: Any, *namespaces: str) -> Any:
    return {**spec, "subjects": {"namespaces": list(namespaces)}}


def compiled(inputs: Inputs) -> Compiled[Any]:
    return compile_watched(WatchSettings(node_name="n"), inputs)


def inputs_of(policies: Mapping[str, Any], kept: Mapping[str, bytes], pods: Listed[Any] | Absent) -> Inputs:
    objects = {
        ObjectRef(METADATA_POLICY.kind, name): MetadataPolicy(ObjectMeta(name), spec) for name, spec in policies.items()
    }
    kinds: dict[str, Listed[Any] | Absent] = {
        METADATA_POLICY.kind: Listed(Table.of(objects)),
        NODE.kind: Listed(Table()),
        POD.kind: pods,
    }
    return Inputs(objects=Snapshot(kinds), kept=kept)


def standings(
    policies: Mapping[str, Any], before: Mapping[str, Any] | None = None, pods: Listed[Any] | Absent | None = None
) -> list[str]:
    """Give a line for each condition and each deviation; ``before`` was in force earlier."""
    listed: Listed[Any] | Absent = pods or Listed(Table())
    kept = {} if before is None else compiled(inputs_of(before, {}, listed)).keep
    inputs = inputs_of(policies, kept, listed)
    found, tells = compiled(inputs), PolicyTelling()
    conditions, instead = tells.conditions(found, inputs), tells.instead(found, inputs)
    lines = [
        f"{ref.name}: {each.type} {each.holds} {each.reason}" for ref in sorted(conditions) for each in conditions[ref]
    ]
    return lines + [f"{ref.name}: here {instead[ref]}" for ref in sorted(instead)]


CASES: dict[str, tuple[list[str], list[str]]] = {
    "nothing": (standings({}), []),
    "fine": (standings({"a": ALLOW}), ["a: Accepted True Valid"]),
    "never good, and nothing known from before": (
        standings({"a": BAD, "b": ALLOW}),
        ["a: Accepted False BadPath", "b: Accepted True Valid", "a: here StrictestRules", "b: here StrictestRules"],
    ),
    "broken by an edit": (
        standings({"a": BAD, "b": DENY}, before={"a": DENY}),
        ["a: Accepted False BadPath", "b: Accepted True Valid", "a: here LastGoodPolicy"],
    ),
    "new and broken beside one that was good": (
        standings({"a": DENY, "b": BAD}, before={"a": DENY}),
        ["a: Accepted True Valid", "b: Accepted False BadPath", "b: here PolicyIgnored"],
    ),
    "Pods may not be listed": (
        standings({"a": ALLOW}, pods=Absent("forbidden")),
        ["a: Accepted True Valid", "a: here StrictestRules"],
    ),
    "one allows what another denies": (
        standings({"a": ALLOW, "b": DENY}),
        ["a: Accepted True Valid", "a: Conflicted True DeniedElsewhere", "b: Accepted True Valid"],
    ),
    "to other namespaces": (
        standings({"a": for_namespaces(ALLOW, "x"), "b": for_namespaces(DENY, "y")}),
        ["a: Accepted True Valid", "b: Accepted True Valid"],
    ),
    "to one namespace of several": (
        standings({"a": for_namespaces(ALLOW, "x", "z"), "b": for_namespaces(DENY, "y", "z")}),
        ["a: Accepted True Valid", "a: Conflicted True DeniedElsewhere", "b: Accepted True Valid"],
    ),
    "a policy does not contradict itself": (
        standings({"a": {"rules": [*ALLOW["rules"], *DENY["rules"]]}}),
        ["a: Accepted True Valid"],
    ),
}


@pytest.mark.parametrize(("found", "expected"), CASES.values(), ids=CASES.keys())
def test_how_policies_stand(found: list[str], expected: list[str]) -> None:
    assert found == expected


def test_a_conflict_names_the_other_policy_and_the_path() -> None:
    inputs = inputs_of({"a": ALLOW, "b": DENY}, {}, Listed(Table()))
    conditions = PolicyTelling().conditions(compiled(inputs), inputs)
    (conflict,) = [each for each in conditions[ObjectRef(METADATA_POLICY.kind, "a")] if each.type == "Conflicted"]
    assert conflict.message.startswith(f"MetadataPolicy/b denies {PATH} at least in part; deny wins")
