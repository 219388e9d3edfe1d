"""to_kubernetes: how each MasqueradePolicy stands, for its status.

Here: the conditions of a policy, and what this node does instead of what one says. Not here: Events, node counts and
requests (podgate.targets.kubernetes), complaints themselves (policies.py, check_policies.py).
Invariant: a condition says nothing that depends on the node, since one node's agent writes it for all.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from podgate.features.masquerade.check_policies import policy_findings
from podgate.features.masquerade.policy import MASQUERADE_POLICY
from podgate.joints import Compiled, Inputs
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem
from podgate.model.snapshot import Kind
from podgate.targets.kubernetes.reports import Condition, accepted

HERE: Final = ("LastGoodPolicy", "PolicyIgnored", "NotInIptables", "SnatAddressMissing")
"""Reasons of problems that are about one node: what it knew before, its back end, its addresses."""

_SHADOWED: Final = "ShadowedPolicy"


class PolicyTelling:
    """What masquerade tells of its policies (podgate.targets.kubernetes.reports.Tells)."""

    kind: Kind[Any] = MASQUERADE_POLICY

    def conditions(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, tuple[Condition, ...]]:
        """Say of each policy whether it is accepted, and which other one decides in its place."""
        policies = inputs.objects.objects(MASQUERADE_POLICY)
        shadows = {found.ref: found for found in policy_findings(compiled.states.intent) if found.reason == _SHADOWED}
        return {ref: tuple(_conditions(compiled.problems.get(ref, ()), shadows.get(ref))) for ref in policies}

    def instead(self, compiled: Compiled[Any], inputs: Inputs) -> Mapping[ObjectRef, str]:
        """Say which policies this node does not apply as they are written."""
        policies = inputs.objects.objects(MASQUERADE_POLICY)
        found = ((ref, {problem.reason for problem in problems}) for ref, problems in compiled.problems.items())
        return {
            ref: next(reason for reason in HERE if reason in reasons)
            for ref, reasons in found
            if ref in policies and not reasons.isdisjoint(HERE)
        }


def _conditions(problems: tuple[Problem, ...], shadow: Problem | None) -> Iterator[Condition]:
    yield accepted(problem for problem in problems if problem.reason not in HERE)
    if shadow is not None:
        yield Condition("Conflicted", holds=True, reason=shadow.reason, message=shadow.message)
