"""Garbage: what belongs to nobody any more. Pure.

Here: objects whose owners are all gone, objects of a namespace that is gone, Pods of a Node that is gone.
Not here: deleting what a user names.
Invariant: an object without ownerReferences, in a namespace that exists, is never garbage.
"""

from podgate.lab.controllers.writes import Objects, Remove, Write
from podgate.model.frozen import ObjectRef


def reconcile(objects: Objects) -> tuple[Write, ...]:
    """Give the removals."""
    uids = {obj["metadata"].get("uid") for obj in objects.values()}
    return tuple(Remove(ref) for ref in objects if _is_garbage(objects, ref, uids))


def _is_garbage(objects: Objects, ref: ObjectRef, uids: set[str | None]) -> bool:
    obj = objects[ref]
    if obj["metadata"].get("deletionTimestamp"):
        return False  # on its way already
    if ref.namespace and ObjectRef("Namespace", ref.namespace) not in objects:
        return True
    owners = obj["metadata"].get("ownerReferences") or ()
    if owners and not any(owner["uid"] in uids for owner in owners):
        return True
    node = str(obj["spec"].get("nodeName") or "") if ref.kind == "Pod" else ""
    return bool(node) and ObjectRef("Node", node) not in objects
