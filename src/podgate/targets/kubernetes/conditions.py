"""Conditions: since when each condition of a status is as it is, which only who writes it can know. Pure.

Here: taking the times out of what was read, and putting them into what is written. Not here: clocks, requests.
Invariant: a condition's time changes exactly when its status does, so equal wishes are equal bytes.

Rule: k8s.io/apimachinery, metav1.Condition: ``lastTransitionTime`` is when ``status`` changed last.
"""

from collections.abc import Mapping
from typing import Any, Final

Since = Mapping[str, tuple[str, str]]
"""The status of each condition and the time (RFC 3339) at which it took it, by the condition's type."""

TIME: Final = "lastTransitionTime"


def unstamped(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], Since]:
    """Give fields without the times of their conditions, and the times."""
    conditions = _conditions(fields)
    since = {str(each.get("type")): (str(each.get("status")), str(each[TIME])) for each in conditions if TIME in each}
    plain = [{name: value for name, value in each.items() if name != TIME} for each in conditions]
    return (_with(fields, plain) if conditions else fields), since


def stamped(fields: Mapping[str, Any], since: Since, now: str) -> tuple[Mapping[str, Any], Since]:
    """Give fields with the times of their conditions, and these times.

    Args:
        fields: what is to be written.
        since: what was known before.
        now: the time of conditions whose status is new, RFC 3339 in seconds.
    """
    conditions = _conditions(fields)
    times: dict[str, tuple[str, str]] = {}
    for each in conditions:
        before, time = since.get(each["type"], ("", ""))
        times[each["type"]] = (each["status"], time if before == each["status"] else now)
    made = [{**each, TIME: times[each["type"]][1]} for each in conditions]
    return (_with(fields, made) if conditions else fields), times


def _conditions(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = fields.get("status")
    found = status.get("conditions") if isinstance(status, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _with(fields: Mapping[str, Any], conditions: list[dict[str, Any]]) -> Mapping[str, Any]:
    return {**fields, "status": {**fields["status"], "conditions": conditions}}
