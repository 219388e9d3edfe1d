"""render: parts and notices as requests to the API.

Here: the requests, and an Event's body. Not here: sending (apply.py).
Invariant: an object of somebody else is never made: labels are applied to the very object that was found, by its uid.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from podgate.kubeapi.requests import Request, apply, create, delete
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ApiStruct, ObjectMeta
from podgate.model.snapshot import Kind
from podgate.targets.kubernetes.state import Fields, Notice, Part, Subject

EVENT_NOTE: Final = 1024
"""Bytes of the longest ``note`` of an Event (kubernetes.io, events.k8s.io/v1)."""


class _Nothing(ApiStruct, frozen=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()


EVENT: Final[Kind[_Nothing]] = Kind(
    group="events.k8s.io", version="v1", kind="Event", plural="events", namespaced=True, decodes_to=_Nothing
)


def needs_uid(part: Part, fields: Fields) -> bool:
    """Say whether the object must be found first, since an apply would make it."""
    return not part.subresource and not fields.own


def apply_request(kind: Kind[Any], part: Part, fields: Fields, manager: str, uid: str = "") -> Request:
    """Apply the fields of a part; with ``uid`` to that object alone."""
    body = msgspec.json.decode(fields.body)
    if uid:
        body["metadata"] = {**body.get("metadata", {}), "uid": uid}
    return apply(kind, part.ref, body, manager, subresource=part.subresource, force=fields.force)


def release_request(kind: Kind[Any], part: Part, fields: Fields, manager: str, uid: str = "") -> Request:
    """Delete an object that is ours; give up our fields of any other, by applying none."""
    if fields.own:
        return delete(kind, part.ref, uid)
    body: Mapping[str, Any] = {"metadata": {"uid": uid}} if uid else {}
    return apply(kind, part.ref, body, manager, subresource=part.subresource, force=False)


def event_request(notice: Notice, subject: Subject, manager: str, instance: str, now: str) -> Request:
    """Make an Event. Its name follows from what it says, so that after a restart the same one is there already (409).

    Args:
        notice: what to tell.
        subject: more about the object.
        manager: who tells it (``reportingController``).
        instance: which of us: a Pod's or node's name.
        now: RFC 3339 with microseconds.
    """
    told = "\0".join((manager, subject.uid, str(notice.ref), notice.reason, notice.message))
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    # Events about what is cluster-wide are in "default", as those of Kubernetes itself are.
    namespace = notice.ref.namespace or "default"
    ref = ObjectRef("Event", f"{notice.ref.name[:200]}.{digest}", namespace)
    regarding = {"kind": notice.ref.kind, "name": notice.ref.name}
    more = {"namespace": notice.ref.namespace, "apiVersion": subject.api_version, "uid": subject.uid}
    body = {
        "apiVersion": EVENT.api_version,
        "kind": "Event",
        "metadata": {"name": ref.name, "namespace": namespace},
        "eventTime": now,
        "reportingController": f"podgate.io/{manager}",
        "reportingInstance": instance[:128],
        "action": "Reconcile",
        "reason": notice.reason,
        "type": "Warning",
        "note": notice.message.encode()[:EVENT_NOTE].decode("utf-8", "ignore"),
        "regarding": {**regarding, **{name: value for name, value in more.items() if value}},
    }
    return create(EVENT, ref, body, manager)
