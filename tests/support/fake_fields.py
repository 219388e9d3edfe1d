"""Field sets as an API server keeps them: who owns which fields, what an apply takes, gives up and conflicts with.

Here: sets of paths, their FieldsV1 form, merging. Not here: objects and versions (fake_objects.py).
Invariant: lists are owned whole, but for the ones in LIST_KEYS, whose items are owned by key (KEP-555).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

Path = tuple[str, ...]
Fields = frozenset[Path]

LIST_KEYS = {"conditions": "type"}
"""Lists whose items have an identity, by the field's name."""

IDENTITY = {("f:metadata", "f:name"), ("f:metadata", "f:namespace"), ("f:apiVersion",), ("f:kind",)}
_OF_THE_SERVER = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


def fields_of(obj: Mapping[str, Any]) -> Fields:
    """Give the paths of all leaves of an object, but for what identifies it and what the server sets."""
    server = {("f:metadata", f"f:{name}") for name in _OF_THE_SERVER}
    return frozenset(path for path in _leaves(obj, ()) if path and path not in IDENTITY and path[:2] not in server)


def _leaves(value: Any, path: Path, name: str = "") -> Iterable[Path]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, f"f:{key}"), key)
    elif isinstance(value, list) and name in LIST_KEYS:
        for item in value:
            yield from _leaves(item, (*path, _key(name, item)))
    else:
        yield path


def _key(name: str, item: Mapping[str, Any]) -> str:
    field = LIST_KEYS[name]
    return "k:" + json.dumps({field: item[field]}, separators=(",", ":"))


def fields_v1(fields: Fields) -> dict[str, Any]:
    """Write a set in the form that ``managedFields`` has."""
    tree: dict[str, Any] = {}
    for path in sorted(fields):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
            if step.startswith("k:"):
                node.setdefault(".", {})
    return tree


def from_fields_v1(tree: Mapping[str, Any], path: Path = ()) -> Fields:
    """Read that form."""
    found: set[Path] = set()
    for step, below in tree.items():
        if step != ".":
            found |= from_fields_v1(below, (*path, step)) if set(below) - {"."} else {(*path, step)}
    return frozenset(found)


def value_at(obj: Any, path: Path) -> Any:
    """Give the value at a path; None where there is none."""
    for step in path:
        if isinstance(obj, dict):
            obj = obj.get(step[2:])
        elif isinstance(obj, list):
            wanted = json.loads(step[2:])
            obj = next((item for item in obj if wanted.items() <= item.items()), None)
        else:
            return None
    return obj


def without(obj: Any, paths: Iterable[Path]) -> Any:
    """Give a copy without some fields, and without what is empty because of that."""
    copy = json.loads(json.dumps(obj))
    keys = {f"f:{key}" for key in LIST_KEYS.values()}
    # An item's key goes last: without it the item's other fields would not be found.
    for path in sorted(paths, key=lambda path: (-len(path), path[-1] in keys)):
        _remove(copy, path)
    return copy


def _remove(node: Any, path: Path) -> None:
    step, *rest = path
    if isinstance(node, list):
        wanted = json.loads(step[2:])
        child = next((item for item in node if wanted.items() <= item.items()), None)
        if child is not None and rest:
            _remove(child, tuple(rest))
            if child.items() <= wanted.items() or not child:
                node.remove(child)
    elif isinstance(node, dict) and step[2:] in node:
        child = node[step[2:]]
        if rest:
            _remove(child, tuple(rest))
        if not rest or child in ({}, []):
            del node[step[2:]]


def merged(obj: Any, body: Any, name: str = "") -> Any:
    """Give an object with a body applied to it."""
    if isinstance(obj, dict) and isinstance(body, dict):
        return {**obj, **{key: merged(obj.get(key), value, key) for key, value in body.items()}}
    if isinstance(obj, list) and isinstance(body, list) and name in LIST_KEYS:
        keyed = {_key(name, item): item for item in obj}
        for item in body:
            keyed[_key(name, item)] = merged(keyed.get(_key(name, item)), item)
        return list(keyed.values())
    return body


def shown(path: Path) -> str:
    """Write a path as conflicts name it: ``.metadata.labels.app``."""
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path)
