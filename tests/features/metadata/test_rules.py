"""The built-in profiles, as matchers: what they say about themselves, and that each pattern can match."""

from typing import Final, get_args

import pytest

from podgate.features.metadata.globs import Globs, mistake
from podgate.features.metadata.profiles import GCE, PROFILES, V0112, AtPaths, Concealed, Profile, Switch
from podgate.features.metadata.rules import PolicyRules, ProfileRules, readings
from podgate.features.metadata.spec import PolicySpec, Rule, mistakes

SWITCHES: Final[tuple[Switch, ...]] = get_args(Switch)


def patterns(profile: Profile) -> list[str]:
    found = [*profile.roots, *profile.recursion, *profile.header_at]
    entries: list[AtPaths | Concealed] = [
        *profile.concealed,
        *profile.query_keys_at,
        *profile.methods_at,
        *profile.redacted,
    ]
    for at in entries:
        found += at.paths
    return found


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_a_profiles_patterns_have_no_mistakes_and_lie_below_its_roots(profile: Profile) -> None:
    assert {pattern: mistake(pattern) for pattern in patterns(profile) if mistake(pattern)} == {}
    rules = ProfileRules(profile, SWITCHES)
    for concealed in profile.concealed:
        for path in concealed.paths:
            if not path.startswith("/**"):
                example = path.replace("/*/**/", "/x/").replace("/*", "/latest").replace("*", "")
                assert rules.known(example), f"{concealed.name}: {path} is refused anyway"


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_a_switch_opens_what_it_names(profile: Profile) -> None:
    shut, wide = ProfileRules(profile, ()), ProfileRules(profile, SWITCHES)
    for concealed in profile.concealed:
        example = concealed.paths[0].replace("/**/", "/x/").replace("/*", "/x").replace("*", "")
        assert shut.concealing(example), example
        assert bool(wide.concealing(example)) is not bool(concealed.switch)


def test_the_default_conceals_whatever_the_old_program_did() -> None:
    rules = ProfileRules(GCE, SWITCHES)
    old = [path for concealed in V0112.concealed[:2] for path in concealed.paths]
    assert [path for path in old if rules.concealing(path.replace("/*/**/", "/x/").replace("*", "")) is None] == []
    assert Globs((path, 1) for path in GCE.roots).first("/latest") is None


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("/a/b@c", ()),
        ("/a/b,c", ("/a/b/c", "/a/c")),
        ("/a:b/c", ("/a/b/c", "/b/c")),
        ("/a/b=", ("/a/b", "/a")),
        ("/a/(b)/", ("/a/b", "/a")),
    ],
)
def test_other_readings_of_a_path(path: str, others: tuple[str, ...]) -> None:
    assert readings(path) == (path, *others)


def rule(verdict: str, *paths: str, **more: object) -> Rule:
    import msgspec

    return msgspec.convert({"paths": paths, "verdict": verdict, **more}, Rule)


def said(rules: list[Rule], path: str, method: str = "GET", *pairs: tuple[str, str | None]) -> str:
    outcome = PolicyRules([(str(number), each) for number, each in enumerate(rules)]).outcome(
        path, method, pairs, recursive=any(key == "recursive" for key, _ in pairs)
    )
    return "nothing" if outcome is None else f"{outcome.verdict} {outcome.rule}"


def test_deny_wins_whatever_the_order() -> None:
    allow, deny = rule("allow", "/a/**"), rule("deny", "/a/b")
    assert said([allow, deny], "/a/b") == "deny 1"
    assert said([deny, allow], "/a/b/c") == "deny 0"
    assert said([deny, allow], "/a/c") == "allow 1"
    assert said([deny, allow], "/x") == "nothing"


def test_two_rules_for_one_path_are_both_asked() -> None:
    rules = [rule("deny", "/a", methods=["POST"]), rule("deny", "/A", query={"k": "x*"})]
    assert said(rules, "/a") == "nothing"
    assert said(rules, "/a", "POST") == "deny 0"
    assert said(rules, "/a", "GET", ("k", "xy")) == "deny 1"


def test_values_of_a_query() -> None:
    deny, allow = rule("deny", "/a", query={"k": "x"}), rule("allow", "/b", query={"k": "x", "l": "*"})
    assert said([deny], "/a", "GET", ("k", "y"), ("k", "x")) == "deny 0"
    assert said([deny], "/a", "GET", ("k", None)) == "nothing"
    assert said([allow], "/b", "GET", ("k", "x"), ("l", None)) == "allow 0"
    assert said([allow], "/b", "GET", ("k", "x"), ("k", "y"), ("l", "1")) == "nothing"
    assert said([allow], "/b", "GET", ("k", "x")) == "nothing"


def test_recursion_needs_a_rule_that_names_it() -> None:
    assert said([rule("allow", "/a")], "/a", "GET", ("recursive", "true")) == "nothing"
    assert said([rule("allow", "/a", query={"recursive": "*"})], "/a", "GET", ("recursive", "true")) == "allow 0"


def test_too_many_rules() -> None:
    spec = PolicySpec(tuple(rule("deny", "/a") for _ in range(257)))
    assert [each.field for each in mistakes(spec)] == ["rules"]
    assert [each.reason for each in mistakes(PolicySpec((rule("deny", "/a", query={"": "x"}),)))] == ["BadQuery"]
