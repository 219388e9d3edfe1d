"""to_kubernetes: how each MetadataPolicy stands, for its status. Pure.

Here: the conditions of a policy, and what this node does instead of what one says. Not here: Events, node counts and
requests (podgate.targets.kubernetes), complaints themselves (compile.py).
Invariant: a condition says nothing that depends on the node, since one node's agent writes it for all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podgate.features.metadata.check import overlap
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.spec import PolicySpec, Subjects, mistakes
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem
from podgate.model.snapshot import Kind
from podgate.targets.kubernetes.reports import Condition, accepted


class PolicyTelling:
    """What metadata tells of its policies (podgate.targets.kubernetes.reports.Tells)."""

    kind: Kind[Any] = METADATA_POLICY

    def conditions(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, tuple[Condition, ...]]:
        """Say of each policy whether it is accepted, and which others deny what it allows."""
        policies = inputs.objects.objects(METADATA_POLICY)
        valid = {ref: spec for ref in sorted(policies) if (spec := _valid(policies[ref].spec)) is not None}
        return {ref: tuple(_conditions(ref, compiled.problems.get(ref, ()), valid)) for ref in policies}

    def instead(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, str]:
        """Say which policies this node does not apply as they are written."""
        told = compiled.states.told.value
        in_force = {policy.name for policy in told.policies}
        found: dict[ObjectRef, str] = {}
        for ref in inputs.objects.objects(METADATA_POLICY):
            if told.strictest:
                found[ref] = "StrictestRules"
            elif any(problem.severity == "error" for problem in compiled.problems.get(ref, ())):
                found[ref] = "LastGoodPolicy" if str(ref) in in_force else "PolicyIgnored"
        return found


def _valid(spec: Any) -> PolicySpec | None:
    try:
        found = msgspec.convert(spec, PolicySpec)
    except msgspec.ValidationError:
        return None
    return None if any(mistakes(found)) else found


def _conditions(
    ref: ObjectRef, problems: tuple[Problem, ...], valid: Mapping[ObjectRef, PolicySpec]
) -> Iterator[Condition]:
    yield accepted(problems)
    if ref not in valid:
        return
    denials = [said for other, spec in valid.items() if other != ref and (said := _denied(valid[ref], other, spec))]
    if denials:
        message = f"{'; '.join(denials)}; deny wins: take the path out of one of them"
        yield Condition("Conflicted", holds=True, reason="DeniedElsewhere", message=message)


def _denied(policy: PolicySpec, other: ObjectRef, theirs: PolicySpec) -> str:
    """Say what another policy denies that this one allows to the same Pods, as far as that can be told."""
    if not _may_share(policy.subjects, theirs.subjects):
        return ""
    allowed = [path for rule in policy.rules if rule.verdict == "allow" for path in rule.paths]
    denied = [path for rule in theirs.rules if rule.verdict == "deny" and not rule.query for path in rule.paths]
    found = [path for path in allowed if any(overlap(path, deny) or overlap(path, f"{deny}/**") for deny in denied)]
    return f"{other} denies {', '.join(found)} at least in part" if found else ""


def _may_share(one: Subjects, other: Subjects) -> bool:
    """Say whether two policies may be for the same Pod: two selectors of labels always may."""
    return one.namespaces is None or other.namespaces is None or bool({*one.namespaces} & {*other.namespaces})
