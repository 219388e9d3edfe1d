"""Making: Pods from templates, and the names and hashes that go with them. Pure.

Here: what DaemonSets, Deployments and ReplicaSets have in common when they make objects. Not here: when they do.
Invariant: names and hashes come from their inputs alone, so the same wish gives the same object, always and everywhere.
"""

import hashlib
import json
import math
from typing import Any, Final

from podgate.lab.kinds import Object

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""What generated names are made of in Kubernetes: no vowels and nothing that looks like one."""

_LONGEST_BASE: Final = 57
"""Characters of an owner's name in a Pod's name: 63 for a DNS label, less a hyphen and a suffix of five."""


def digest(value: Any, length: int) -> str:
    """Give ``length`` letters that stand for a JSON value."""
    number = int.from_bytes(hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest())
    letters = ""
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        letters += _LETTERS[index]
    return letters


def template_hash(owner: Object) -> str:
    """Give the hash of an owner's Pod template."""
    return digest(owner["spec"]["template"], 10)


def pod_name(owner: Object, *told_by: str) -> str:
    """Give the name of a Pod: its owner's, and five letters that stand for the owner's UID and what tells it apart."""
    suffix = digest([owner["metadata"]["uid"], *told_by], 5)
    return f"{owner['metadata']['name'][:_LONGEST_BASE].rstrip('.-')}-{suffix}"


def owner_reference(owner: Object) -> Object:
    """Give the reference by which an object belongs to its controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(owner: Object, name: str, labels: dict[str, str]) -> Object:
    """Make a Pod from an owner's template, with more labels."""
    template = owner["spec"]["template"]
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key == "annotations"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**((template.get("metadata") or {}).get("labels") or {}), **labels},
            **metadata,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": template["spec"],
    }


def count(value: int | str, total: int, *, up: bool) -> int:
    """Give a number from a number or a percentage of ``total``, rounded up or down."""
    if isinstance(value, int):
        return value
    share = total * int(value.removesuffix("%")) / 100
    return math.ceil(share) if up else math.floor(share)
