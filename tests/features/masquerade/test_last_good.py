"""A policy that an edit broke stays as it was, across restarts too; one that is removed goes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgate.features.masquerade.last_good import PolicyReader
from podgate.features.masquerade.policies import read_policy
from podgate.features.masquerade.policy import MasqueradePolicy, policy_ref
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

VALID: tuple[Any, ...] = (
    {"action": "Keep"},
    {"action": "Masquerade", "to": [{"cidr": "20.0.0.0/8", "except": ["20.1.0.0/16"]}], "priority": 3},
    {"action": "SNAT", "snatAddress": "192.0.2.1", "ports": "1024-9999"},
)
BROKEN: tuple[Any, ...] = (None, {}, {"action": "keep"}, {"action": "Keep", "form": {}}, "text")


def snapshot(specs: dict[str, Any]) -> Snapshot:
    policies = {policy_ref(name): MasqueradePolicy(ObjectMeta(name), spec) for name, spec in specs.items()}
    return Snapshot({"MasqueradePolicy": Listed(Table.of(policies))})


worlds = st.dictionaries(st.sampled_from("abc"), st.sampled_from((*VALID, *BROKEN)), max_size=3)


@given(st.lists(worlds, max_size=8))
def test_an_edit_that_breaks_a_policy_changes_nothing(history: list[dict[str, Any]]) -> None:
    running, kept, enforced = PolicyReader(("ip",)), None, dict[str, Any]()
    for specs in history:
        found, restarted = running(snapshot(specs), kept), PolicyReader(("ip",))(snapshot(specs), kept)
        assert found == restarted
        enforced = {name: spec if spec in VALID else enforced.get(name) for name, spec in specs.items()}
        enforced = {name: spec for name, spec in enforced.items() if spec is not None}
        wanted = {
            read_policy(MasqueradePolicy(ObjectMeta(name), spec), ("ip",)).written for name, spec in enforced.items()
        }
        assert set(found.policies) == wanted
        kept = found.keep if found.keep is not None else kept


def test_each_broken_policy_says_what_holds_instead() -> None:
    reader = PolicyReader(("ip",))
    kept = reader(snapshot({"a": VALID[0]}), None).keep
    found = reader(snapshot({"a": BROKEN[1], "b": BROKEN[1]}), kept)
    assert [(p.ref.name, p.reason) for p in found.problems] == [
        ("a", "Missing"),
        ("a", "LastGoodPolicy"),
        ("b", "Missing"),
        ("b", "PolicyIgnored"),
    ]


@pytest.mark.parametrize("kept", [None, b"", b"junk", b"{}", b'{"version": 2, "policies": []}', b"[]"])
def test_bytes_that_are_not_ours_hold_no_policy(kept: bytes | None) -> None:
    assert PolicyReader(("ip",))(snapshot({"a": BROKEN[1]}), kept).policies == ()


def test_a_right_that_was_withdrawn_takes_nothing_away_and_a_kind_that_was_removed_does() -> None:
    reader = PolicyReader(("ip",))
    kept = reader(snapshot({"a": VALID[0]}), None).keep
    forbidden = reader(Snapshot({"MasqueradePolicy": Absent("forbidden")}), kept)
    assert [policy.ref.name for policy in forbidden.policies] == ["a"]
    assert forbidden.keep == kept
    gone = reader(Snapshot({"MasqueradePolicy": Absent("not installed")}), kept)
    assert gone.policies == ()
    assert PolicyReader(("ip",))(snapshot({"a": BROKEN[1]}), gone.keep).policies == ()


def test_where_there_never_was_a_policy_nothing_is_kept() -> None:
    assert PolicyReader(("ip",))(snapshot({}), None).keep is None
