"""Conditions keep the time of their last change, and nothing else of a status is touched."""

from typing import Any

import pytest

from podgate.targets.kubernetes.conditions import stamped, unstamped

OLD, NOW = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"


def condition(status: str, time: str = "") -> dict[str, str]:
    return {"type": "Accepted", "status": status, **({"lastTransitionTime": time} if time else {})}


def test_times_are_taken_out_and_put_back() -> None:
    read = {"status": {"nodes": 3, "conditions": [condition("True", OLD)]}}
    plain, since = unstamped(read)
    assert plain == {"status": {"nodes": 3, "conditions": [condition("True")]}}
    assert stamped(plain, since, NOW) == (read, since)


@pytest.mark.parametrize(
    ("before", "after", "time"), [("True", "True", OLD), ("True", "False", NOW), ("", "True", NOW)]
)
def test_the_time_changes_with_the_status(before: str, after: str, time: str) -> None:
    since = {"Accepted": (before, OLD)} if before else {}
    written, times = stamped({"status": {"conditions": [condition(after)]}}, since, NOW)
    assert written["status"]["conditions"] == [condition(after, time)]
    assert times == {"Accepted": (after, time)}


@pytest.mark.parametrize("fields", [{}, {"data": {"a": "b"}}, {"status": {"nodes": 1}}, {"status": {"conditions": 3}}])
def test_what_has_no_conditions_stays_as_it_is(fields: dict[str, Any]) -> None:
    assert unstamped(fields) == (fields, {})
    assert stamped(fields, {}, NOW) == (fields, {})
