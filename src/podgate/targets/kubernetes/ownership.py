"""Ownership: which fields of an object from the API are ours, by its ``managedFields``. Pure.

Here: FieldsV1 applied to an object. Not here: asking for objects (apply.py).
Invariant: what is read back of an object that we applied is what we applied, as long as nobody changed it.

Format: kubernetes.io, "Server-Side Apply"; structured-merge-diff, fieldpath/serialize.go: ``f:`` a field, ``k:`` an
item of a list by key, ``v:`` an item of a set by value, ``.`` the thing itself.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ApiStruct
from podgate.model.snapshot import Kind
from podgate.targets.kubernetes.state import OWN_LABEL, Fields, Part, Subresource, canonical

_NAMES: Final = ("name", "namespace")


class _Entry(ApiStruct, frozen=True, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _Metadata(ApiStruct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: tuple[_Entry, ...] = ()


class _Managed(ApiStruct, frozen=True, rename="camel"):
    metadata: _Metadata = _Metadata()


class _ListMetadata(ApiStruct, frozen=True, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")


class _List(ApiStruct, frozen=True, rename="camel"):
    metadata: _ListMetadata = _ListMetadata()
    items: tuple[msgspec.Raw, ...] | None = ()


class OwnedPage(Frozen, frozen=True):
    """What is ours in one page of a list; ``token`` leads to the next one."""

    parts: tuple[tuple[Part, Fields], ...]
    token: str


_list: Final = msgspec.json.Decoder(_List)
_managed: Final = msgspec.json.Decoder(_Managed)


def owned_page(body: bytes, kind: Kind[Any], manager: str) -> OwnedPage:
    """Find what is ours in a page of a list. Raises msgspec.DecodeError for what is no list.

    Only objects of which something is ours are decoded whole.
    """
    page = _list.decode(body)
    found: list[tuple[Part, Fields]] = []
    for item in page.items or ():
        found += owned_parts(bytes(item), kind, manager)
    return OwnedPage(tuple(found), page.metadata.continue_)


def owned_parts(data: bytes, kind: Kind[Any], manager: str) -> list[tuple[Part, Fields]]:
    """Find what is ours in one object."""
    metadata = _managed.decode(data).metadata
    ours = [each for each in metadata.managed_fields if each.manager == manager and each.operation == "Apply"]
    if not ours:
        return []
    obj = msgspec.json.decode(data)
    ref = ObjectRef(kind.kind, metadata.name, metadata.namespace if kind.namespaced else "")
    found: list[tuple[Part, Fields]] = []
    for entry in ours:
        if entry.subresource not in {"", "status"}:
            continue
        subresource: Subresource = "status" if entry.subresource else ""
        fields = _taken(obj, msgspec.json.decode(entry.fields_v1))
        if isinstance(fields, dict) and fields:
            own = fields.get("metadata", {}).get("labels", {}).get(OWN_LABEL) == manager
            found.append((Part(ref, subresource), Fields(canonical(fields), own=own)))
    return found


def _taken(value: Any, tree: Mapping[str, Any]) -> Any:
    """Give the part of a value that a tree of FieldsV1 names."""
    steps = {step: below for step, below in tree.items() if step != "."}
    if not steps:
        return value
    if isinstance(value, dict):
        found = {}
        for step, below in steps.items():
            name = step.removeprefix("f:")
            if name in value:
                found[name] = _taken(value[name], below)
        return found
    if isinstance(value, list):
        return [taken for item in value for taken in _item(item, steps)]
    return value


def _item(item: Any, steps: Mapping[str, Any]) -> list[Any]:
    for step, below in steps.items():
        if step.startswith("v:") and msgspec.json.decode(step[2:].encode()) == item:
            return [item]
        if step.startswith("k:") and isinstance(item, dict):
            key = msgspec.json.decode(step[2:].encode())
            if key.items() <= item.items():
                return [{**key, **_taken(item, below)} if set(below) - {"."} else item]
    return []
