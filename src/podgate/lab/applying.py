"""Applying: what stays of an object when a user applies it again. Pure.

Here: what controllers filled in, by kind. Not here: UIDs and deletion marks, which every write keeps (objects.py).
Invariant: a field that the user sets wins; applying the same manifest again changes nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from podgate.lab.kinds import Object

_SPEC: Final[Mapping[str, tuple[str, ...]]] = {"Pod": ("nodeName",), "Node": ("podCIDR", "podCIDRs")}
_NODE_LABELS: Final = ("kubernetes.io/hostname", "kubernetes.io/os")


def applied(before: Object | None, given: Object) -> Object:
    """Give what a user wrote, completed by what controllers filled in earlier.

    Of a Pod that is nodeName; of a Node its Pod ranges, the labels that every Node has, and its Hostname address.
    """
    if before is None or given["kind"] not in _SPEC:
        return given
    spec = _spec(before.get("spec") or {}, given.get("spec") or {}, _SPEC[given["kind"]])
    whole = {**given, **({"spec": spec} if spec or "spec" in given else {})}
    if given["kind"] == "Node":
        have = before["metadata"].get("labels") or {}
        labels = {key: have[key] for key in _NODE_LABELS if key in have} | (given["metadata"].get("labels") or {})
        whole["metadata"] = {**given["metadata"], **({"labels": labels} if labels else {})}
        if "status" in given:
            whole["status"] = _status(before.get("status") or {}, given["status"])
    return whole


def _spec(before: Object, given: Object, names: tuple[str, ...]) -> Object:
    """Keep all of the fields or none: they only make sense together."""
    kept = {name: before[name] for name in names if name in before}
    same = all(given[name] == kept.get(name) for name in names if name in given)
    return {**given, **kept} if same else given


def _status(before: Object, given: Mapping[str, Any]) -> Object:
    addresses = list(given.get("addresses") or ())
    types = {one["type"] for one in addresses}
    more = [one for one in before.get("addresses") or () if one["type"] == "Hostname" and one["type"] not in types]
    return {**given, "addresses": [*addresses, *more]}
