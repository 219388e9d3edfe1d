"""check: what is valid, and probably not meant.

Here: rules that never match, that open what the profile conceals, or that are for whoever takes a label, options that
weaken it; as Problem values.
Not here: what makes a policy invalid (spec.py).
Invariant: a finding names the rule or option, what it leads to, and what to write instead.
"""

from collections.abc import Iterator
from typing import Final

from podgate.commandline.checked import options_ref
from podgate.features.metadata.filter import Filter, NamedPolicy
from podgate.features.metadata.globs import Wild, segments_of
from podgate.features.metadata.intent import Intent
from podgate.features.metadata.profiles import Profile
from podgate.features.metadata.spec import Rule
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.problems import Problem

Segments = tuple[str, ...]

_OPTIONS: Final = options_ref("metadata")


def check(intent: Intent) -> tuple[Problem, ...]:
    """Give the findings."""
    return (*_options(intent), *_policies(intent.filter))


def _options(intent: Intent) -> Iterator[Problem]:
    if intent.filter.audit:
        yield _option("Audit", "--audit", "nothing is denied: leave the flag out once the log shows no surprises")
    if not intent.filter.check_host:
        yield _option(
            "NoHostCheck", "--no-host-check", "a web page may read metadata by DNS rebinding: use --host NAME"
        )
    if any(network.endswith("/0") for network in intent.allow_from):
        yield _option("AllowsAll", "--allow-from", "every machine that reaches this node may ask: name the ranges")
    subjects = [policy for policy in intent.filter.policies if not policy.spec.subjects.everybody]
    if subjects and intent.filter.clients is None:
        message = "nobody knows which Pod asks, so everybody gets the strictest rules: give --source"
        yield Problem(_ref(subjects[0]), "warning", "NoSource", f"{_below(subjects[0])}subjects", message)


def _policies(filter_: Filter) -> Iterator[Problem]:
    for policy in filter_.policies:
        yield from _by_labels(policy)
        for index, rule in enumerate(policy.spec.rules):
            field = f"{_below(policy)}rules[{index}].paths"
            if rule.verdict == "allow":
                opened = _opened(filter_, rule)
                if opened:
                    message = f"opens {', '.join(opened)}: be sure that its subjects need it"
                    yield Problem(_ref(policy), "warning", "OpensSecret", field, message)
            yield from _unknown(filter_.profile, policy, rule, field)


def _by_labels(policy: NamedPolicy) -> Iterator[Problem]:
    """Warn of permissions by labels alone: whoever may make a Pod, in any namespace, chooses its labels."""
    subjects = policy.spec.subjects
    bound = subjects.namespaces is not None or subjects.service_accounts is not None
    if subjects.pod_selector is not None and not bound and any(rule.verdict == "allow" for rule in policy.spec.rules):
        message = "whoever makes a Pod, in any namespace, chooses its labels: add namespaces or serviceAccounts"
        yield Problem(_ref(policy), "warning", "LabelsAlone", f"{_below(policy)}subjects.podSelector", message)


def _opened(filter_: Filter, rule: Rule) -> list[str]:
    """Give the names of what the profile conceals and a rule opens."""
    found = []
    for concealed in filter_.profile.concealed:
        shut = not concealed.switch or concealed.switch not in filter_.opened
        if shut and any(overlap(path, f"{secret}/**") for path in rule.paths for secret in concealed.paths):
            found.append(f"{filter_.profile.name}/{concealed.name}")
    return found


def overlap(first: str, second: str) -> bool:
    """Say whether some path, in any case of letters, meets two patterns; of two wildcards in one segment, perhaps."""
    return _overlap(tuple(segments_of(first.lower())), tuple(segments_of(second.lower())), {})


def _overlap(first: Segments, second: Segments, known: dict[tuple[int, int], bool]) -> bool:
    key = len(first), len(second)
    if key not in known:
        if first[:1] == ("**",):
            known[key] = _overlap(first[1:], second, known) or (bool(second) and _overlap(first, second[1:], known))
        elif second[:1] == ("**",):
            known[key] = _overlap(first, second[1:], known) or (bool(first) and _overlap(first[1:], second, known))
        elif first and second:
            known[key] = _same(first[0], second[0]) and _overlap(first[1:], second[1:], known)
        else:
            known[key] = not first and not second
    return known[key]


def _same(first: str, second: str) -> bool:
    """Say whether one segment can meet both."""
    if "*" in first and "*" in second:
        starts, ends = (first.partition("*")[0], second.partition("*")[0]), (first, second)
        tails = tuple(each.rpartition("*")[2] for each in ends)
        return (starts[0].startswith(starts[1]) or starts[1].startswith(starts[0])) and (
            tails[0].endswith(tails[1]) or tails[1].endswith(tails[0])
        )
    return Wild(first).matches(second) if "*" in first else Wild(second).matches(first)


def _unknown(profile: Profile, policy: NamedPolicy, rule: Rule, field: str) -> Iterator[Problem]:
    for number, path in enumerate(rule.paths):
        if not any(overlap(path, root) for root in profile.roots):
            message = f'"{path}" is below no API of {profile.name}, which is refused anyway: remove it'
            yield Problem(_ref(policy), "warning", "NeverMatches", f"{field}[{number}]", message)


def _ref(policy: NamedPolicy) -> ObjectRef:
    kind, slash, name = policy.name.partition("/")
    return ObjectRef(kind, name) if kind == "MetadataPolicy" and slash else file_ref(policy.name)


def _below(policy: NamedPolicy) -> str:
    """Give where the spec stands in what is named: below ``spec`` in an object."""
    return "spec." if _ref(policy).kind == "MetadataPolicy" else ""


def _option(reason: str, flag: str, message: str) -> Problem:
    return Problem(_OPTIONS, "warning", reason, flag, message)
