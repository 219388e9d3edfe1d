"""Findings: policies and options that are valid, and probably not meant."""

from collections.abc import Mapping

import msgspec
import pytest

from podgate.features.metadata.check import check, overlap
from podgate.features.metadata.compile import intent_of
from podgate.features.metadata.settings import Settings
from podgate.joints import Inputs
from podgate.model.files import Present


def findings(*rules: Mapping[str, object], **options: object) -> list[str]:
    policy = {"rules": rules, "subjects": options.pop("subjects", {})}
    settings = msgspec.convert({"policy": "/p", **options}, Settings)
    intent, problems = intent_of(settings, Inputs(files={"/p": Present(msgspec.json.encode(policy))}))
    assert problems == ()
    return [f"{problem.reason} {problem.field}" for problem in check(intent)]


def test_ordinary_rules_have_no_findings() -> None:
    deny = {"paths": ["/computeMetadata/v1/instance/tags", "/**/tags"], "verdict": "deny"}
    assert findings(deny, {"paths": ["/computeMetadata/v1/instance/zone"], "verdict": "allow"}) == []


@pytest.mark.parametrize(
    "path",
    [
        "/computeMetadata/v1/instance/attributes/kube-env",
        "/computeMetadata/v1/instance/attributes/*",
        "/**",
        "/computeMetadata/v1/instance/service-accounts/*/identity",
    ],
)
def test_a_rule_that_opens_a_secret(path: str) -> None:
    assert findings({"paths": [path], "verdict": "allow"}) == ["OpensSecret rules[0].paths"]


def test_a_rule_that_never_matches() -> None:
    rule = {"paths": ["/latest/user-data", "/computeMetadata"], "verdict": "deny"}
    assert findings(rule) == ["NeverMatches rules[0].paths[0]"]
    assert findings(rule, profile="aws") == ["NeverMatches rules[0].paths[1]"]


def test_options_that_weaken() -> None:
    assert findings(audit=True, host_check=False, allow_from="0.0.0.0/0") == [
        "Audit --audit",
        "NoHostCheck --no-host-check",
        "AllowsAll --allow-from",
    ]


def test_subjects_without_a_source() -> None:
    assert findings(subjects={"namespaces": ["a"]}) == ["NoSource subjects"]


APP = {"podSelector": {"matchLabels": {"app": "installer"}}}


@pytest.mark.parametrize(
    ("subjects", "verdict", "found"),
    [
        (APP, "allow", ["LabelsAlone subjects.podSelector"]),
        (APP, "deny", []),
        ({**APP, "namespaces": ["kube-system"]}, "allow", []),
        ({**APP, "serviceAccounts": ["kube-system/installer"]}, "allow", []),
    ],
)
def test_labels_alone_that_allow(subjects: Mapping[str, object], verdict: str, found: list[str]) -> None:
    rule = {"paths": ["/computeMetadata/v1/instance/zone"], "verdict": verdict}
    assert [each for each in findings(rule, subjects=subjects) if not each.startswith("NoSource")] == found


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ("/a/*", "/**/b", True),
        ("/a/b", "/**/b/**", True),
        ("/a", "/**/b", False),
        ("/**/a", "/b/**", True),
        ("/**", "/", True),
        ("/", "/**", True),
        ("/a*", "/*b", True),
        ("/a*", "/b*", False),
        ("/*-x", "/*-y", False),
        ("/a/**/c", "/a/b", False),
        ("/A", "/a", True),
        ("/a", "/a/b", False),
    ],
)
def test_whether_two_patterns_meet(first: str, second: str, meet: bool) -> None:
    assert overlap(first, second) is meet
    assert overlap(second, first) is meet
