"""check_policies: policies that are valid, and probably do not what the user wants.

Here: policies that never decide, and policies that select nothing on this node. Not here: what compile reports anyway
(an SNAT address that is missing, ports), the configured list (check.py).
Invariant: a policy is called shadowed only if one policy before it matches all that it can ever match, whichever Pods
there are.
"""

from collections.abc import Iterable, Iterator

from podgate.features.masquerade.intent import Intent, PolicyIntent, Spans
from podgate.features.masquerade.prefixes import Span, outside, span_of
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem


def policy_findings(intent: Intent) -> Iterator[Problem]:
    """Give the findings about policies, in their order."""
    resolved: dict[ObjectRef, list[tuple[PolicyIntent, PolicyIntent | None]]] = {}
    for part in intent.families:
        for index, policy in enumerate(part.policies):
            before = next((each for each in part.policies[:index] if _covers(each, policy)), None)
            resolved.setdefault(policy.ref, []).append((policy, before))
    for ref, parts in resolved.items():
        shadows = [before for _, before in parts if before is not None]
        if len(shadows) == len(parts):
            message = f"{shadows[0].ref} is asked before, and decides about all that this policy matches: "
            fix = "give this one a higher priority, or remove it"
            yield Problem(ref, "warning", "ShadowedPolicy", "spec.priority", message + fix)
        elif all(policy.pods is not None and not policy.sources for policy, _ in parts):
            message = f"it selects no Pod of {intent.node_name or 'this node'}: correct the selectors, if it should"
            yield Problem(ref, "warning", "SelectsNothing", "spec.from", message)


def _covers(outer: PolicyIntent, inner: PolicyIntent) -> bool:
    through = not outer.interfaces or (bool(inner.interfaces) and set(inner.interfaces) <= set(outer.interfaces))
    return through and _covers_sources(outer, inner) and _within(inner.destinations, outer.destinations)


def _covers_sources(outer: PolicyIntent, inner: PolicyIntent) -> bool:
    if outer.sources is None:
        return True
    if outer.pods is not None and outer.pods != inner.pods:
        return False  # what two selectors have in common depends on the Pods
    if not outer.cidrs:
        return True
    ranges = tuple(sorted(span_of(entry.network) for entry in outer.cidrs))
    return bool(inner.cidrs) and not outside((span_of(entry.network) for entry in inner.cidrs), _disjoint(ranges))


def _within(inner: Spans | None, outer: Spans | None) -> bool:
    if outer is None:
        return True
    return inner is not None and not outside(inner, tuple(sorted(outer)))


def _disjoint(spans: Iterable[Span]) -> tuple[Span, ...]:
    return outside(spans, ())
