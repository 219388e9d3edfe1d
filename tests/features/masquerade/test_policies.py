"""Reading policies: any value is read without an exception, and the order is total."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.features.masquerade.policies import WrittenPolicy, in_order, read_policy
from podgate.features.masquerade.policy import MasqueradePolicy, policy_ref
from podgate.model.kinds.meta import ObjectMeta

FIELDS = ("priority", "from", "to", "action", "ports", "snatAddress", "outputInterfaces", "cidr", "except", "cidrs")
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=6),
    st.sampled_from(("Keep", "SNAT", "10.0.0.0/8", "fd00::/8", "192.0.2.1", "1024-2048", "eth0", 1 << 40)),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=300)
@given(values)
def test_any_spec_is_written_or_has_an_error(spec: Any) -> None:
    reading = read_policy(MasqueradePolicy(ObjectMeta("p"), spec), ("ip", "ip6"))
    errors = [problem for problem in reading.problems if problem.severity == "error"]
    assert (reading.written is None) == bool(errors)
    assert all(problem.field.startswith("spec") and problem.message for problem in reading.problems)


def test_the_order_is_by_priority_then_age_then_name() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    rows = [("e", 2, None), ("c", 1, old), ("a", 1, new), ("b", 1, new), ("d", 1, None), ("f", -1, old)]
    policies = [WrittenPolicy(policy_ref(name), priority, created) for name, priority, created in rows]
    assert [policy.ref.name for policy in in_order(reversed(policies))] == ["e", "c", "a", "b", "d", "f"]


NOT_NAMES = {
    "a line break": "x\nflush ruleset",
    "a line break at its end": "x\n",
    "a space": "x y",
    "a brace": "x{",
    "a quote": 'x"',
    "a zero byte": "x\0",
    "a capital": "X",
    "a dot at its end": "x.",
    "two dots": "x..y",
    "a dash first": "-x",
    "another alphabet": "\u00e9",
    "nothing": "",
    "a character too much": "x" * 254,
}


@pytest.mark.parametrize("name", NOT_NAMES.values(), ids=NOT_NAMES)
def test_a_policy_needs_a_name_that_the_api_would_take(name: str) -> None:
    """It becomes part of names in the kernel, and a file has no API server that would look at it."""
    reading = read_policy(MasqueradePolicy(ObjectMeta(name), {"action": "Keep"}), ("ip",))
    assert reading.written is None
    assert [(each.field, each.reason, each.severity) for each in reading.problems] == [
        ("metadata.name", "InvalidName", "error")
    ]
    assert "\n" not in reading.problems[0].message
    assert "\0" not in reading.problems[0].message


@pytest.mark.parametrize("name", ["x", "1", "a-b.c-d", "x" * 253])
def test_names_of_the_api_are_taken(name: str) -> None:
    assert read_policy(MasqueradePolicy(ObjectMeta(name), {"action": "Keep"}), ("ip",)).written is not None
